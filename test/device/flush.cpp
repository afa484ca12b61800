// SPDX-License-Identifier: Apache-2.0
/// \file
/// RDMA flushes, which are tested only if libibverbs and the device support them.
#include "device.hpp"

using namespace verbspp;
using namespace verbspp::test;

namespace {

constexpr access_flags flushable = all_rights | access::flush_global;

[[nodiscard]] bool has_flush(const testbed& bed) {
  ibv_device_attr_ex device{};
  REQUIRE(ibv_query_device_ex(bed.context.native_handle(), nullptr, &device) == 0);
  return operation_traits<flush_operation>::offered_by(device);
}

/// Writes bytes, and flushes them. This function is a template so that it compiles even if
/// libibverbs lacks the operation.
template <class QueuePair, class Remote>
void write_and_flush(const testbed& bed, QueuePair& left, const buffer<>& source,
                     const Remote& remote) {
  const write_operation write{.elements = source.gather(), .remote = remote};
  must(left.post_write(write, {.id = 1, .signaled = false}));
  must(left.post_flush({.remote = remote}, {.id = 2}));
  CHECK(take_success(bed.left_queue, 2).operation() == work_operation::flush);
  must(
      left.post_flush({.remote = remote, .scope = flush_scope::region, .fenced = true}, {.id = 3}));
  take_success(bed.left_queue, 3);
  must(left.template post_batch<2>([&](auto& batch) {
    batch.post_write(write, {.id = 4});
    batch.post_flush({.remote = remote}, {.id = 5});
  }));
  take_success(bed.left_queue, 4);
  CHECK(take_success(bed.left_queue, 5).operation() == work_operation::flush);

  CHECK(failure_of(left.post_flush({.remote = remote, .placement = {}})) ==
        error_kind::invalid_input);
  const error persistent =
      failure_of(left.post_flush({.remote = remote, .placement = flush_placement::persistent}));
  CHECK(persistent == error_kind::permission);
  CHECK_THAT(persistent.message(), Catch::Contains("lacks a right that the placement needs"));
  CHECK(count_within_a_moment(bed.left_queue) == 0);
}

}  // namespace

TEST_CASE("a flush completes after the write that it covers, both alone and in a batch") {
  const testbed bed;
  if (!has_flush(bed)) SKIP("the device, or libibverbs, has no RDMA flush");
  auto prepared_left = supported(bed.left().extended_posting().build(), extended_posting);
  prepared prepared_right = must(bed.builder(bed.right_queue).access(flushable).build());
  const endpoint address = prepared_left.endpoint();
  auto left = must(std::move(prepared_left).handshake(prepared_right.endpoint()));
  const connected right = must(std::move(prepared_right).handshake(address));
  const buffer<> source(bed.domain, pattern(64, 1));
  const buffer<flushable> target(bed.domain, 64);
  [&]<class Native>(Native* /*known*/) {
    if constexpr (detail::knows_flush<Native>) write_and_flush(bed, left, source, target.remote());
  }(static_cast<ibv_qp_ex*>(nullptr));
  CHECK(target.bytes() == source.bytes());
}
