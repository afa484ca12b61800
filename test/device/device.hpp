// SPDX-License-Identifier: Apache-2.0
/// \file
/// Code that the device tests share: the device under test, memory, connected queue pairs,
/// and waits with timeouts.
///
/// The tests run on the software device, on the kernel's software driver and on hardware. They
/// therefore allow for differences between devices, and query limits where they need them.
#pragma once

#include "../catch.hpp"
#include <verbspp/verbspp.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace verbspp::test {

using clock = std::chrono::steady_clock;

/// The usual limit of a wait for an event that must occur. It is long because an emulated machine
/// is slow.
inline constexpr std::chrono::seconds patience{20};
/// How long a test watches for an event that must not occur, or pauses so that another thread can
/// begin a wait.
inline constexpr std::chrono::milliseconds moment{20};

/// Returns the value of VERBSPP_TEST_DEVICE, or soft0 if it is not set.
[[nodiscard]] std::string device_name();

/// Returns how often a test should repeat its steps: the given number of times on softverbs, and a
/// fifth of that on other devices, because the driver in an emulated machine takes 50 ms to create
/// and destroy a queue pair.
[[nodiscard]] std::uint32_t repetitions(std::uint32_t on_softverbs);

/// An exception that ends the test case. Unlike the assertion macros of Catch, it can be used on
/// other threads if they pass it on, as `std::async` does.
struct failure : std::runtime_error {
  failure(const char* file, int line, const std::string& what)
      : std::runtime_error(std::string(file) + ':' + std::to_string(line) + ": " + what) {}
};

/// Returns the value of a call that must succeed.
template <class Outcome>
auto must(Outcome outcome, int line = __builtin_LINE(), const char* file = __builtin_FILE()) {
  if (!outcome.has_value()) throw failure(file, line, outcome.error().message());
  if constexpr (!std::is_void_v<typename Outcome::value_type>)
    return std::move(outcome).assume_value();
}

/// Returns the error of a call that must fail.
template <class Outcome>
[[nodiscard]] auto failure_of(Outcome outcome, int line = __builtin_LINE(),
                              const char* file = __builtin_FILE()) {
  if (outcome.has_value()) throw failure(file, line, "this call succeeded, but should have failed");
  return outcome.error();
}

/// Returns the value of a call that must succeed. Skips the test if the device does not support
/// `what`.
template <class Outcome>
[[nodiscard]] auto supported(Outcome outcome, std::string_view what) {
  if (outcome.has_error()) {
    INFO(outcome.error());
    REQUIRE(outcome.error() == error_kind::not_supported);
    SKIP("the device has no " << what);
  }
  if constexpr (!std::is_void_v<typename Outcome::value_type>)
    return std::move(outcome).assume_value();
}
inline constexpr std::string_view extended_posting = "extended posting interface";
inline constexpr std::string_view shared_receive_queues = "shared receive queues";

/// Waits until `condition()` holds. Throws `failure` if `limit` expires first.
template <class Condition>
void wait_until(Condition condition, const char* what, std::chrono::nanoseconds limit = patience,
                int line = __builtin_LINE(), const char* file = __builtin_FILE()) {
  const auto deadline = clock::now() + limit;
  while (!condition()) {
    if (clock::now() > deadline)
      throw failure(file, line, std::string("timed out while waiting for ") + what);
    std::this_thread::yield();
  }
}

/// Calls `act` on another thread a moment later, when this thread has probably begun to wait.
template <class Act>
[[nodiscard]] std::thread later(Act act, std::chrono::nanoseconds after = moment) {
  return std::thread([act, after] {
    // steady: after this pause, the wait has likely begun; if not, it ends in the same way
    std::this_thread::sleep_for(after);
    act();
  });
}

/// Waits for the next `count` completions of the queue, and returns them in order.
[[nodiscard]] std::vector<work_completion> take(const completion_queue& queue, std::size_t count,
                                                int line = __builtin_LINE(),
                                                const char* file = __builtin_FILE());
[[nodiscard]] work_completion take_one(const completion_queue& queue, int line = __builtin_LINE(),
                                       const char* file = __builtin_FILE());
/// Waits for the next completion, and checks that it is successful and has this id.
completed_work take_success(const completion_queue& queue, std::uint64_t id,
                            int line = __builtin_LINE(), const char* file = __builtin_FILE());
/// Returns the number of completions that arrive within a moment. For tests that expect none.
[[nodiscard]] std::size_t count_within_a_moment(const completion_queue& queue);

[[nodiscard]] work_status status_of(const work_completion& completion);

template <class Value>
[[nodiscard]] bool is_one_of(const Value& value, std::initializer_list<Value> set) {
  for (const Value& each : set)
    if (each == value) return true;
  return false;
}

/// Returns `size` bytes that repeat only after a long period. Different seeds yield different
/// bytes.
[[nodiscard]] std::vector<std::byte> pattern(std::size_t size, unsigned seed);

/// Counts the verbs objects that could not be released, and fails the test if there were any. A
/// watch must outlive the objects.
class release_watch {
 public:
  release_watch();
  ~release_watch();
  release_watch(const release_watch&) = delete;
  release_watch& operator=(const release_watch&) = delete;

  [[nodiscard]] int failures() const;

 private:
  destroy_failure_handler before_;
};

inline constexpr access_flags all_rights =
    access::local_write | access::remote_write | access::remote_read;

/// Memory that is registered.
template <access_flags Rights = all_rights>
class buffer {
 public:
  buffer(const protection_domain& domain, std::vector<std::byte> content)
      : bytes_(std::move(content)), region_(must(register_memory<Rights>(domain, bytes_))) {}
  buffer(const protection_domain& domain, std::size_t size)
      : buffer(domain, std::vector<std::byte>(size)) {}

  [[nodiscard]] const std::vector<std::byte>& bytes() const { return bytes_; }
  /// Returns the bytes of the memory, which the caller may change. Their address stays the same.
  [[nodiscard]] std::span<std::byte> content() { return bytes_; }
  [[nodiscard]] memory_region<Rights>& region() { return region_; }
  [[nodiscard]] const memory_region<Rights>& region() const { return region_; }
  [[nodiscard]] std::size_t size() const { return bytes_.size(); }
  /// The first `size` bytes.
  [[nodiscard]] std::vector<std::byte> front(std::size_t size) const {
    return {bytes_.begin(), bytes_.begin() + static_cast<std::ptrdiff_t>(size)};
  }
  [[nodiscard]] gather_element gather() const { return must(region_.gather()); }
  [[nodiscard]] gather_element gather(std::size_t offset, std::size_t length) const {
    return must(region_.gather(offset, length));
  }
  [[nodiscard]] scatter_element scatter() const { return must(region_.scatter()); }
  [[nodiscard]] scatter_element scatter(std::size_t offset, std::size_t length) const {
    return must(region_.scatter(offset, length));
  }
  [[nodiscard]] auto remote() const { return must(region_.remote()); }

 private:
  std::vector<std::byte> bytes_;
  memory_region<Rights> region_;
};

using prepared = prepared_queue_pair<transport::rc>;
using connected = connected_queue_pair<transport::rc>;

/// The opened device, with one completion queue for each of two ends.
struct testbed {
  explicit testbed(std::size_t completions = 256);

  release_watch watch;  // must outlive the other members
  verbspp::context context;
  protection_domain domain;
  completion_queue left_queue;
  completion_queue right_queue;
  ibv_device_attr limits;
  port_attributes port;

  [[nodiscard]] bool is_ethernet() const { return port.link_layer() == link_layer::ethernet; }
  /// Returns a builder on which only the access flags must still be set.
  [[nodiscard]] auto builder(const completion_queue& queue) const {
    return build_queue_pair<transport::rc>().protection_domain(domain).completion_queue(queue);
  }
  /// Return builders on which all required options are set.
  [[nodiscard]] auto left() const { return builder(left_queue).access(all_rights); }
  [[nodiscard]] auto right() const { return builder(right_queue).access(all_rights); }
};

/// Two ends, connected to each other.
struct connected_pair {
  connected left;
  connected right;
};

[[nodiscard]] connected_pair connect(prepared left, prepared right, int line = __builtin_LINE(),
                                     const char* file = __builtin_FILE());
/// Connects two queue pairs with `all_rights` and otherwise default options.
[[nodiscard]] connected_pair connect(const testbed& bed, int line = __builtin_LINE(),
                                     const char* file = __builtin_FILE());
/// A fixture with both ends, and the objects from which they were created.
struct two_queue_pairs {
  const testbed bed{};
  connected_pair pair = connect(bed);
  connected& left = pair.left;
  connected& right = pair.right;
};

/// Connects a queue pair to itself.
template <class Prepared>
[[nodiscard]] auto connect_to_itself(Prepared alone, int line = __builtin_LINE(),
                                     const char* file = __builtin_FILE()) {
  const endpoint itself = alone.endpoint();
  return must(std::move(alone).handshake(itself), line, file);
}

/// Returns the message sizes that are worth testing: zero, one byte, sizes around the MTU, and one
/// MiB.
[[nodiscard]] std::vector<std::size_t> telling_sizes(const testbed& bed);

struct queried {
  ibv_qp_attr attributes{};
  ibv_qp_init_attr initial{};
};

[[nodiscard]] queried query(ibv_qp* queue_pair);

/// Moves a queue pair to ERR, as a failure would.
void move_to_error(ibv_qp* queue_pair);

/// Moves a queue pair to SQD. The device reports an event once the send queue is drained.
void start_draining(const connected& queue_pair);

/// Waits until the device has moved the queue pair to ERR on its own.
void wait_for_error_state(const connected& queue_pair, int line = __builtin_LINE(),
                          const char* file = __builtin_FILE());

}  // namespace verbspp::test

// Tells Catch how to print values of a type when a comparison fails.
#define VERBSPP_TEST_PRINTS_BY_NAME(type)                        \
  template <>                                                    \
  struct Catch::StringMaker<verbspp::type> {                     \
    static std::string convert(verbspp::type value) {            \
      return std::string(verbspp::to_string(value)) + " (" +     \
             std::to_string(static_cast<unsigned>(value)) + ')'; \
    }                                                            \
  }
VERBSPP_TEST_PRINTS_BY_NAME(work_status);
VERBSPP_TEST_PRINTS_BY_NAME(work_error_class);
VERBSPP_TEST_PRINTS_BY_NAME(work_operation);
VERBSPP_TEST_PRINTS_BY_NAME(error_kind);
VERBSPP_TEST_PRINTS_BY_NAME(queue_pair_state);
VERBSPP_TEST_PRINTS_BY_NAME(link_layer);
VERBSPP_TEST_PRINTS_BY_NAME(gid_type);
VERBSPP_TEST_PRINTS_BY_NAME(port_state);
