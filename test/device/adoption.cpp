// SPDX-License-Identifier: Apache-2.0
/// \file
/// Objects that C code created. The library can use them, but it destroys only those that it
/// owns.

#include "datagrams.hpp"
#include "failing_verb.hpp"

#include <fcntl.h>

#include <array>
#include <memory>
#include <string>
#include <utility>

using namespace verbspp;
using namespace verbspp::test;

namespace {

/// Opens the device under test with the calls that a C program would use.
[[nodiscard]] ibv_context* open_in_c() {
  int count = 0;
  ibv_device** const list = ibv_get_device_list(&count);
  REQUIRE(list != nullptr);
  ibv_context* opened = nullptr;
  for (int i = 0; i < count; ++i)
    if (device_name() == ibv_get_device_name(list[i])) opened = ibv_open_device(list[i]);
  ibv_free_device_list(list);
  REQUIRE(opened != nullptr);
  return opened;
}

[[nodiscard]] bool is_nonblocking(const ibv_context* opened) {
  return (::fcntl(opened->async_fd, F_GETFL) & O_NONBLOCK) != 0;
}

constexpr int c_rights = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;

}  // namespace

TEST_CASE("a borrowed context works and stays open") {
  const release_watch watch;
  ibv_context* const opened = open_in_c();
  const int objects = live_objects();
  {
    const context borrowed = must(context::from_native(opened, ownership::borrowed));
    CHECK(borrowed.native_handle() == opened);
    CHECK(borrowed.device_name() == device_name());
    const context again = must(context::from_native(opened, ownership::borrowed));
    CHECK(borrowed == again);
    // Two handles to the same context are equal, so objects that were created from either can be
    // used together.
    const protection_domain domain = must(protection_domain::allocate(borrowed));
    const completion_queue queue = must(completion_queue::create(again, 4));
    CHECK_NOTHROW(must(build_queue_pair<transport::rc>()
                           .protection_domain(domain)
                           .completion_queue(queue)
                           .access(all_rights)
                           .build()));
    CHECK_FALSE(is_nonblocking(opened));
    CHECK_FALSE(must(borrowed.poll_async_event()));
    CHECK_FALSE(must(borrowed.wait_async_event(moment)));
  }
  CHECK(live_objects() == objects);
  CHECK(ibv_close_device(opened) == 0);
}

TEST_CASE("an adopted context is closed, and a released context stays open") {
  const release_watch watch;
  const int objects = live_objects();
  {
    const context taken = must(context::from_native(open_in_c(), ownership::taken));
    CHECK(is_nonblocking(taken.native_handle()));
    CHECK(live_objects() == objects + 1);
  }
  CHECK(live_objects() == objects);

  context made = must(open_device(device_name()));
  ibv_context* native = made.native_handle();
  {
    const context copy = made;
    const error shared = failure_of(std::move(made).release());
    CHECK(shared == error_kind::busy);
    CHECK(made.native_handle() == native);  // `made` is unchanged
  }
  {
    const protection_domain child = must(protection_domain::allocate(made));
    CHECK(failure_of(std::move(made).release()) == error_kind::busy);
  }
  CHECK(must(std::move(made).release()) == native);
  CHECK(made.native_handle() == nullptr);  // NOLINT(bugprone-use-after-move)
  CHECK(failure_of(std::move(made).release()) == error_kind::invalid_input);
  CHECK(live_objects() == objects + 1);
  made = must(context::from_native(native, ownership::taken));
  CHECK_NOTHROW(must(made.query_device()));
}

TEST_CASE("a protection domain can be borrowed and adopted and released") {
  const release_watch watch;
  const context opened = must(open_device(device_name()));
  const int objects = live_objects();
  ibv_pd* const made = ibv_alloc_pd(opened.native_handle());
  REQUIRE(made != nullptr);
  std::array<std::byte, 64> memory{};
  {
    const auto borrowed = must(protection_domain::from_native(opened, made, ownership::borrowed));
    CHECK_NOTHROW(must(register_memory<all_rights>(borrowed, memory)));
  }
  CHECK(live_objects() == objects + 1);
  {
    auto taken = must(protection_domain::from_native(opened, made, ownership::taken));
    {
      const auto region = must(register_memory<all_rights>(taken, memory));
      CHECK(failure_of(std::move(taken).release()) == error_kind::busy);
    }
    CHECK(must(std::move(taken).release()) == made);
    CHECK(failure_of(std::move(taken).release()) == error_kind::invalid_input);
  }
  CHECK(live_objects() == objects + 1);
  static_cast<void>(must(protection_domain::from_native(opened, made, ownership::taken)));
  CHECK(live_objects() == objects);
}

TEST_CASE_METHOD(two_queue_pairs, "a registration can be borrowed and adopted and released") {
  const buffer<> source(bed.domain, pattern(32, 1));
  std::vector<std::byte> memory(32);
  using region_type = memory_region<all_rights>;
  // The macro `ibv_reg_mr` may call a function that the tests do not replace. Such a call would not
  // be counted.
  ibv_mr* const made = ibv_reg_mr_iova2(bed.domain.native_handle(), memory.data(), memory.size(),
                                        reinterpret_cast<std::uintptr_t>(memory.data()), c_rights);
  REQUIRE(made != nullptr);
  const int objects = live_objects();
  {
    auto borrowed = must(region_type::from_native(bed.domain, made, ownership::borrowed));
    CHECK(borrowed.lkey().value() == made->lkey);
    CHECK(borrowed.rkey().value() == made->rkey);
    CHECK(borrowed.bytes().data() == memory.data());
    must(left.post_write({.elements = source.gather(), .remote = must(borrowed.remote())},
                         {.id = 1}));
    take_success(bed.left_queue, 1);
    CHECK(memory == source.bytes());
    CHECK(failure_of(std::move(borrowed).change_rights<access::local_write>()) ==
          error_kind::invalid_input);
    CHECK_THAT(failure_of(std::move(borrowed).deregister()).message(),
               Catch::Contains("borrowed: only its owner"));
    CHECK(borrowed.length() == 32);  // `borrowed` is unchanged
    auto moved = std::move(borrowed);
  }
  CHECK(live_objects() == objects);
  {
    auto taken = must(region_type::from_native(bed.domain, made, ownership::taken, 0x7000));
    CHECK(taken.start() == 0x7000);
    CHECK(must(taken.gather(1, 2)).address() == 0x7001);
    CHECK(std::move(taken).release() == made);
    CHECK(taken.length() == 0);  // NOLINT(bugprone-use-after-move)
  }
  CHECK(live_objects() == objects);
  static_cast<void>(must(region_type::from_native(bed.domain, made, ownership::taken)));
  CHECK(live_objects() == objects - 1);
}

TEST_CASE("a memory window can be borrowed and adopted and released") {
  const testbed bed;
  using window_type = memory_window<memory_window_type::type_2>;
  ibv_mw* const made =
      supported(window_type::create(bed.domain), "memory windows of type 2").release();
  REQUIRE(made != nullptr);
  {
    const auto borrowed = must(window_type::from_native(bed.domain, made, ownership::borrowed));
    CHECK(borrowed.rkey().value() == made->rkey);
  }
  CHECK(failure_of(memory_window<memory_window_type::type_1>::from_native(
            bed.domain, made, ownership::borrowed)) == error_kind::invalid_input);
  auto taken = must(window_type::from_native(bed.domain, made, ownership::taken));
  CHECK(taken.native_handle() == made);
  CHECK(taken.rkey().value() == made->rkey);
}

TEST_CASE("an address handle can be borrowed and adopted and released") {
  const testbed bed;
  connected_datagram left = left_of(bed);
  connected_datagram right = right_of(bed);
  datagram_inbox box(bed, right, 1, 8);
  const int objects = live_objects();
  ibv_ah* const made = must(left.address_of(right.endpoint())).release();
  REQUIRE(made != nullptr);
  CHECK(live_objects() == objects + 1);
  {
    const auto borrowed = must(address_handle::from_native(bed.domain, made, ownership::borrowed));
    send(bed, left, borrowed.destination(right.number(), right.endpoint().qkey), pattern(8, 1));
  }
  CHECK(live_objects() == objects + 1);
  CHECK(copy_of(box.take().payload()) == pattern(8, 1));
  static_cast<void>(must(address_handle::from_native(bed.domain, made, ownership::taken)));
  CHECK(live_objects() == objects);
}

TEST_CASE("null pointers and objects of another parent are not adopted") {
  const testbed bed;
  const context other = must(open_device(device_name()));
  const auto foreign = must(protection_domain::allocate(other));
  std::array<std::byte, 64> memory{};
  const auto region = must(register_memory<all_rights>(bed.domain, memory));
  connected_datagram pair = left_of(bed);
  const address_handle way = must(pair.address_of(pair.endpoint()));
  const auto borrowed = ownership::borrowed;
  const auto check = [](const auto& outcome, const char* hint) {
    REQUIRE(outcome.has_error());
    CHECK(outcome.error() == error_kind::invalid_input);
    CHECK_THAT(outcome.error().message(), Catch::Contains(hint));
  };
  check(context::from_native(nullptr, borrowed), "the ibv_context is null");
  check(protection_domain::from_native(other, nullptr, borrowed), "the ibv_pd is null");
  check(protection_domain::from_native(other, bed.domain.native_handle(), borrowed),
        "belongs to another context");
  using region_type = memory_region<all_rights>;
  check(region_type::from_native(foreign, nullptr, borrowed), "the ibv_mr is null");
  check(region_type::from_native(foreign, region.native_handle(), borrowed),
        "registered in another protection domain");
  check(dmabuf_region<>::from_native(foreign, nullptr, borrowed, 0), "the ibv_mr is null");
  check(address_handle::from_native(foreign, nullptr, borrowed), "the ibv_ah is null");
  check(address_handle::from_native(foreign, way.native_handle(), borrowed),
        "belongs to another protection domain");
  using window_type = memory_window<memory_window_type::type_2>;
  check(window_type::from_native(foreign, nullptr, borrowed), "the ibv_mw is null");
  auto window = window_type::create(bed.domain);
  if (window.has_value())
    check(window_type::from_native(foreign, window.assume_value().native_handle(), borrowed),
          "belongs to another protection domain");
}
