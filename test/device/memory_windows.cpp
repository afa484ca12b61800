// SPDX-License-Identifier: Apache-2.0
/// \file
/// Memory windows: which access they grant, and how they can be closed.
#include "memory_windows.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace verbspp::test::windows {

TEST_CASE("a window grants peers access to a part of memory that itself grants none") {
  for_each_type([]<memory_window_type Type>() {
    const testbed bed;
    connected_pair pair = connect(bed);
    shown_memory memory(bed.domain, pattern(256, 1));
    auto window = window_of<Type>(bed.domain);
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

TEST_CASE("a window can grant atomic access") {
  for_each_type([]<memory_window_type Type>() {
    const testbed bed;
    if (bed.limits.atomic_cap == IBV_ATOMIC_NONE) {
      SKIP("the device has no atomic operations");
    }
    constexpr access_flags rights = all_rights | access::remote_atomic;
    connected_pair pair = connect(must(bed.builder(bed.left_queue).access(rights).build()),
                                  must(bed.builder(bed.right_queue).access(rights).build()));
    shown_memory memory(bed.domain, 64);
    auto window = window_of<Type>(bed.domain);
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

TEST_CASE("a window that was bound for reads refuses writes") {
  for_each_type([]<memory_window_type Type>() {
    const testbed bed;
    connected_pair pair = connect(bed);
    shown_memory memory(bed.domain, 64);
    auto window = window_of<Type>(bed.domain);
    const auto far = bind(pair.right, *window, part_of<access::remote_read>(memory, 0, 64));
    buffer<> source(bed.domain, pattern(64, 3));
    CHECK(write(bed, pair.left, claimed(far.address(), 64, far.rkey()), source) ==
          work_status::remote_access_error);
    CHECK(memory.bytes() == std::vector<std::byte>(64));
  });
}

TEST_CASE("access outside of a window is refused") {
  for_each_type([]<memory_window_type Type>() {
    const testbed bed;
    if (device_name().starts_with("rxe")) {
      SKIP("Linux's software driver checks the bounds of the region, not those of the window");
    }
    shown_memory memory(bed.domain, 256);
    const std::uint64_t start = reinterpret_cast<std::uintptr_t>(memory.bytes().data()) + 64;
    const std::array<std::pair<std::uint64_t, std::uint64_t>, 4> outside{
        {{start, 129}, {start - 1, 2}, {start + 128, 1}, {start + 127, 2}}};
    for (const auto& [address, length] : outside) {
      INFO(address - start << "+" << length);
      connected_pair pair = connect(bed);
      auto window = window_of<Type>(bed.domain);
      const auto far = bind(pair.right, *window, part_of<both_ways>(memory, 64, 128));
      REQUIRE(far.address() == start);
      buffer<> source(bed.domain, pattern(129, 4));
      CHECK(write(bed, pair.left, claimed(address, length, far.rkey()), source) ==
            work_status::remote_access_error);
    }
    CHECK(memory.bytes() == std::vector<std::byte>(256));
  });
}

TEST_CASE_METHOD(two_queue_pairs,
                 "the next bind of a type 1 window invalidates its previous handle") {
  shown_memory memory(bed.domain, 256);
  auto window = window_of<type_1>(bed.domain);
  const auto first = bind(pair.right, *window, part_of<both_ways>(memory, 0, 64));
  const auto second = bind(pair.right, *window, part_of<both_ways>(memory, 64, 64));
  buffer<> source(bed.domain, pattern(64, 5));
  CHECK(write(bed, pair.left, second, source) == work_status::success);
  CHECK(write(bed, pair.left, first, source) == work_status::remote_access_error);
  CHECK(memory.front(64) == std::vector<std::byte>(64));
}

TEST_CASE_METHOD(two_queue_pairs,
                 "the peer of any queue pair in the domain of a type 1 window can access it") {
  shown_memory memory(bed.domain, 64);
  auto window = window_of<type_1>(bed.domain);
  const auto far = bind(pair.right, *window, part_of<both_ways>(memory, 0, 64));
  CHECK(write_by_another(bed, far) == work_status::success);
  CHECK(memory.bytes() == written_by_another(64));
}

TEST_CASE_METHOD(two_queue_pairs,
                 "binding a type 1 window to zero bytes closes it and releases the region") {
  std::vector<std::byte> bytes(64);
  auto region =
      must(register_memory < access::local_write | access::window_bind > (bed.domain, bytes));
  auto window = window_of<type_1>(bed.domain);
  const auto far = bind(pair.right, *window, must(region.window_part<both_ways>(0, 64)));
  const auto closed = bind(pair.right, *window, must(region.window_part<both_ways>(0, 0)));
  CHECK(write_by_another(bed, far) == work_status::remote_access_error);
  CHECK(write_by_another(bed, claimed(far.address(), 64, closed.rkey())) ==
        work_status::remote_access_error);
  CHECK(bytes == std::vector<std::byte>(64));
  CHECK_NOTHROW(must(std::move(region).deregister()));
}

TEST_CASE_METHOD(two_queue_pairs,
                 "assigning to a window closes the previous one and releases its region") {
  std::vector<std::byte> bytes(64);
  auto region =
      must(register_memory < access::local_write | access::window_bind > (bed.domain, bytes));
  auto window = window_of<type_1>(bed.domain);
  auto fresh = window_of<type_1>(bed.domain);
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

TEST_CASE_METHOD(two_queue_pairs, "a type 2 window that its owner has closed can be bound again") {
  shown_memory memory(bed.domain, 128);
  auto window = window_of<type_2>(bed.domain);
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

TEST_CASE_METHOD(two_queue_pairs,
                 "a type 2 window can be closed by a message of the peer that contains its rkey") {
  shown_memory memory(bed.domain, 64);
  buffer<> inbox(bed.domain, 16);
  buffer<> source(bed.domain, pattern(64, 7));
  auto window = window_of<type_2>(bed.domain);
  const auto far = bind(pair.right, *window, part_of<both_ways>(memory, 0, 64));
  must(pair.right.post_receive({.elements = inbox.scatter()}, {.id = 1}));
  must(pair.left.post_send_with_invalidate({.elements = source.gather(0, 16), .rkey = far.rkey()},
                                           {.id = 2}));
  take_success(bed.left_queue, 2);
  const completed_work received = take_success(bed.right_queue, 1);
  CHECK(received.byte_count() == 16U);
  // Linux's software driver sets a different flag in the completion.
  if (device_name().starts_with("rxe") && !received.invalidated_rkey())
    WARN("the completion does not report the invalidated rkey");
  else
    CHECK(received.invalidated_rkey() == far.rkey());
  const auto again = bind(pair.right, *window, part_of<both_ways>(memory, 0, 64));
  CHECK(write(bed, pair.left, again, source) == work_status::success);
  CHECK(write(bed, pair.left, far, source) == work_status::remote_access_error);
}

TEST_CASE_METHOD(two_queue_pairs,
                 "only the peer of the queue pair that bound a type 2 window can access it") {
  shown_memory memory(bed.domain, 64);
  auto window = window_of<type_2>(bed.domain);
  const auto far = bind(pair.right, *window, part_of<both_ways>(memory, 0, 64));
  CHECK(write_by_another(bed, far) == work_status::remote_access_error);
  CHECK(memory.bytes() == std::vector<std::byte>(64));
  buffer<> source(bed.domain, pattern(64, 8));
  CHECK(write(bed, pair.left, far, source) == work_status::success);
}

TEST_CASE_METHOD(two_queue_pairs,
                 "a type 2 window that is still bound cannot be bound by another queue pair") {
  connected_pair other = connect(bed);
  shown_memory memory(bed.domain, 64);
  auto window = window_of<type_2>(bed.domain);
  bind(pair.right, *window, part_of<both_ways>(memory, 0, 64));
  must(other.right.post_bind(*window, part_of<both_ways>(memory, 0, 32), {.id = 1}));
  const work_error refused = failure_of(take_one(bed.right_queue).get());
  CHECK(refused.status() == work_status::memory_window_bind_error);
  CHECK(refused.error_class() == work_error_class::local_programming);
  CHECK_THAT(refused.message(), Catch::Contains("invalidated since its last bind"));
  wait_for_error_state(other.right);
}

TEST_CASE("a window that is destroyed is closed") {
  for_each_type([]<memory_window_type Type>() {
    const testbed bed;
    connected_pair pair = connect(bed);
    shown_memory memory(bed.domain, 64);
    auto window = window_of<Type>(bed.domain);
    const auto far = bind(pair.right, *window, part_of<both_ways>(memory, 0, 64));
    window.reset();
    buffer<> source(bed.domain, pattern(64, 9));
    CHECK(write(bed, pair.left, far, source) == work_status::remote_access_error);
    CHECK(memory.bytes() == std::vector<std::byte>(64));
  });
}

TEST_CASE("a region to which a window is bound cannot be destroyed and reports the reason") {
  for_each_type([]<memory_window_type Type>() {
    const testbed bed;
    connected_pair pair = connect(bed);
    std::vector<std::byte> bytes(64);
    auto window = window_of<Type>(bed.domain);
    const auto refused = [](error_kind kind) {
      // Linux's software driver returns EINVAL.
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
                                Catch::Contains("a memory window is still bound to it"));

    // The destructor of a region reports the failure to the handler.
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
                                    Catch::Contains("a memory window is still bound to it"));
    window.reset();
    CHECK(ibv_dereg_mr(dropped) == 0);
  });
}

TEST_CASE("a window keeps its protection domain and context alive and can be moved") {
  const release_watch watch;
  auto window = [] {
    const context opened = must(open_device(device_name()));
    return window_of<type_2>(must(protection_domain::allocate(opened)));
  }();
  CHECK_NOTHROW(must(window->protection_domain().context().query_device()));
  ibv_mw* const native = window->native_handle();
  second_type moved = std::move(*window);
  CHECK(window->native_handle() == nullptr);
  CHECK(moved.native_handle() == native);
  auto other = window_of<type_2>(moved.protection_domain());
  *other = std::move(moved);
  CHECK(other->native_handle() == native);
}

TEST_CASE("a window prints its properties") {
  const testbed bed;
  auto window = window_of<type_2>(bed.domain);
  std::ostringstream text;
  text << *window;
  CHECK_THAT(text.str(), Catch::StartsWith("memory window of type 2, rkey 0x") &&
                             Catch::Contains(device_name()));
  const second_type moved = std::move(*window);
  text.str({});
  text << *window;
  CHECK(text.str() == "memory window of type 2, moved from");
}

}  // namespace verbspp::test::windows
