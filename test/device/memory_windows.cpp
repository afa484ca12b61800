// SPDX-License-Identifier: Apache-2.0
/// \file
/// Memory windows: what they let in, how they are closed, and what they refuse.

#include "device.hpp"
#include "failing_verb.hpp"
#include "transports.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

using namespace verbspp;
using namespace verbspp::test;

namespace {

using enum memory_window_type;
using first_type = memory_window<type_1>;
using second_type = memory_window<type_2>;

constexpr access_flags both_ways = access::remote_read | access::remote_write;

/// Memory that peers get at through windows only.
using shown_memory = buffer<access::local_write | access::window_bind>;

/// A window, if the device has them. Declare it behind the queue pairs that bind it, so that it is
/// gone before they are.
template <memory_window_type Type>
std::optional<memory_window<Type>> window_of(const protection_domain& domain) {
  auto created = memory_window<Type>::create(domain);
  if (created.has_value()) return std::move(created).assume_value();
  INFO(created.error());
  REQUIRE(created.error() == error_kind::not_supported);
  WARN("this device has no memory windows of " << to_string(Type));
  return std::nullopt;
}

/// Runs a test for both types of window: `test.operator()<type>()`.
template <class Test>
void for_each_type(Test test) {
  SECTION("type 1") { test.template operator()<type_1>(); }
  SECTION("type 2") { test.template operator()<type_2>(); }
}

template <access_flags Rights>
window_part<Rights> part_of(const shown_memory& memory, std::size_t offset, std::size_t length) {
  return must(memory.region().window_part<Rights>(offset, length));
}

/// Binds by the right end, and waits for it.
template <class QueuePair, memory_window_type Type, access_flags Rights>
remote_memory<Rights> bind(QueuePair& by, memory_window<Type>& window,
                           const window_part<Rights>& part, int line = __builtin_LINE()) {
  const remote_key before = window.rkey();
  const remote_memory<Rights> far = must(by.post_bind(window, part, {.id = 50}), line);
  const completed_work done = take_success(by.send_completion_queue(), 50, line);
  CHECK(done.operation() == work_operation::bind_memory_window);
  CHECK(far.rkey() == window.rkey());
  CHECK(far.rkey() != before);
  CHECK(far.address() == part.address());
  CHECK(far.length() == part.length());
  return far;
}

/// The left end writes the front of a buffer.
work_status write(const testbed& bed, connected& left, const remote_destination& to,
                  const buffer<>& from) {
  must(left.post_write(
      {.elements = from.gather(0, static_cast<std::size_t>(to.memory().length())), .remote = to},
      {.id = 60}));
  return status_of(take_one(bed.left_queue));
}

std::vector<std::byte> written_by_another(std::uint64_t size) {
  return pattern(static_cast<std::size_t>(size), 9);
}

/// Writes by a queue pair of its own, which a refusal breaks.
work_status write_by_another(const testbed& bed, const remote_destination& to) {
  connected_pair pair = connect(bed);
  const buffer<> source(bed.domain, written_by_another(to.memory().length()));
  return write(bed, pair.left, to, source);
}

/// What has the same bytes under another key, or with rights that nobody gave.
remote_memory<access::remote_write> claimed(std::uint64_t address, std::uint64_t length,
                                            remote_key rkey) {
  return {address, length, rkey};
}

/// Calls `test` with connected ends, of which the right one has all that is needed to post batches
/// by each of the interfaces that the device has.
template <class Test>
void with_each_interface(Test test) {
  const testbed bed;
  const auto run = [&](auto right) {
    prepared left = must(bed.left().build());
    const endpoint address = right.endpoint();
    auto connected_right = must(std::move(right).handshake(left.endpoint()));
    test(bed, must(std::move(left).handshake(address)), std::move(connected_right));
  };
  {
    INFO("linked lists");
    run(must(bed.right().build()));
  }
  auto extended = bed.right().extended_posting().build();
  if (extended.has_error()) {
    REQUIRE(extended.error() == error_kind::not_supported);
    WARN("this device has no extended posting interface");
    return;
  }
  INFO("the extended interface");
  run(must(std::move(extended)));
}

/// Invalidates by the right end, and waits for it.
void invalidate(connected& by, remote_key rkey, int line = __builtin_LINE()) {
  must(by.post_local_invalidate({.rkey = rkey}, {.id = 70}), line);
  CHECK(take_success(by.send_completion_queue(), 70, line).operation() ==
        work_operation::local_invalidate);
}

/// Replaces one of the functions by which libibverbs' inline calls reach the driver.
template <class Function>
class replaced {
 public:
  replaced(Function& place, Function by) : place_(place), before_(std::exchange(place, by)) {}
  ~replaced() { place_ = before_; }
  replaced(const replaced&) = delete;
  replaced& operator=(const replaced&) = delete;

 private:
  Function& place_;
  Function before_;
};

int next_errno = 0;  // what the replacements fail with

ibv_mw* fail_to_allocate(ibv_pd*, ibv_mw_type) {
  errno = next_errno;
  return nullptr;
}
int fail_to_bind(ibv_qp*, ibv_mw*, ibv_mw_bind*) { return next_errno; }
int fail_to_deallocate(ibv_mw*) { return next_errno; }
int fail_to_post(ibv_qp*, ibv_send_wr* first, ibv_send_wr** rejected) {
  *rejected = first;
  return next_errno;
}

std::vector<std::string> reports;  // of what could not be released

}  // namespace

TEST_CASE("a window gives peers the rights it is bound with, to a part of memory that gives none") {
  for_each_type([]<memory_window_type Type>() {
    const testbed bed;
    connected_pair pair = connect(bed);
    shown_memory memory(bed.domain, pattern(256, 1));
    auto window = window_of<Type>(bed.domain);
    if (!window) return;
    const auto far = bind(pair.right, *window, part_of<both_ways>(memory, 64, 128));
    CHECK(far.address() == reinterpret_cast<std::uintptr_t>(memory.bytes().data()) + 64);
    CHECK(far.length() == 128);

    buffer<> here(bed.domain, 128);
    must(pair.left.post_read({.elements = here.scatter(), .remote = far}, {.id = 1}));
    take_success(bed.left_queue, 1);
    std::vector<std::byte> expected = memory.bytes();
    CHECK(std::equal(here.bytes().begin(), here.bytes().end(), expected.begin() + 64));

    buffer<> source(bed.domain, pattern(128, 2));
    CHECK(write(bed, pair.left, far, source) == work_status::success);
    std::copy(source.bytes().begin(), source.bytes().end(), expected.begin() + 64);
    CHECK(memory.bytes() == expected);
  });
}

TEST_CASE("a window gives atomic operations") {
  for_each_type([]<memory_window_type Type>() {
    const testbed bed;
    if (bed.limits.atomic_cap == IBV_ATOMIC_NONE) {
      WARN("this device has no atomic operations");
      return;
    }
    constexpr access_flags rights = all_rights | access::remote_atomic;
    connected_pair pair = connect(must(bed.builder(bed.left_queue).access(rights).build()),
                                  must(bed.builder(bed.right_queue).access(rights).build()));
    shown_memory memory(bed.domain, 64);
    auto window = window_of<Type>(bed.domain);
    if (!window) return;
    const auto far = bind(pair.right, *window, part_of<access::remote_atomic>(memory, 32, 8));
    const buffer<> result(bed.domain, 8);
    must(pair.left.post_fetch_and_add({.result = result.scatter(),
                                       .remote = must(remote_word::at(far)),
                                       .addend = 0x0101010101010101},
                                      {.id = 1}));
    take_success(bed.left_queue, 1);
    std::vector<std::byte> expected(64);
    std::fill_n(expected.begin() + 32, 8, std::byte{1});
    CHECK(memory.bytes() == expected);
  });
}

TEST_CASE("a window gives no right that it was not bound with") {
  for_each_type([]<memory_window_type Type>() {
    const testbed bed;
    connected_pair pair = connect(bed);
    shown_memory memory(bed.domain, 64);
    auto window = window_of<Type>(bed.domain);
    if (!window) return;
    const auto far = bind(pair.right, *window, part_of<access::remote_read>(memory, 0, 64));
    buffer<> source(bed.domain, pattern(64, 3));
    CHECK(write(bed, pair.left, claimed(far.address(), 64, far.rkey()), source) ==
          work_status::remote_access_error);
    CHECK(memory.bytes() == std::vector<std::byte>(64));
  });
}

TEST_CASE("what is outside of a window is refused") {
  for_each_type([]<memory_window_type Type>() {
    const testbed bed;
    // And beyond the region it gives a reference back that it does not have.
    if (device_name().starts_with("rxe")) {
      WARN("Linux' software driver checks the bounds of the region, not those of the window");
      return;
    }
    shown_memory memory(bed.domain, 256);
    const std::uint64_t start = reinterpret_cast<std::uintptr_t>(memory.bytes().data()) + 64;
    const std::array<std::pair<std::uint64_t, std::uint64_t>, 4> outside{
        {{start, 129}, {start - 1, 2}, {start + 128, 1}, {start + 127, 2}}};
    for (const auto& [address, length] : outside) {
      INFO(address - start << "+" << length);
      connected_pair pair = connect(bed);
      auto window = window_of<Type>(bed.domain);
      if (!window) return;
      const auto far = bind(pair.right, *window, part_of<both_ways>(memory, 64, 128));
      REQUIRE(far.address() == start);
      buffer<> source(bed.domain, pattern(129, 4));
      CHECK(write(bed, pair.left, claimed(address, length, far.rkey()), source) ==
            work_status::remote_access_error);
    }
    CHECK(memory.bytes() == std::vector<std::byte>(256));
  });
}

TEST_CASE("with the next bind of a window of type 1, its former handle is void") {
  const testbed bed;
  connected_pair pair = connect(bed);
  shown_memory memory(bed.domain, 256);
  auto window = window_of<type_1>(bed.domain);
  if (!window) return;
  const auto first = bind(pair.right, *window, part_of<both_ways>(memory, 0, 64));
  const auto second = bind(pair.right, *window, part_of<both_ways>(memory, 64, 64));
  buffer<> source(bed.domain, pattern(64, 5));
  CHECK(write(bed, pair.left, second, source) == work_status::success);
  CHECK(write(bed, pair.left, first, source) == work_status::remote_access_error);
  CHECK(memory.front(64) == std::vector<std::byte>(64));
}

TEST_CASE("a window of type 1 lets in whoever is connected to its domain") {
  const testbed bed;
  connected_pair pair = connect(bed);
  shown_memory memory(bed.domain, 64);
  auto window = window_of<type_1>(bed.domain);
  if (!window) return;
  const auto far = bind(pair.right, *window, part_of<both_ways>(memory, 0, 64));
  CHECK(write_by_another(bed, far) == work_status::success);
  CHECK(memory.bytes() == written_by_another(64));
}

TEST_CASE("a window of type 1 that is bound to no bytes lets nobody in, and lets the region go") {
  const testbed bed;
  connected_pair pair = connect(bed);
  std::vector<std::byte> bytes(64);
  auto region =
      must(register_memory < access::local_write | access::window_bind > (bed.domain, bytes));
  auto window = window_of<type_1>(bed.domain);
  if (!window) return;
  const auto far = bind(pair.right, *window, must(region.window_part<both_ways>(0, 64)));
  const auto closed = bind(pair.right, *window, must(region.window_part<both_ways>(0, 0)));
  CHECK(write_by_another(bed, far) == work_status::remote_access_error);
  CHECK(write_by_another(bed, claimed(far.address(), 64, closed.rkey())) ==
        work_status::remote_access_error);
  CHECK(bytes == std::vector<std::byte>(64));
  CHECK_NOTHROW(must(std::move(region).deregister()));
}

TEST_CASE("a window that is assigned over lets nobody in, and lets the region go") {
  const testbed bed;
  connected_pair pair = connect(bed);
  std::vector<std::byte> bytes(64);
  auto region =
      must(register_memory < access::local_write | access::window_bind > (bed.domain, bytes));
  auto window = window_of<type_1>(bed.domain);
  auto fresh = window_of<type_1>(bed.domain);
  if (!window) return;
  const auto far = bind(pair.right, *window, must(region.window_part<both_ways>(0, 64)));
  ibv_mw* const kept = fresh->native_handle();
  *window = std::move(*fresh);
  CHECK(window->native_handle() == kept);
  CHECK(fresh->native_handle() == nullptr);
  auto& same = *window;
  *window = std::move(same);
  CHECK(window->native_handle() == kept);
  CHECK(write_by_another(bed, far) == work_status::remote_access_error);
  CHECK_NOTHROW(must(std::move(region).deregister()));
}

TEST_CASE("a window of type 2 is closed by its own side, and can be bound anew then") {
  const testbed bed;
  connected_pair pair = connect(bed);
  shown_memory memory(bed.domain, 128);
  auto window = window_of<type_2>(bed.domain);
  if (!window) return;
  const auto first = bind(pair.right, *window, part_of<both_ways>(memory, 0, 64));
  invalidate(pair.right, window->rkey());
  const auto second = bind(pair.right, *window, part_of<both_ways>(memory, 64, 64));
  invalidate(pair.right, window->rkey());
  const auto third = bind(pair.right, *window, part_of<both_ways>(memory, 64, 32));
  CHECK(first.rkey() != second.rkey());
  CHECK(second.rkey() != third.rkey());
  buffer<> source(bed.domain, pattern(64, 6));
  CHECK(write(bed, pair.left, third, source) == work_status::success);
  invalidate(pair.right, third.rkey());
  CHECK(write(bed, pair.left, third, source) == work_status::remote_access_error);
  CHECK(memory.front(64) == std::vector<std::byte>(64));
}

TEST_CASE("a window of type 2 is closed by its peer, whose message names it") {
  const testbed bed;
  connected_pair pair = connect(bed);
  shown_memory memory(bed.domain, 64);
  buffer<> inbox(bed.domain, 16);
  buffer<> source(bed.domain, pattern(64, 7));
  auto window = window_of<type_2>(bed.domain);
  if (!window) return;
  const auto far = bind(pair.right, *window, part_of<both_ways>(memory, 0, 64));
  must(pair.right.post_receive({.elements = inbox.scatter()}, {.id = 1}));
  must(pair.left.post_send_with_invalidate({.elements = source.gather(0, 16), .rkey = far.rkey()},
                                           {.id = 2}));
  take_success(bed.left_queue, 2);
  const completed_work received = take_success(bed.right_queue, 1);
  CHECK(received.byte_count() == 16U);
  // Linux' software driver sets the flag of something else.
  if (device_name().starts_with("rxe") && !received.invalidated_rkey())
    WARN("the completion does not tell the invalidated rkey");
  else
    CHECK(received.invalidated_rkey() == far.rkey());
  const auto again = bind(pair.right, *window, part_of<both_ways>(memory, 0, 64));
  CHECK(write(bed, pair.left, again, source) == work_status::success);
  CHECK(write(bed, pair.left, far, source) == work_status::remote_access_error);
}

TEST_CASE("a window of type 2 lets in only the peer of the queue pair that bound it") {
  const testbed bed;
  connected_pair pair = connect(bed);
  shown_memory memory(bed.domain, 64);
  auto window = window_of<type_2>(bed.domain);
  if (!window) return;
  const auto far = bind(pair.right, *window, part_of<both_ways>(memory, 0, 64));
  CHECK(write_by_another(bed, far) == work_status::remote_access_error);
  CHECK(memory.bytes() == std::vector<std::byte>(64));
  buffer<> source(bed.domain, pattern(64, 8));
  CHECK(write(bed, pair.left, far, source) == work_status::success);
}

TEST_CASE("a window of type 2 that is bound still cannot be bound, by whatever queue pair") {
  const testbed bed;
  connected_pair pair = connect(bed);
  connected_pair other = connect(bed);
  shown_memory memory(bed.domain, 64);
  auto window = window_of<type_2>(bed.domain);
  if (!window) return;
  bind(pair.right, *window, part_of<both_ways>(memory, 0, 64));
  must(other.right.post_bind(*window, part_of<both_ways>(memory, 0, 32), {.id = 1}));
  const work_error refused = failure_of(take_one(bed.right_queue).get());
  CHECK(refused.status() == work_status::memory_window_bind_error);
  CHECK(refused.error_class() == work_error_class::local_programming);
  CHECK_THAT(refused.message(), Catch::Contains("invalidated since its last bind"));
  wait_for_error_state(other.right);
}

TEST_CASE("a window that is destroyed lets nobody in") {
  for_each_type([]<memory_window_type Type>() {
    const testbed bed;
    connected_pair pair = connect(bed);
    shown_memory memory(bed.domain, 64);
    auto window = window_of<Type>(bed.domain);
    if (!window) return;
    const auto far = bind(pair.right, *window, part_of<both_ways>(memory, 0, 64));
    window.reset();
    buffer<> source(bed.domain, pattern(64, 9));
    CHECK(write(bed, pair.left, far, source) == work_status::remote_access_error);
    CHECK(memory.bytes() == std::vector<std::byte>(64));
  });
}

TEST_CASE("a region cannot go while a window is bound to it, and says why") {
  for_each_type([]<memory_window_type Type>() {
    const testbed bed;
    connected_pair pair = connect(bed);
    std::vector<std::byte> bytes(64);
    auto window = window_of<Type>(bed.domain);
    if (!window) return;
    const auto refused = [](error_kind kind) {
      // Linux' software driver calls it invalid.
      return is_one_of(kind, {error_kind::busy, error_kind::invalid_input});
    };
    const auto register_it = [&] {
      return must(register_memory < access::local_write |
                  access::window_bind > (bed.domain, bytes));
    };
    auto region = register_it();
    ibv_mr* const native = region.native_handle();
    bind(pair.right, *window, must(region.template window_part<both_ways>(0, 64)));
    const error e = failure_of(std::move(region).deregister());
    CHECK(refused(e.kind()));
    CHECK_THAT(e.message(), Catch::Contains("stays registered") &&
                                Catch::Contains("a memory window is bound to it still"));

    // The same by the destructor, which has nobody to tell but the handler.
    window.reset();
    REQUIRE(ibv_dereg_mr(native) == 0);
    window = window_of<Type>(bed.domain);
    reports.clear();
    const destroy_failure_handler before = set_destroy_failure_handler(
        [](const error& cause) noexcept { reports.push_back(cause.message()); });
    ibv_mr* dropped = nullptr;
    {
      auto second = register_it();
      dropped = second.native_handle();
      bind(pair.right, *window, must(second.template window_part<both_ways>(0, 64)));
    }
    set_destroy_failure_handler(before);
    REQUIRE(reports.size() == 1);
    CHECK_THAT(reports.front(), Catch::Contains("ibv_dereg_mr") &&
                                    Catch::Contains("a memory window is bound to it still"));
    window.reset();
    CHECK(ibv_dereg_mr(dropped) == 0);
  });
}

TEST_CASE("a window is bound and given to the peer by one batch, whichever interface it goes by") {
  with_each_interface([](const testbed& bed, connected left, auto right) {
    shown_memory memory(bed.domain, 128);
    buffer<> outbox(bed.domain, remote_memory<both_ways>::encoded_size);
    buffer<> inbox(bed.domain, outbox.size());
    buffer<> source(bed.domain, pattern(64, 10));
    auto window = window_of<type_2>(bed.domain);
    if (!window) return;
    // The second time it is closed in the same batch.
    for (const std::size_t offset : {0U, 64U}) {
      const remote_key before = window->rkey();
      must(left.post_receive({.elements = inbox.scatter()}, {.id = 1}));
      must(right.template post_batch<3>([&](auto& batch) {
        if (offset != 0) batch.post_local_invalidate({.rkey = before}, {.signaled = false});
        const auto far =
            batch.post_bind(*window, part_of<both_ways>(memory, offset, 64), {.signaled = false});
        CHECK(far.rkey() != before);
        CHECK(window->rkey() == before);  // the driver is still to look at it
        const auto encoded = far.encode();
        std::copy(encoded.begin(), encoded.end(), outbox.content().begin());
        batch.post_send({.elements = outbox.gather()}, {.id = 2});
      }));
      CHECK(window->rkey() != before);
      take_success(bed.right_queue, 2);
      take_success(bed.left_queue, 1);
      const auto far = must(remote_memory<both_ways>::decode(inbox.bytes()));
      CHECK(far.rkey() == window->rkey());
      CHECK(write(bed, left, far, source) == work_status::success);
      CHECK(std::equal(source.bytes().begin(), source.bytes().end(),
                       memory.bytes().begin() + static_cast<std::ptrdiff_t>(offset)));
    }
    CHECK(count_within_a_moment(bed.right_queue) == 0);
  });
}

TEST_CASE("a window of a batch that is refused is as it was") {
  with_each_interface([](const testbed& bed, connected left, auto right) {
    shown_memory memory(bed.domain, 64);
    buffer<> source(bed.domain, 64);
    auto window = window_of<type_2>(bed.domain);
    if (!window) return;
    const remote_key before = window->rkey();
    const auto part = part_of<both_ways>(memory, 0, 64);
    const auto refusal = [&](auto add) {
      const batch_error e = failure_of(right.template post_batch<2>([&](auto& batch) {
        static_cast<void>(batch.post_bind(*window, part, {.id = 1}));
        add(batch);
      }));
      CHECK(e.accepted() == 0);
      CHECK(window->rkey() == before);
      return e.message();
    };
    CHECK_THAT(refusal([&](auto& batch) {
                 batch.post_write(
                     {.elements = source.gather(), .remote = must(source.remote().slice(0, 8))});
               }),
               Catch::Contains("the remote memory is shorter"));
    CHECK_THAT(refusal([&](auto& batch) {
                 static_cast<void>(batch.post_bind(*window, part_of<both_ways>(memory, 0, 0)));
               }),
               Catch::Contains("bind memory window") && Catch::Contains("invalidating its rkey"));
    CHECK_THAT(refusal([&](auto& batch) {
                 static_cast<void>(batch.post_bind(*window, part));
                 static_cast<void>(batch.post_bind(*window, part));
               }),
               Catch::Contains("of the batch") && Catch::Contains("larger template arguments"));
    CHECK(count_within_a_moment(bed.right_queue) == 0);
    // The key is the one that the device expects.
    bind(right, *window, part);
    CHECK(write(bed, left, part.remote(window->rkey()), source) == work_status::success);
  });
}

TEST_CASE("a window whose bind is among the accepted requests of a batch has its new key") {
  const testbed bed;
  connected_pair pair =
      connect(must(bed.left().build()), must(bed.right().max_send_work_requests(4).build()));
  REQUIRE(pair.right.capacities().max_send_work_requests < 64);
  shown_memory memory(bed.domain, 64);
  buffer<> target(bed.domain, 8);
  auto bound = window_of<type_2>(bed.domain);
  auto refused = window_of<type_2>(bed.domain);
  if (!bound || !refused) return;
  const auto part = part_of<both_ways>(memory, 0, 64);
  const remote_key before = bound->rkey();
  const remote_key refused_before = refused->rkey();
  const batch_error e = failure_of(pair.right.post_batch<66>([&](auto& batch) {
    static_cast<void>(batch.post_bind(*bound, part, {.id = 0}));
    for (std::uint64_t id = 1; id < 64; ++id)
      batch.post_write({.remote = target.remote()}, {.id = id});
    static_cast<void>(batch.post_bind(*refused, part, {.id = 64}));
  }));
  CHECK(e.kind() == error_kind::would_block);
  REQUIRE(e.accepted() >= 1);
  CHECK(bound->rkey() != before);
  CHECK(refused->rkey() == refused_before);
  for (std::uint64_t id = 0; id < e.accepted(); ++id) take_success(bed.right_queue, id);
  buffer<> source(bed.domain, pattern(64, 11));
  CHECK(write(bed, pair.left, part.remote(bound->rkey()), source) == work_status::success);
  // Both have the key that the device expects.
  invalidate(pair.right, bound->rkey());
  bind(pair.right, *bound, part);
  bind(pair.right, *refused, part);
}

TEST_CASE("a bind can go without a completion, and wait for the reads before it") {
  for_each_type([]<memory_window_type Type>() {
    const testbed bed;
    connected_pair pair = connect(bed);
    shown_memory memory(bed.domain, 64);
    buffer<> there(bed.domain, pattern(64, 12));
    buffer<> here(bed.domain, 64);
    auto window = window_of<Type>(bed.domain);
    if (!window) return;
    must(pair.right.post_read({.elements = here.scatter(), .remote = there.remote()}, {.id = 1}));
    const auto far = must(pair.right.post_bind(*window, part_of<both_ways>(memory, 0, 64),
                                               {.fenced = true}, {.id = 2, .signaled = false}));
    must(pair.right.post_write({.remote = there.remote()}, {.id = 3}));
    take_success(bed.right_queue, 1);
    take_success(bed.right_queue, 3);
    CHECK(write(bed, pair.left, far, there) == work_status::success);
    CHECK(memory.bytes() == there.bytes());
    CHECK(count_within_a_moment(bed.right_queue) == 0);
  });
}

TEST_CASE("UC: a window lets writes in") {
  for_each_type([]<memory_window_type Type>() {
    const testbed bed;
    auto pair = connect_both<transport::uc>(bed);
    shown_memory memory(bed.domain, 64);
    buffer<> source(bed.domain, pattern(64, 13));
    auto window = window_of<Type>(bed.domain);
    if (!window) return;
    const auto far = bind(pair.right, *window, part_of<access::remote_write>(memory, 0, 64));
    must(pair.right.post_receive({}, {.id = 1}));
    must(pair.left.post_write(
        {.elements = source.gather(), .remote = far, .immediate = immediate_data(14)}, {.id = 2}));
    take_success(bed.left_queue, 2);
    CHECK(take_success(bed.right_queue, 1).immediate() == immediate_data(14));
    CHECK(memory.bytes() == source.bytes());
  });
}

TEST_CASE("a part for a window lies within its region") {
  const testbed bed;
  shown_memory memory(bed.domain, 100);
  const auto& region = memory.region();
  const auto start = reinterpret_cast<std::uintptr_t>(memory.bytes().data());
  const auto part = must(region.window_part<access::remote_read>(10, 90));
  CHECK(part.address() == start + 10);
  CHECK(part.length() == 90);
  CHECK(part.native().mr == region.native_handle());
  CHECK(part.native().mw_access_flags == IBV_ACCESS_REMOTE_READ);
  CHECK(must(region.window_part<access::remote_read>(100, 0)).length() == 0);
  constexpr std::size_t huge = std::numeric_limits<std::size_t>::max();
  const std::array<std::pair<std::size_t, std::size_t>, 6> outside{
      {{0, 101}, {1, 100}, {100, 1}, {101, 0}, {huge, 2}, {2, huge}}};
  for (const auto& [offset, length] : outside) {
    INFO(offset << "+" << length);
    const error e = failure_of(region.window_part<access::remote_read>(offset, length));
    CHECK(e == error_kind::invalid_input);
    CHECK_THAT(e.message(), Catch::Contains("memory_region::window_part"));
  }
  CHECK_THAT(failure_of(region.window_part<access::remote_read>(90, 20)).message(),
             Catch::Contains("20") && Catch::Contains("10"));
}

TEST_CASE("a window shows memory at the address that it was registered with") {
  const testbed bed;
  connected_pair pair = connect(bed);
  struct alignas(4096) page {
    std::array<std::byte, 4096> bytes{};
  };
  const auto memory = std::make_unique<page>();
  constexpr std::uint64_t start = std::uint64_t{1} << 40;
  const auto region = must(register_memory_at < access::local_write |
                           access::window_bind > (bed.domain, start, memory->bytes));
  auto window = window_of<type_2>(bed.domain);
  if (!window) return;
  const auto far = bind(pair.right, *window, must(region.window_part<both_ways>(100, 64)));
  CHECK(far.address() == start + 100);
  buffer<> source(bed.domain, pattern(64, 15));
  CHECK(write(bed, pair.left, far, source) == work_status::success);
  CHECK(std::equal(source.bytes().begin(), source.bytes().end(), memory->bytes.begin() + 100));
}

TEST_CASE("a window and a region of different domains are refused before the device is asked") {
  for_each_type([]<memory_window_type Type>() {
    const testbed bed;
    const auto elsewhere = must(protection_domain::allocate(bed.context));
    connected_pair pair = connect(bed);
    shown_memory memory(bed.domain, 64);
    auto window = window_of<Type>(elsewhere);
    if (!window) return;
    const remote_key before = window->rkey();
    const error e =
        failure_of(pair.right.post_bind(*window, part_of<both_ways>(memory, 0, 64), {.id = 1}));
    CHECK(e == error_kind::invalid_input);
    CHECK(e.native_errno() == 0);
    CHECK_THAT(e.message(), Catch::Contains("different protection domains"));
    CHECK(window->rkey() == before);
    CHECK(count_within_a_moment(bed.right_queue) == 0);
  });
}

TEST_CASE("a bind by a queue pair of another domain fails") {
  const testbed bed;
  const auto elsewhere = must(protection_domain::allocate(bed.context));
  connected_pair pair = connect(bed);
  shown_memory memory(elsewhere, 64);
  auto window = window_of<type_2>(elsewhere);  // not every device looks at that for type 1
  if (!window) return;
  must(pair.right.post_bind(*window, part_of<both_ways>(memory, 0, 64), {.id = 1}));
  const work_error refused = failure_of(take_one(bed.right_queue).get());
  CHECK(refused.status() == work_status::memory_window_bind_error);
  CHECK_THAT(refused.message(), Catch::Contains("of one protection domain"));
}

TEST_CASE("a bind to a region that was not registered for it fails, whoever vouched for it") {
  for_each_type([]<memory_window_type Type>() {
    const testbed bed;
    std::vector<std::byte> bytes(64);
    const auto without_bind = must(register_memory<access::local_write>(bed.domain, bytes));
    const auto without_write = must(register_memory<access::window_bind>(bed.domain, bytes));
    for (ibv_mr* const region : {without_bind.native_handle(), without_write.native_handle()}) {
      connected_pair pair = connect(bed);
      auto window = window_of<Type>(bed.domain);
      if (!window) return;
      const auto part = window_part<access::remote_write>::from_native(
          region, reinterpret_cast<std::uintptr_t>(bytes.data()), 64);
      must(pair.right.post_bind(*window, part, {.id = 1}));
      const work_completion refused = take_one(bed.right_queue);
      CHECK(refused.wr_id() == 1);
      CHECK(status_of(refused) == work_status::memory_window_bind_error);
      wait_for_error_state(pair.right);
    }
  });
}

TEST_CASE("a window of type 2 is not bound to no bytes") {
  const testbed bed;
  connected_pair pair = connect(bed);
  shown_memory memory(bed.domain, 64);
  auto window = window_of<type_2>(bed.domain);
  if (!window) return;
  const error e =
      failure_of(pair.right.post_bind(*window, part_of<both_ways>(memory, 0, 0), {.id = 1}));
  CHECK(e == error_kind::invalid_input);
  CHECK(e.native_errno() == 0);
  CHECK_THAT(e.message(),
             Catch::Contains("bind memory window") && Catch::Contains("invalidating its rkey"));
}

TEST_CASE("what the driver refuses a bind with is told, and the window is as it was") {
  for_each_type([]<memory_window_type Type>() {
    const testbed bed;
    connected_pair pair = connect(bed);
    shown_memory memory(bed.domain, 64);
    auto window = window_of<Type>(bed.domain);
    if (!window) return;
    const auto part = part_of<both_ways>(memory, 0, 64);
    const remote_key before = window->rkey();
    ibv_context_ops& driver = bed.context.native_handle()->ops;
    for (const auto& [errnum, kind] :
         {std::pair{ENOMEM, error_kind::would_block}, std::pair{EINVAL, error_kind::invalid_input},
          std::pair{EOPNOTSUPP, error_kind::not_supported}}) {
      next_errno = errnum;
      const replaced bind_fails(driver.bind_mw, &fail_to_bind);
      const replaced post_fails(driver.post_send, &fail_to_post);
      const error e = failure_of(pair.right.post_bind(*window, part, {.id = 1}));
      CHECK(e == kind);
      CHECK(e.native_errno() == errnum);
      CHECK(e.operation() ==
            std::string(Type == type_1 ? "ibv_bind_mw" : "ibv_post_send (bind memory window)"));
      CHECK(window->rkey() == before);
    }
    bind(pair.right, *window, part);
  });
}

TEST_CASE("a bind that fails, and one behind it, tell so") {
  for_each_type([]<memory_window_type Type>() {
    const testbed bed;
    connected_pair pair = connect(bed);
    shown_memory memory(bed.domain, 64);
    auto first = window_of<Type>(bed.domain);
    auto second = window_of<Type>(bed.domain);
    if (!first || !second) return;
    const auto part = part_of<both_ways>(memory, 0, 64);
    const failing_device fails("send-completion=mw-bind-err");
    must(pair.right.post_bind(*first, part, {.id = 1}));
    must(pair.right.post_bind(*second, part, {.id = 2}));
    CHECK(status_of(take_one(bed.right_queue)) == work_status::memory_window_bind_error);
    CHECK(status_of(take_one(bed.right_queue)) == work_status::flushed);
  });
}

TEST_CASE("where there are no windows of a type, the error says which there are") {
  const testbed bed;
  constexpr unsigned first = IBV_DEVICE_MEM_WINDOW;
  constexpr unsigned second = IBV_DEVICE_MEM_WINDOW_TYPE_2A | IBV_DEVICE_MEM_WINDOW_TYPE_2B;
  ibv_context_ops& driver = bed.context.native_handle()->ops;
  const auto refusal = [&](auto create, unsigned claimed_flags, int errnum) {
    next_errno = errnum;
    const replaced fails(driver.alloc_mw, &fail_to_allocate);
    const claimed_capabilities claims(first | second, claimed_flags);
    const error e = failure_of(create(bed.domain));
    CHECK(e.native_errno() == errnum);
    CHECK(e.operation() == std::string("ibv_alloc_mw"));
    return e;
  };
  for (const int errnum : {EOPNOTSUPP, EINVAL, ENOSYS}) {
    INFO(errnum);
    const error none = refusal(first_type::create, 0, errnum);
    CHECK(none == error_kind::not_supported);
    CHECK_THAT(none.message(), Catch::Contains("no memory windows: register a region"));
    const error only_first = refusal(second_type::create, first, errnum);
    CHECK(only_first == error_kind::not_supported);
    CHECK_THAT(only_first.message(), Catch::Contains("of type 1 only"));
    const error only_second = refusal(first_type::create, second, errnum);
    CHECK(only_second == error_kind::not_supported);
    CHECK_THAT(only_second.message(), Catch::Contains("of type 2 only"));
  }
  const error empty_claim = refusal(second_type::create, first | second, EOPNOTSUPP);
  CHECK(empty_claim == error_kind::not_supported);
  CHECK_THAT(empty_claim.message(), Catch::Contains("its driver has none"));
  // What is not about the type is told as it came.
  CHECK(refusal(second_type::create, first | second, EINVAL) == error_kind::invalid_input);
  CHECK(refusal(second_type::create, 0, ENOMEM) == error_kind::resource_exhausted);

  // As libibverbs has it for a driver without any.
  const replaced missing(driver.alloc_mw, decltype(driver.alloc_mw){nullptr});
  CHECK(failure_of(first_type::create(bed.domain)) == error_kind::not_supported);
}

TEST_CASE("a window that cannot be released is reported") {
  const testbed bed;
  auto window = window_of<type_1>(bed.domain);
  if (!window) return;
  ibv_mw* const native = window->native_handle();
  reports.clear();
  const destroy_failure_handler before = set_destroy_failure_handler(
      [](const error& cause) noexcept { reports.push_back(cause.message()); });
  {
    next_errno = EBUSY;
    const replaced fails(bed.context.native_handle()->ops.dealloc_mw, &fail_to_deallocate);
    window.reset();
  }
  set_destroy_failure_handler(before);
  REQUIRE(reports.size() == 1);
  CHECK_THAT(reports.front(), Catch::Contains("ibv_dealloc_mw") && Catch::Contains("EBUSY") &&
                                  Catch::Contains("peers may have access"));
  CHECK(ibv_dealloc_mw(native) == 0);
}

TEST_CASE("a window keeps its protection domain and context alive, and can be moved") {
  const release_watch watch;
  auto window = [] {
    const context opened = must(open_device(device_name()));
    return window_of<type_2>(must(protection_domain::allocate(opened)));
  }();
  if (!window) return;
  CHECK_NOTHROW(must(window->protection_domain().context().query_device()));
  ibv_mw* const native = window->native_handle();
  second_type moved = std::move(*window);
  CHECK(window->native_handle() == nullptr);
  CHECK(moved.native_handle() == native);
  auto other = window_of<type_2>(moved.protection_domain());
  *other = std::move(moved);
  CHECK(other->native_handle() == native);
}

TEST_CASE("a window prints what it is") {
  const testbed bed;
  auto window = window_of<type_2>(bed.domain);
  if (!window) return;
  std::ostringstream text;
  text << *window;
  CHECK_THAT(text.str(), Catch::StartsWith("memory window of type 2, rkey 0x") &&
                             Catch::Contains(device_name()));
  const second_type moved = std::move(*window);
  text.str({});
  text << *window;
  CHECK(text.str() == "memory window of type 2, moved from");
}
