// SPDX-License-Identifier: Apache-2.0
/// \file
/// Objects that were moved from or deregistered. Calls that need the content of such an object fail
/// with an error message.

#include "datagrams.hpp"

#include <array>
#include <sstream>
#include <string>
#include <utility>

using namespace verbspp;
using namespace verbspp::test;

namespace {

/// Moves the content out of the object, and returns the object in its moved-from state.
template <class Object>
[[nodiscard]] const Object& emptied(Object& object) {
  const Object taken(std::move(object));
  return object;
}

template <class Outcome>
void check_refused(Outcome outcome, const char* hint, int line = __builtin_LINE()) {
  const auto e = failure_of(std::move(outcome), line);
  INFO("line " << line << ": " << e);
  CHECK(e.kind() == error_kind::invalid_input);
  CHECK_THAT(e.message(), Catch::Contains(hint));
}

constexpr const char* no_region = "this region or buffer was moved from, or deregistered";
constexpr const char* no_context = "this context was moved from";
constexpr const char* no_domain = "this protection domain was moved from";

template <class Object>
std::string printed(const Object& object) {
  std::ostringstream out;
  out << object;
  return out.str();
}

constexpr access_flags with_windows = all_rights | access::window_bind;

}  // namespace

TEST_CASE("a region that was moved from or deregistered is refused with a message") {
  const testbed bed;
  std::array<std::byte, 64> memory{};
  const auto check = [&](const memory_region<with_windows>& gone) {
    check_refused(gone.gather(), no_region);
    check_refused(gone.gather(0, 0), no_region);
    check_refused(gone.gather(0, 8), no_region);
    check_refused(gone.scatter(), no_region);
    check_refused(gone.scatter(8, 8), no_region);
    check_refused(gone.remote(), no_region);
    check_refused(gone.window_part<access::remote_read>(0, 0), no_region);
    CHECK(gone.rkey().value() == 0);
    CHECK(printed(gone) == "memory region, moved from or deregistered");
  };
  auto moved = must(register_memory<with_windows>(bed.domain, memory));
  check(emptied(moved));
  auto deregistered = must(register_memory<with_windows>(bed.domain, memory));
  auto& same = deregistered;
  must(std::move(deregistered).deregister());
  check(same);
  check_refused(std::move(same).deregister(), no_region);
  check_refused(std::move(same).change_rights<access::local_read>(), no_region);
}

TEST_CASE("a buffer that was moved from or released is refused with a message") {
  const testbed bed;
  using buffer_type = registered_buffer<all_rights, std::uint64_t>;
  const auto check = [&](buffer_type& gone) {
    check_refused(gone.gather(), no_region);
    check_refused(gone.gather(0, 0), no_region);
    check_refused(gone.scatter(), no_region);
    check_refused(gone.scatter(0, 1), no_region);
    check_refused(gone.remote(), no_region);
    CHECK(printed(gone) == "memory region, moved from or deregistered");
    CHECK(gone.data() == nullptr);
    CHECK(gone.size() == 0);
    CHECK(gone.begin() == gone.end());
    CHECK(gone.pages() == page_kind::normal);
    CHECK(gone.native_handle() == nullptr);
    CHECK(gone.region().length() == 0);
    CHECK(gone.region().native_handle() == nullptr);
    CHECK(gone.protection_domain().native_handle() == nullptr);
    check_refused(gone.region().gather(), no_region);
  };
  auto moved = must(buffer_type::allocate(bed.domain, 8));
  static_cast<void>(emptied(moved));
  check(moved);
  auto released = must(buffer_type::allocate(bed.domain, 8));
  auto& same = released;
  must(std::move(released).release());
  check(same);
  check_refused(std::move(same).release(), no_region);
}

TEST_CASE("a moved-from memory window is refused with a message") {
  const testbed bed;
  auto pair = connect(bed);
  std::array<std::byte, 64> memory{};
  const auto region = must(register_memory<with_windows>(bed.domain, memory));
  const auto part = must(region.window_part<access::remote_read>(0, 8));
  const auto check = [&](auto type) {
    auto window = memory_window<type()>::create(bed.domain);
    if (window.has_error()) return;
    auto& gone = window.assume_value();
    static_cast<void>(emptied(gone));
    CHECK(gone.rkey().value() == 0);
    CHECK_THAT(printed(gone), Catch::EndsWith("moved from"));
    check_refused(pair.right.post_bind(gone, part), "this memory window was moved from");
    CHECK(failure_of(pair.right.post_bind(gone, part)).operation() ==
          std::string(type() == memory_window_type::type_1 ? "ibv_bind_mw"
                                                           : "ibv_post_send (bind memory window)"));
    if constexpr (type() == memory_window_type::type_2)
      check_refused(pair.right.post_batch<1>(
                        [&](auto& batch) { static_cast<void>(batch.post_bind(gone, part)); }),
                    "this memory window was moved from");
  };
  using enum memory_window_type;
  check(std::integral_constant<memory_window_type, type_1>());
  check(std::integral_constant<memory_window_type, type_2>());
}

TEST_CASE("a moved-from context is refused with a message") {
  const testbed bed;
  context moved = bed.context;
  const context& gone = emptied(moved);
  CHECK(gone.native_handle() == nullptr);
  CHECK(gone.async_event_file_descriptor() == -1);
  CHECK(gone.device_name() == std::string());
  CHECK(gone != bed.context);
  check_refused(gone.query_device(), no_context);
  check_refused(gone.device_clock_khz(), no_context);
  check_refused(gone.query_port(1), no_context);
  check_refused(gone.first_active_port(), no_context);
  check_refused(gone.query_gid(1, 0), no_context);
  check_refused(gone.query_gid_table(1), no_context);
  check_refused(gone.poll_async_event(), no_context);
  check_refused(gone.wait_async_event(moment), no_context);
  check_refused(on_demand_paging::query(gone), no_context);
  check_refused(protection_domain::allocate(gone), no_context);
  check_refused(thread_domain::create(gone), no_context);
  check_refused(completion_queue::create(gone, 4), no_context);
  check_refused(completion_channel::create(gone), no_context);
}

TEST_CASE("a moved-from protection domain is refused with a message") {
  const testbed bed;
  protection_domain moved = bed.domain;
  const protection_domain& gone = emptied(moved);
  CHECK(gone.native_handle() == nullptr);
  CHECK(gone.context().native_handle() == nullptr);
  CHECK(gone.below().native_handle() == nullptr);
  std::array<std::byte, 64> memory{};
  check_refused(register_memory<all_rights>(gone, memory), no_domain);
  check_refused(registered_buffer<>::allocate(gone, 8), no_domain);
  check_refused(memory_window<memory_window_type::type_2>::create(gone), no_domain);
  check_refused(shared_receive_queue::create(gone, 4), no_domain);
  check_refused(register_dmabuf(gone, {.file_descriptor = 0, .length = 4096}), no_domain);
  const connected_datagram pair = left_of(bed);
  const path way = must(pair.path_to(pair.endpoint()));
  check_refused(address_handle::create(gone, bed.port.number(), way), no_domain);
  check_refused(build_queue_pair<transport::rc>()
                    .protection_domain(gone)
                    .completion_queue(bed.left_queue)
                    .access(all_rights)
                    .build(),
                no_domain);
  auto region = must(register_memory<all_rights>(bed.domain, memory));
  check_refused(std::move(region).change_protection_domain(gone), no_domain);
}

TEST_CASE("a queue pair is not built with queues that were moved from") {
  const testbed bed;
  completion_queue moved = bed.left_queue;
  const completion_queue& gone = emptied(moved);
  constexpr const char* no_queue = "this completion queue was moved from";
  const auto builder =
      build_queue_pair<transport::rc>().protection_domain(bed.domain).access(all_rights);
  check_refused(builder.completion_queue(gone).build(), no_queue);
  check_refused(builder.completion_queue(gone).create(), no_queue);
  const auto with_sends = builder.send_completion_queue(bed.left_queue);
  check_refused(with_sends.receive_completion_queue(gone).build(), no_queue);
  check_refused(
      builder.send_completion_queue(gone).receive_completion_queue(bed.left_queue).build(),
      no_queue);
  connected existing = connect_to_itself(must(bed.left().build()));
  check_refused(builder.completion_queue(gone).from_native<queue_pair_state::ready_to_send>(
                    existing.native_handle(), ownership::borrowed),
                no_queue);
  if (bed.limits.max_srq <= 0) return;
  shared_receive_queue receives = must(shared_receive_queue::create(bed.domain, 4));
  const shared_receive_queue& taken = emptied(receives);
  check_refused(builder.completion_queue(bed.left_queue).shared_receive_queue(taken).build(),
                "this shared receive queue was moved from");
}

TEST_CASE("a moved-from device cannot be opened, and a moved-from list has no devices") {
  device moved = must(must(device_list::query()).find(device_name()));
  const device& gone = emptied(moved);
  CHECK(gone.name() == std::string());
  CHECK(gone.node_type() == IBV_NODE_UNKNOWN);
  CHECK(gone.transport_type() == IBV_TRANSPORT_UNKNOWN);
  check_refused(gone.open(), "this device was moved from");
  device_list list = must(device_list::query());
  check_refused(emptied(list).find(device_name()), "this list of devices was moved from");
}

TEST_CASE("the parents of a temporary object are returned by value") {
  const testbed bed;
  std::array<std::byte, 64> memory{};
  const auto& domain = must(register_memory<all_rights>(bed.domain, memory)).protection_domain();
  CHECK(domain == bed.domain);
  const auto& opened = must(protection_domain::allocate(bed.context)).context();
  CHECK(opened == bed.context);
  const auto& of_buffer = must(registered_buffer<>::allocate(bed.domain, 1)).protection_domain();
  CHECK(of_buffer == bed.domain);
}
