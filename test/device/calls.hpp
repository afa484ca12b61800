// SPDX-License-Identifier: Apache-2.0
/// \file
/// Code that the tests of calls share: methods, and a service with its callers.
#pragma once

#include "channels.hpp"
#include <verbspp/calls.hpp>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <mutex>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace verbspp::test {

struct two_numbers {
  std::int64_t first = 0;
  std::int64_t second = 0;
};

/// Adds two numbers; refuses the call if the first is negative.
struct sum_method {
  static constexpr std::uint16_t number = 1;
  static constexpr const char* name = "sum";
  using request = two_numbers;
  using answer = std::int64_t;
};
/// Returns the bytes of the request.
struct echo_method {
  static constexpr std::uint16_t number = 2;
  static constexpr const char* name = "echo";
  using request = bytes;
  using answer = bytes;
};
/// A method whose calls the test answers itself.
struct kept_method {
  static constexpr std::uint16_t number = 3;
  static constexpr const char* name = "kept";
  using request = std::int32_t;
  using answer = std::int32_t;
};
/// A method with a void answer. Adds the request to a number.
struct note_method {
  static constexpr std::uint16_t number = 4;
  static constexpr const char* name = "note";
  static constexpr std::uint16_t version = 7;
  using request = std::int32_t;
  using answer = void;
};

[[nodiscard]] inline std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}
[[nodiscard]] inline std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// The calls that have arrived for a method, and that the test answers itself.
template <Method Called>
class kept_calls {
 public:
  void put(received_call<Called> call) {
    const std::lock_guard guard(lock_);
    kept_.push_back(std::move(call));
  }
  /// Moves the calls that have arrived to the end of `list`.
  void move_to(std::vector<received_call<Called>>& list) {
    const std::lock_guard guard(lock_);
    for (; !kept_.empty(); kept_.pop_front()) list.push_back(std::move(kept_.front()));
  }
  /// Waits for this number of calls, and takes them.
  [[nodiscard]] std::vector<received_call<Called>> take(std::size_t count) {
    std::vector<received_call<Called>> taken;
    wait_until(
        [&] {
          const std::lock_guard guard(lock_);
          for (; !kept_.empty() && taken.size() < count; kept_.pop_front())
            taken.push_back(std::move(kept_.front()));
          return taken.size() == count;
        },
        "the calls");
    return taken;
  }

 private:
  std::mutex lock_{};
  std::deque<received_call<Called>> kept_{};
};

/// A service, and the threads that serve its calls. A derived class creates the service. It must
/// call `close` in its destructor if handlers use its members.
class service_threads {
 public:
  // Threads that sleep leave the processor to the other threads of a test.
  static constexpr service_options default_options{.clients = 8, .waiting = wait_mode::sleep()};

  static constexpr wait_mode brief_spin = wait_mode::spin_then_sleep(std::chrono::microseconds(20));

  explicit service_threads(const testbed& bed) : bed_(bed) {}
  service_threads(const service_threads&) = delete;
  service_threads& operator=(const service_threads&) = delete;
  ~service_threads() { stop(); }

  void stop() {
    for (std::jthread& each : threads_) each.request_stop();
    threads_.clear();
  }
  void close() {
    stop();
    served_.reset();
  }
  [[nodiscard]] service& served() { return *served_; }
  /// The error that has ended a thread; empty if there is none. Call `stop` first.
  [[nodiscard]] const std::string& failure() const { return failure_; }

  /// Connects a channel of a client to the service.
  [[nodiscard]] channel connect(prepared_channel end) {
    auto own = must(bed_.domain.build_channel().hub(served_->hub()).build());
    const endpoint of_client = end.endpoint();
    const endpoint of_service = own.endpoint();
    must(served_->add(must(std::move(own).handshake(of_client))));
    return must(std::move(end).handshake(of_service));
  }
  /// Connects a channel to the service, and creates a caller that has not compared its methods yet.
  /// \returns the caller and the channel
  [[nodiscard]] std::pair<caller, channel> prepare(const caller_options& options = {},
                                                   wait_mode waiting = brief_spin) {
    auto end = must(bed_.domain.build_channel().waiting(waiting).build());
    caller calls = must(caller::open(end, options));
    channel link = connect(std::move(end));
    return {std::move(calls), std::move(link)};
  }

 protected:
  /// Starts the threads. Skips the test if the device has no shared receive queues.
  void serve(result<service> made, unsigned threads) {
    served_ = supported(std::move(made), shared_receive_queues);
    for (unsigned i = 0; i < threads; ++i)
      threads_.emplace_back([this](const std::stop_token& stop) {
        if (const auto ended = served_->serve(stop); ended.has_error())
          failure_ = ended.error().message();
      });
  }

 private:
  const testbed& bed_;
  std::string failure_{};
  std::optional<service> served_{};
  std::vector<std::jthread> threads_{};
};

/// A service for the methods above.
class running_service : public service_threads {
 public:
  explicit running_service(const testbed& bed, unsigned threads = 1,
                           const service_options& options = default_options)
      : service_threads(bed) {
    serve(service::create(
              bed.domain, options, handles<sum_method>(&add),
              handles<echo_method>([](std::span<const std::byte> asked) { return asked; }),
              handles<kept_method>(
                  [this](received_call<kept_method> call) { kept.put(std::move(call)); }),
              handles<note_method>([this](std::int32_t value) { noted_ += value; })),
          threads);
  }
  running_service(const running_service&) = delete;
  running_service& operator=(const running_service&) = delete;
  ~running_service() { close(); }

  [[nodiscard]] std::int64_t noted() const { return noted_; }
  [[nodiscard]] caller call(const caller_options& options = {}, wait_mode waiting = brief_spin) {
    auto [calls, link] = prepare(options, waiting);
    must(calls.start<sum_method, echo_method, kept_method, note_method>(std::move(link), patience));
    return std::move(calls);
  }

  kept_calls<kept_method> kept{};

 private:
  [[nodiscard]] static result<std::int64_t> add(const two_numbers& asked) {
    if (asked.first < 0) return error(error_kind::not_found, "sum", "there is no such number");
    return asked.first + asked.second;
  }

  std::atomic<std::int64_t> noted_{0};
};

/// Runs `client(i)` for each number below `count`, each on a thread of its own. `client` returns
/// the reason for its failure, or an empty string. Fails the test for each failure.
template <class Client>
void run_clients(std::uint32_t count, Client client) {
  std::vector<std::string> failures(count);
  std::vector<std::thread> threads;
  for (std::uint32_t i = 0; i < count; ++i)
    threads.emplace_back([&, i] {
      try {
        failures[i] = client(i);
      } catch (const std::exception& thrown) {
        failures[i] = thrown.what();
      }
    });
  for (std::thread& each : threads) each.join();
  for (const std::string& each : failures) CHECK(each == "");
}

}  // namespace verbspp::test
