// SPDX-License-Identifier: Apache-2.0
/// \file
/// Assignment destroys the previous object. Moved-from objects report that they are empty.

#include "datagrams.hpp"
#include "failing_verb.hpp"

#include <array>
#include <memory>
#include <utility>

using namespace verbspp;
using namespace verbspp::test;

namespace {

/// Performs `object = std::move(object)`, written so that no compiler warns about it.
template <class Object>
void assign_to_itself(Object& object) {
  Object& same = object;
  object = std::move(same);
}

/// Moves the content out of the object, and returns the object in its moved-from state.
template <class Object>
[[nodiscard]] const Object& emptied(Object& object) {
  const Object taken(std::move(object));
  return object;
}

/// Checks that assignment immediately destroys the previous object and no other object, and that
/// self-assignment changes nothing.
template <class Make>
void check_assignment(Make make) {
  auto left = make();
  auto right = make();
  auto* const kept = right.native_handle();
  const int objects = live_objects();
  left = std::move(right);
  CHECK(live_objects() == objects - 1);
  CHECK(left.native_handle() == kept);
  CHECK(right.native_handle() == nullptr);
  assign_to_itself(left);
  CHECK(live_objects() == objects - 1);
  CHECK(left.native_handle() == kept);
  right = make();
  CHECK(live_objects() == objects);
  left = std::move(right);
  left = make();
  CHECK(live_objects() == objects - 1);
}

}  // namespace

TEST_CASE("assignment destroys the previous object") {
  const testbed bed;
  std::array<std::byte, 64> memory{};
  SECTION("memory regions") {
    check_assignment([&] { return must(register_memory<all_rights>(bed.domain, memory)); });
  }
  SECTION("registered buffers") {
    check_assignment([&] { return must(registered_buffer<all_rights>::allocate(bed.domain, 64)); });
  }
  SECTION("address handles") {
    connected_datagram pair = left_of(bed);
    check_assignment([&] { return must(pair.address_of(pair.endpoint())); });
  }
  SECTION("protection domains") {
    check_assignment([&] { return must(protection_domain::allocate(bed.context)); });
  }
  SECTION("contexts") {
    check_assignment([] { return must(open_device(device_name())); });
  }
}

TEST_CASE_METHOD(two_queue_pairs,
                 "assigning to a region ends the peer's access to the previous memory") {
  const buffer<> source(bed.domain, pattern(32, 1));
  std::array<std::byte, 32> before{};
  std::array<std::byte, 32> after{};
  auto region = must(register_memory<all_rights>(bed.domain, before));
  const auto former = must(region.remote());
  auto fresh = must(register_memory<all_rights>(bed.domain, after));
  region = std::move(fresh);
  must(left.post_write({.elements = source.gather(), .remote = former}, {.id = 1}));
  CHECK(status_of(take_one(bed.left_queue)) == work_status::remote_access_error);
}

TEST_CASE("assigning to a region destroys the previous one before its domain and context") {
  const release_watch watch;
  std::array<std::byte, 64> memory{};
  const auto region = [&] {
    const context opened = must(open_device(device_name()));
    return must(register_memory<all_rights>(must(protection_domain::allocate(opened)), memory));
  };
  const int objects = live_objects();
  {
    auto kept = region();
    kept = region();
    CHECK(live_objects() == objects + 3);
    auto* const domain = kept.native_handle()->pd;
    kept = must(register_memory<all_rights>(kept.protection_domain(), memory));
    CHECK(kept.native_handle()->pd == domain);
    CHECK(live_objects() == objects + 3);
  }
  CHECK(live_objects() == objects);
}

TEST_CASE("assigning to a buffer deregisters the previous memory before it frees it") {
  const testbed bed;
  auto first = must(registered_buffer<>::allocate(bed.domain, 100));
  const auto second = must(registered_buffer<>::allocate(bed.domain, 100));
  std::byte* const place = first.data();
  std::byte seen{};
  place[0] = std::byte{7};
  before_next_dereg_mr([&] { seen = place[0]; });  // the memory must still be allocated here
  first = must(registered_buffer<>::allocate(bed.domain, 200));
  CHECK(seen == std::byte{7});
  CHECK(first.size() == 200);
  assign_to_itself(first);
  CHECK(first.size() == 200);
  first[199] = std::byte{1};
}

TEST_CASE("moved-from objects report that they are empty") {
  const testbed bed;
  std::array<std::byte, 64> memory{};
  {
    auto region = must(register_memory<all_rights>(bed.domain, memory));
    const auto& empty = emptied(region);
    CHECK(empty.length() == 0);
    CHECK(empty.start() == 0);
    CHECK(empty.lkey().value() == 0);
    CHECK(empty.native_handle() == nullptr);
    CHECK(empty.bytes().empty());
  }
  {
    auto buffer =
        must(registered_buffer<all_rights>::allocate(bed.domain, 64, {.huge_pages = true}));
    const auto& empty = emptied(buffer);
    CHECK(empty.size() == 0);
    CHECK(empty.data() == nullptr);
    CHECK(empty.begin() == empty.end());
    CHECK(empty.pages() == page_kind::normal);
    CHECK(empty.native_handle() == nullptr);
    CHECK(empty.region().length() == 0);
  }
  {
    gid_table table = must(bed.context.query_gid_table(bed.port.number()));
    REQUIRE_FALSE(table.empty());
    const gid_table& empty = emptied(table);
    CHECK(empty.empty());
    CHECK(empty.size() == 0);
    CHECK(empty.begin() == empty.end());
    CHECK(empty.entries().empty());
    table = must(bed.context.query_gid_table(bed.port.number()));
    assign_to_itself(table);
    CHECK(table.size() == static_cast<std::size_t>(table.end() - table.begin()));
    CHECK_FALSE(table.empty());
  }
  {
    device_list devices = must(device_list::query());
    device one = devices[0];
    const device_list& empty = emptied(devices);
    CHECK(empty.empty());
    CHECK(empty.begin() == empty.end());
    CHECK(failure_of(empty.find(device_name())) == error_kind::invalid_input);
    CHECK(emptied(one).native_handle() == nullptr);
  }
}
