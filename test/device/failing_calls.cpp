// SPDX-License-Identifier: Apache-2.0
/// \file
/// Tests failures of libibverbs calls that create, query or change objects. Calls that post or poll
/// are tested in failing_work.cpp, and calls that release objects in failing_releases.cpp.

#include "failing_calls.hpp"

#include "datagrams.hpp"

#include <array>
#include <cstring>

using namespace verbspp;
using namespace verbspp::test;

namespace {

std::vector<error> reported;

}  // namespace

namespace verbspp::test {

report_collector::report_collector()
    : before_(set_destroy_failure_handler(
          [](const error& cause) noexcept { reported.push_back(cause); })) {
  reported.clear();
}

report_collector::~report_collector() { set_destroy_failure_handler(before_); }

const std::vector<error>& report_collector::reports() const { return reported; }

std::vector<expected_failure> any_failures_but(const std::vector<expected_failure>& special) {
  std::vector<expected_failure> all = any_failures;
  for (const expected_failure& each : special) {
    std::erase_if(all, [&](const expected_failure& one) { return one.errnum == each.errnum; });
    all.push_back(each);
  }
  return all;
}

std::vector<expected_failure> any_failures_of(error_kind kind) {
  std::vector<expected_failure> all = any_failures;
  for (expected_failure& each : all) each.kind = kind;
  return all;
}

std::vector<convention> ways_of(convention own) {
  using enum convention;
  switch (own) {
    case returns_errno:
      return {returns_errno, minus_one, negative_errno};
    case minus_one:
    case minus_one_alone:
      return {minus_one, minus_one_alone, returns_errno, negative_errno};
    case negative_errno:
    case null:
      return {own};
  }
  return {};
}

void check_told(const error& told, const expected_failure& expected, std::string_view operation) {
  CHECK(told.kind() == expected.kind);
  CHECK(told.native_errno() == expected.errnum);
  CHECK(told.operation() == operation);
  const std::string message = told.message();
  INFO(message);
  const char* const name = ::strerrorname_np(expected.errnum);
  const std::string called = name != nullptr ? name : "errno " + std::to_string(expected.errnum);
  CHECK_THAT(message, Catch::StartsWith(std::string(operation) + ": ") && Catch::Contains(called));
  CHECK(message.find('\n') == std::string::npos);
  // The text after the semicolon is the hint.
  const std::size_t semicolon = message.find("; ");
  REQUIRE(semicolon != std::string::npos);
  CHECK(semicolon + 20 < message.size());
}

void failing::check_failing(const failing_call& call, const breaking& while_broken,
                            const attempt& make) {
  const std::string_view operation = call.operation != nullptr ? call.operation : call.verb;
  for (const convention way : call.ways)
    for (const expected_failure& each : call.failures) {
      INFO(call.verb << ", errno " << each.errnum << ", convention " << static_cast<int>(way));
      // A negative EPERM is -1, which another convention uses as its return value for failures, so
      // the errno is lost.
      if (way == convention::negative_errno && each.errnum == EPERM && call.ways.size() > 1)
        continue;
      std::optional<error> told;
      const int objects = live_objects();
      while_broken(each.errnum, way, [&] {
        errno = EXDEV;  // left over from an earlier call
        told = make();
      });
      CHECK(live_objects() == objects);
      REQUIRE(told);
      check_told(
          *told,
          way == convention::minus_one_alone ? expected_failure{EIO, error_kind::driver} : each,
          operation);
    }
  INFO(call.verb << ", without the injected failure");
  if (!call.can_be_repeated) return;
  const std::optional<error> after = make();
  if (after) FAIL(*after);
}

}  // namespace verbspp::test

namespace {

constexpr convention null = convention::null;
constexpr convention returns_errno = convention::returns_errno;

verbs_context& extended(const context& opened) {
  verbs_context* const found = verbs_get_ctx(opened.native_handle());
  REQUIRE(found != nullptr);
  return *found;
}

}  // namespace

TEST_CASE("a failure to list or open devices is reported with its cause") {
  const release_watch watch;
  check_failing({"ibv_get_device_list"}, null, [] { return device_list::query(); });
  const device_list all = must(device_list::query());
  const device found = must(all.find(device_name()));
  check_failing({"ibv_open_device"}, null, [&] { return found.open(); });
}

TEST_CASE("a failure to create an object is reported and leaves its parents usable") {
  const testbed bed;
  check_failing({"ibv_alloc_pd"}, null, [&] { return protection_domain::allocate(bed.context); });
  check_failing({"ibv_create_comp_channel"}, null,
                [&] { return completion_channel::create(bed.context); });
  check_failing({"ibv_create_cq"}, null, [&] { return completion_queue::create(bed.context, 4); });
  const auto channel = must(completion_channel::create(bed.context));
  check_failing({"ibv_create_cq"}, null,
                [&] { return waitable_completion_queue::create(channel, 4); });
  check_failing({"ibv_create_qp"}, null, [&] { return bed.left().build(); });
  check_failing({"ibv_create_qp"}, null,
                [&] { return builder_of<transport::ud>(bed, bed.left_queue).build(); });
  if (bed.limits.max_srq > 0)
    check_failing({"ibv_create_srq"}, null,
                  [&] { return shared_receive_queue::create(bed.domain, 4); });
  const auto sender = must(prepared_of<transport::ud>(bed, bed.left_queue).activate());
  check_failing({"ibv_create_ah"}, null, [&] { return sender.address_of(sender.endpoint()); });
}

TEST_CASE("a failure to create an extended object is reported and leaves its parents usable") {
  const testbed bed;
  constexpr auto fields = completion_features(completion_feature::byte_count);
  auto& pointers = extended(bed.context);
  const auto make_queue = [&] { return extended_completion_queue<fields>::create(bed.context, 4); };
  if (pointers.create_cq_ex != nullptr)
    check_failing({.verb = "ibv_create_cq_ex", .can_be_repeated = make_queue().has_value()}, null,
                  pointers.create_cq_ex, make_queue);
  const auto make_single = [&] {
    return completion_queue_with<completion_feature::single_threaded>::create(bed.context, 4);
  };
  if (pointers.create_cq_ex != nullptr)
    check_failing({.verb = "ibv_create_cq_ex", .can_be_repeated = make_single().has_value()}, null,
                  pointers.create_cq_ex, make_single);
  const auto make_pair = [&] { return bed.left().extended_posting().build(); };
  if (pointers.create_qp_ex != nullptr)
    check_failing({.verb = "ibv_create_qp_ex", .can_be_repeated = make_pair().has_value()}, null,
                  pointers.create_qp_ex, make_pair);
}

TEST_CASE("a failure to create a memory window is reported with its cause") {
  const testbed bed;
  const auto make = [&] { return memory_window<memory_window_type::type_2>::create(bed.domain); };
  if (make().has_error()) SKIP("this device has no memory windows of type 2");
  // EINVAL is left out because it has a different meaning if the device reports that it has no
  // memory windows.
  std::vector<expected_failure> failures = any_failures;
  std::erase_if(failures, [](const expected_failure& each) { return each.errnum == EINVAL; });
  check_failing({.verb = "ibv_alloc_mw", .failures = failures}, null,
                bed.context.native_handle()->ops.alloc_mw, make);
}

TEST_CASE("a failure to create a thread domain or parent domain is reported with its cause") {
  const testbed bed;
  auto& pointers = extended(bed.context);
  // The errno values that mean a missing feature are left out because they lead to a different
  // message.
  std::vector<expected_failure> failures = any_failures;
  std::erase_if(failures, [](const expected_failure& each) {
    return each.kind == error_kind::not_supported;
  });
  const auto threads = thread_domain::create(bed.context);
  if (threads.has_error()) SKIP("this device has no thread domains");
  check_failing({.verb = "ibv_alloc_td", .failures = failures}, null, pointers.alloc_td,
                [&] { return thread_domain::create(bed.context); });
  check_failing(
      {.verb = "ibv_alloc_parent_domain", .failures = failures}, null, pointers.alloc_parent_domain,
      [&] { return protection_domain::create_parent(bed.domain, threads.assume_value()); });
  const failing_operation lacking(pointers.alloc_parent_domain, EOPNOTSUPP, null);
  CHECK_THAT(
      failure_of(protection_domain::create_parent(bed.domain, threads.assume_value())).message(),
      Catch::EndsWith("use the protection domain itself, whose queues take locks"));
}

TEST_CASE("a failure to register memory is reported with its cause") {
  const testbed bed;
  std::vector<std::byte> memory(8192);
  check_failing({.verb = "ibv_reg_mr_iova2", .operation = "ibv_reg_mr"}, null,
                [&] { return register_memory<all_rights>(bed.domain, memory); });
  const std::uint64_t offset = reinterpret_cast<std::uintptr_t>(memory.data()) % 4096;
  check_failing({.verb = "ibv_reg_mr_iova2", .operation = "ibv_reg_mr_iova"}, null,
                [&] { return register_memory_at(bed.domain, offset, memory); });
  check_failing({.verb = "ibv_reg_mr_iova2", .operation = "ibv_reg_mr"}, null, [&] {
    return registered_buffer<all_rights, std::byte>::allocate(bed.domain, 100);
  });
  const dmabuf_stand_in other_device(4096);
  check_failing({"ibv_reg_dmabuf_mr"}, null, [&] {
    return register_dmabuf(bed.domain,
                           {.file_descriptor = other_device.file_descriptor(), .length = 4096});
  });
}

TEST_CASE("a null pointer without an errno is reported as a failure of the driver") {
  const testbed bed;
  const failing_operation no_operation(extended(bed.context).create_cq_ex, 0, null);
  const error e = failure_of(
      extended_completion_queue<completion_features(completion_feature::byte_count)>::create(
          bed.context, 4));
  CHECK(e == error_kind::driver);
  CHECK(e.native_errno() == 0);
  CHECK_THAT(e.message(), Catch::StartsWith("ibv_create_cq_ex: driver; "));
}

TEST_CASE("a failed query is reported with its cause") {
  const testbed bed;
  const port_number port = bed.port.number();
  auto& pointers = extended(bed.context);
  check_failing({"ibv_query_device"}, returns_errno, [&] { return bed.context.query_device(); });
  check_failing({"ibv_query_port"}, returns_errno, pointers.query_port,
                [&] { return bed.context.query_port(port); });
  check_failing({"ibv_query_gid_table"}, convention::negative_errno,
                [&] { return bed.context.query_gid_table(port); });
  const gid_table table = must(bed.context.query_gid_table(port));
  const gid_index used = table.begin()->index;
  check_failing({.verb = "ibv_query_gid_ex",
                 .failures = any_failures_but({{ENODATA, error_kind::not_found}})},
                returns_errno, [&] { return bed.context.query_gid(port, used); });
  const prepared pair = must(bed.left().build());
  check_failing({"ibv_query_qp"}, returns_errno, [&] { return pair.query(); });
  check_failing({"ibv_query_qp"}, returns_errno, [&] { return pair.query_state(); });
  if (bed.limits.max_srq > 0) {
    const auto shared = must(shared_receive_queue::create(bed.domain, 4));
    check_failing({"ibv_query_srq"}, returns_errno, [&] { return shared.query(); });
    check_failing({"ibv_query_srq"}, returns_errno, [&] {
      return shared_receive_queue::from_native(bed.domain, shared.native_handle(),
                                               ownership::borrowed);
    });
  }
}

TEST_CASE("a failed extended query is reported with its cause") {
  const testbed bed;
  auto& pointers = extended(bed.context);
  if (pointers.query_device_ex == nullptr) SKIP("the device has no extended query");
  // If the extended query fails with EOPNOTSUPP, libibverbs itself falls back to the plain query,
  // which returns no information about paging.
  std::vector<expected_failure> failures = any_failures;
  std::erase_if(failures, [](const expected_failure& each) { return each.errnum == EOPNOTSUPP; });
  check_failing({.verb = "ibv_query_device_ex", .failures = failures}, returns_errno,
                pointers.query_device_ex, [&] { return on_demand_paging::query(bed.context); });
  for (const int errnum : {EOPNOTSUPP, ENOSYS}) {
    const failing_operation fails(pointers.query_device_ex, errnum, returns_errno);
    CHECK_FALSE(must(on_demand_paging::query(bed.context)).supported);
    CHECK(fails.calls() == 1);
  }
}

TEST_CASE("the error for a failed transition names it and the queue pair is destroyed") {
  const testbed bed;
  const auto check = [](const char* transition, int number, auto make) {
    check_failing({.verb = "ibv_modify_qp", .operation = transition, .first = number},
                  returns_errno, make);
  };
  check("modify RESET -> INIT", 1, [&] { return bed.left().build(); });
  const auto handshake = [&] {
    prepared alone = must(bed.left().build());
    const endpoint itself = alone.endpoint();
    return std::move(alone).handshake(itself);
  };
  check("modify INIT -> RTR", 2, handshake);
  check("modify RTR -> RTS", 3, handshake);
  const auto activate = [&] { return prepared_of<transport::ud>(bed, bed.left_queue).activate(); };
  check("modify RESET -> INIT", 1,
        [&] { return builder_of<transport::ud>(bed, bed.left_queue).build(); });
  check("modify INIT -> RTR", 2, activate);
  check("modify RTR -> RTS", 3, activate);
  check("modify INIT -> ERR", 2, [&] { return must(bed.left().build()).to_error(); });
  check("modify INIT -> RESET", 2, [&] { return must(bed.left().build()).to_reset(); });
  check("modify RESET -> INIT", 3,
        [&] { return must(must(bed.left().build()).to_reset()).prepare(); });
}

TEST_CASE_METHOD(two_queue_pairs, "a failed modification is reported with its cause") {
  constexpr auto rts = queue_pair_state::ready_to_send;
  connected& pair = left;
  check_failing({.verb = "ibv_modify_qp", .operation = "modify RTS -> RTS"}, returns_errno, [&] {
    return pair.modify(attributes_for<transport::rc, rts, rts>().min_rnr_timer(9));
  });
  CHECK(must(left.query_state()) == rts);
  if (bed.limits.max_srq > 0) {
    const auto shared = must(shared_receive_queue::create(bed.domain, 4));
    check_failing({"ibv_modify_srq"}, returns_errno, [&] { return shared.arm_limit(2); });
    CHECK(must(shared.query()).limit == 2);
  }
  auto member = right_of(bed);
  const multicast_group some = multicast_group::of(bed, 30);
  check_failing({"ibv_attach_mcast"}, returns_errno,
                [&] { return member.join_multicast(some.address, some.multicast_lid); });
  check_failing({"ibv_detach_mcast"}, returns_errno,
                [&] { return member.leave_multicast(some.address, some.multicast_lid); });
  CHECK(failure_of(member.leave_multicast(some.address, some.multicast_lid)) ==
        error_kind::not_found);
}

TEST_CASE("a region whose change fails is unchanged or destroyed as the verbs specify") {
  const testbed bed;
  std::array<std::byte, 64> bytes{};
  const report_collector collected;
  struct outcome {
    int returned;
    int errnum;
    error_kind kind;
    bool survives;
  };
  for (const outcome& expected : {
           outcome{IBV_REREG_MR_ERR_INPUT, EINVAL, error_kind::invalid_input, true},
           outcome{IBV_REREG_MR_ERR_INPUT, EOPNOTSUPP, error_kind::not_supported, true},
           outcome{IBV_REREG_MR_ERR_DONT_FORK_NEW, ENOMEM, error_kind::resource_exhausted, true},
           outcome{IBV_REREG_MR_ERR_CMD, EOPNOTSUPP, error_kind::not_supported, true},
           outcome{IBV_REREG_MR_ERR_CMD, EINVAL, error_kind::invalid_input, false},
           outcome{IBV_REREG_MR_ERR_CMD, 0, error_kind::driver, false},
           outcome{IBV_REREG_MR_ERR_CMD_AND_DO_FORK_NEW, EIO, error_kind::driver, false},
       }) {
    CAPTURE(expected.returned, expected.errnum);
    auto region = must(register_memory(bed.domain, bytes));
    ibv_mr* const native = region.native_handle();
    {
      const failing_reregistration fails(expected.returned, expected.errnum);
      const error e = failure_of(std::move(region).change_rights<access::local_write>(bytes));
      CHECK(e == expected.kind);
      CHECK(e.operation() == std::string("ibv_rereg_mr"));
      CHECK(e.native_errno() == (expected.errnum != 0 ? expected.errnum : EIO));
      if (!expected.survives) CHECK_THAT(e.message(), Catch::Contains("was deregistered"));
    }
    // NOLINTNEXTLINE(bugprone-use-after-move): the test checks the moved-from region
    CHECK(region.native_handle() == (expected.survives ? native : nullptr));
    if (expected.survives) CHECK_NOTHROW(must(std::move(region).deregister()));
  }
  CHECK(collected.reports().empty());

  // Here, the region cannot be deregistered after the failure, either.
  auto stuck = must(register_memory(bed.domain, bytes));
  ibv_mr* const native = stuck.native_handle();
  {
    const failing_reregistration fails(IBV_REREG_MR_ERR_CMD, EINVAL);
    const failing_verb stays("ibv_dereg_mr", EBUSY);
    const error e = failure_of(std::move(stuck).change_rights<access::local_write>(bytes));
    CHECK_THAT(e.message(), Catch::Contains("must not be freed"));
  }
  CHECK(ibv_dereg_mr(native) == 0);
  REQUIRE(collected.reports().size() == 1);
  CHECK(collected.reports().front() == error_kind::busy);

  // Here, the change itself succeeds, and a later step fails.
  auto region = must(register_memory(bed.domain, bytes));
  {
    const failing_reregistration fails(IBV_REREG_MR_ERR_DO_FORK_OLD, ENOMEM);
    const auto changed = must(std::move(region).change_rights<access::local_write>(bytes));
    CHECK(changed.length() == 64);
  }
  REQUIRE(collected.reports().size() == 2);
  CHECK_THAT(collected.reports().back().message(),
             Catch::Contains("ibv_rereg_mr") && Catch::Contains("fork"));
}

TEST_CASE("a failure to query a datagram's sender address is reported with its cause") {
  const testbed bed;
  auto sender = left_of(bed);
  auto receiver = right_of(bed);
  const address_handle way = must(sender.address_of(receiver.endpoint()));
  datagram_inbox arriving(bed, receiver, 1, 8);
  send(bed, sender, way.destination(receiver.number(), test_key), pattern(8, 1));
  const received_datagram datagram = arriving.take();
  const auto reply = [&] {
    return address_handle::create_reply(bed.domain, bed.port.number(), datagram);
  };
  check_failing({"ibv_init_ah_from_wc"}, convention::minus_one, reply);
  check_failing({"ibv_create_ah"}, null, reply);
}

TEST_CASE("a failure to initialize fork support is reported with its cause") {
  // The call isn't repeated without the fault, because enabling fork support would affect the other
  // tests.
  check_failing({.verb = "ibv_fork_init", .can_be_repeated = false}, returns_errno,
                [] { return initialize_fork(); });
}
