// SPDX-License-Identifier: Apache-2.0
/// \file
/// Tests failures of libibverbs calls that release objects. A destructor reports such a failure
/// exactly once, and does not throw.

#include "datagrams.hpp"
#include "failing_calls.hpp"

using namespace verbspp;
using namespace verbspp::test;

namespace {

/// Destroys the object that `make` returns while the verb fails, once for each errno value and each
/// way to report it. Checks that the failure is reported. Then calls `destroy` with the native
/// object, so that nothing leaks.
template <class Make, class Destroy>
void check_reported(const char* verb, convention own, Make make, Destroy destroy) {
  const int objects = live_objects();
  for (const convention way : ways_of(own))
    for (const expected_failure& each : any_failures) {
      INFO(verb << ", errno " << each.errnum << ", convention " << static_cast<int>(way));
      if (way == convention::negative_errno && each.errnum == EPERM) continue;  // -EPERM is -1
      const report_collector collected;
      decltype(make().native_handle()) native = nullptr;
      {
        const failing_verb broken(verb, each.errnum, way);
        {
          const auto object = make();
          native = object.native_handle();
          errno = EXDEV;  // left over from an earlier call
        }
        CHECK(broken.calls() == 1);
      }
      REQUIRE(collected.reports().size() == 1);
      check_told(
          collected.reports().front(),
          way == convention::minus_one_alone ? expected_failure{EIO, error_kind::driver} : each,
          verb);
      CHECK(destroy(native) == 0);
      CHECK(live_objects() == objects);
    }
  // Without a failure, nothing is reported.
  const report_collector collected;
  static_cast<void>(make());
  CHECK(collected.reports().empty());
  CHECK(live_objects() == objects);
}

}  // namespace

TEST_CASE("a failed release is reported once, with its cause") {
  const testbed bed;
  constexpr auto returns_errno = convention::returns_errno;
  check_reported(
      "ibv_close_device", convention::minus_one, [] { return must(open_device(device_name())); },
      [](ibv_context* native) { return ibv_close_device(native); });
  check_reported(
      "ibv_dealloc_pd", returns_errno,
      [&] { return must(protection_domain::allocate(bed.context)); },
      [](ibv_pd* native) { return ibv_dealloc_pd(native); });
  std::vector<std::byte> memory(64);
  check_reported(
      "ibv_dereg_mr", returns_errno, [&] { return must(register_memory(bed.domain, memory)); },
      [](ibv_mr* native) { return ibv_dereg_mr(native); });
  check_reported(
      "ibv_destroy_comp_channel", returns_errno,
      [&] { return must(completion_channel::create(bed.context)); },
      [](ibv_comp_channel* native) { return ibv_destroy_comp_channel(native); });
  check_reported(
      "ibv_destroy_cq", returns_errno,
      [&] { return must(completion_queue::create(bed.context, 4)); },
      [](ibv_cq* native) { return ibv_destroy_cq(native); });
  check_reported(
      "ibv_destroy_qp", returns_errno, [&] { return must(bed.left().build()); },
      [](ibv_qp* native) { return ibv_destroy_qp(native); });
  const auto sender = left_of(bed);
  check_reported(
      "ibv_destroy_ah", returns_errno, [&] { return must(sender.address_of(sender.endpoint())); },
      [](ibv_ah* native) { return ibv_destroy_ah(native); });
  if (bed.limits.max_srq > 0)
    check_reported(
        "ibv_destroy_srq", returns_errno,
        [&] { return must(shared_receive_queue::create(bed.domain, 4)); },
        [](ibv_srq* native) { return ibv_destroy_srq(native); });
}

TEST_CASE("a memory window that cannot be released is reported") {
  const testbed bed;
  using window = memory_window<memory_window_type::type_2>;
  if (window::create(bed.domain).has_error()) SKIP("this device has no memory windows of type 2");
  for (const convention way : ways_of(convention::returns_errno)) {
    const report_collector collected;
    ibv_mw* native = nullptr;
    {
      const failing_operation broken(bed.context.native_handle()->ops.dealloc_mw, EBUSY, way);
      native = must(window::create(bed.domain)).native_handle();
      CHECK(broken.calls() == 1);
    }
    REQUIRE(collected.reports().size() == 1);
    check_told(collected.reports().front(), {EBUSY, error_kind::busy}, "ibv_dealloc_mw");
    CHECK(ibv_dealloc_mw(native) == 0);
  }
}

TEST_CASE("a thread domain that cannot be released is reported") {
  const testbed bed;
  if (thread_domain::create(bed.context).has_error()) SKIP("this device has no thread domains");
  auto& pointers = *verbs_get_ctx(bed.context.native_handle());
  for (const convention way : ways_of(convention::returns_errno)) {
    const report_collector collected;
    ibv_td* native = nullptr;
    {
      const failing_operation broken(pointers.dealloc_td, EBUSY, way);
      native = must(thread_domain::create(bed.context)).native_handle();
      CHECK(broken.calls() == 1);
    }
    REQUIRE(collected.reports().size() == 1);
    check_told(collected.reports().front(), {EBUSY, error_kind::busy}, "ibv_dealloc_td");
    CHECK(ibv_dealloc_td(native) == 0);
  }
}

TEST_CASE("a failed deregister call returns the error and calls no handler") {
  const testbed bed;
  std::vector<std::byte> memory(64);
  for (const convention way : ways_of(convention::returns_errno)) {
    const report_collector collected;
    auto region = must(register_memory(bed.domain, memory));
    ibv_mr* const native = region.native_handle();
    {
      const failing_verb broken("ibv_dereg_mr", EBUSY, way);
      const error e = failure_of(std::move(region).deregister());
      check_told(e, {EBUSY, error_kind::busy}, "ibv_dereg_mr");
      CHECK_THAT(e.message(), Catch::Contains("stays registered"));
    }
    // NOLINTBEGIN(bugprone-use-after-move): the test checks the moved-from region
    CHECK(region.native_handle() == nullptr);
    CHECK(failure_of(std::move(region).deregister()) == error_kind::invalid_input);
    // NOLINTEND(bugprone-use-after-move)
    CHECK(collected.reports().empty());
    CHECK(ibv_dereg_mr(native) == 0);
  }
}

TEST_CASE("a parent that cannot be released because of its child is reported too") {
  const context opened = must(open_device(device_name()));
  const report_collector collected;
  ibv_cq* native = nullptr;
  ibv_comp_channel* channel = nullptr;
  {
    const failing_verb broken("ibv_destroy_cq", EIO);
    const auto queue = must(waitable_completion_queue::create(opened, 4));
    native = queue.native_handle();
    channel = queue.completion_channel().native_handle();
  }
  REQUIRE(collected.reports().size() == 2);
  check_told(collected.reports()[0], {EIO, error_kind::driver}, "ibv_destroy_cq");
  check_told(collected.reports()[1], {EBUSY, error_kind::busy}, "ibv_destroy_comp_channel");
  CHECK(ibv_destroy_cq(native) == 0);
  CHECK(ibv_destroy_comp_channel(channel) == 0);
}

TEST_CASE("a multicast group that a destroyed queue pair cannot leave is reported") {
  const testbed bed;
  const multicast_group some = multicast_group::of(bed, 31);
  const report_collector collected;
  ibv_qp* native = nullptr;
  {
    const failing_verb broken("ibv_detach_mcast", EIO);
    {
      auto member = right_of(bed);
      must(member.join_multicast(some.address, some.multicast_lid));
      native = member.native_handle();
    }
    CHECK(broken.calls() == 1);
  }
  REQUIRE_FALSE(collected.reports().empty());
  check_told(collected.reports()[0], {EIO, error_kind::driver}, "ibv_detach_mcast");
  // Some devices refuse to destroy a queue pair that is a member of a multicast group. That failure
  // is reported, too.
  if (collected.reports().size() == 1) return;
  check_told(collected.reports()[1], {EBUSY, error_kind::busy}, "ibv_destroy_qp");
  const ibv_gid address = some.address.native();
  CHECK(ibv_detach_mcast(native, &address, some.multicast_lid.value()) == 0);
  CHECK(ibv_destroy_qp(native) == 0);
}
