// SPDX-License-Identifier: Apache-2.0
/// \file
/// Compares the model with the memory that group members and objects of the software device use.

#include "../device/device.hpp"
#include "model.hpp"
#include <verbspp/group.hpp>

#include <malloc.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#if __has_include(<infiniband/mlx5dv.h>)
#include <infiniband/mlx5dv.h>
#endif

using namespace verbspp;
using namespace verbspp::test;
namespace model = verbspp::scale;

namespace {

constexpr std::uint32_t few = 8;
constexpr std::uint32_t many = 64;

[[nodiscard]] std::uint64_t heap() {
  const struct mallinfo2 now = ::mallinfo2();
  return now.uordblks + now.hblkhd;
}

/// Returns the number of bytes by which the heap grows when the function creates its object.
template <class Make>
[[nodiscard]] std::uint64_t growth_by(Make make) {
  // The first call also creates shared objects, which must not be counted.
  static_cast<void>(make());
  const std::uint64_t before = heap();
  const auto made = make();
  static_cast<void>(made);
  return heap() - before;
}

[[nodiscard]] auto builder(const testbed& bed, const model::channel_size& size) {
  return bed.domain.build_channel()
      .max_send_work_requests(must(work_request_count::from(size.sends)))
      .max_receive_work_requests(must(work_request_count::from(size.receives)))
      .max_send_elements(must(element_count::from(size.send_elements)))
      .max_receive_elements(must(element_count::from(size.receive_elements)));
}

/// The measured and the calculated memory of a group member or of another object.
struct per_member {
  std::uint64_t measured;
  std::uint64_t said;
};

/// Returns the additional memory that `many` members need compared with `few` members, divided by
/// the number of additional members.
[[nodiscard]] per_member compare(std::uint64_t of_few, std::uint64_t of_many,
                                 const model::channel_size& size, std::uint64_t receives) {
  const auto queue = [&](std::uint64_t peers) {
    return model::of_softverbs_completions(model::completions_of(size, peers) + receives);
  };
  return {(of_many - of_few) / (many - few), model::of_library(size) +
                                                 model::of_softverbs_queue_pair(size) +
                                                 (queue(many) - queue(few)) / (many - few)};
}

void check(const per_member& found) {
  CAPTURE(found.measured, found.said);
  CHECK(static_cast<double>(found.measured) ==
        Approx(static_cast<double>(found.said)).epsilon(model::tolerance));
}

/// Returns false with sanitizers and Valgrind, whose heap glibc cannot measure.
[[nodiscard]] bool heap_is_known() {
  const std::uint64_t before = heap();
  const std::vector<std::byte> some(100000);
  return heap() - before >= some.size();
}

}  // namespace

TEST_CASE("the memory of a group with separate receives matches the model") {
  if (!heap_is_known()) SKIP("the heap cannot be measured here");
  const testbed bed;
  for (const model::channel_size& size :
       {model::channel_size{}, model::channel_size{.sends = 64},
        model::channel_size{.receives = 64}, model::channel_size{.sends = 128, .receives = 128},
        model::channel_size{
            .sends = 4, .receives = 4, .send_elements = 1, .receive_elements = 1}}) {
    CAPTURE(size.sends, size.receives);
    const auto group_of = [&](std::uint32_t peers) {
      return growth_by([&] { return must(prepare_group(builder(bed, size), peers)); });
    };
    check(compare(group_of(few), group_of(many), size, 0));
  }
}

TEST_CASE("the memory of a group with one pool matches the model and its receives do not grow") {
  if (!heap_is_known()) SKIP("the heap cannot be measured here");
  const testbed bed;
  if (bed.limits.max_srq <= 0) SKIP("this device has no shared receive queues");
  constexpr std::uint32_t receives = 64;
  const auto pool = must(message_pool::create(bed.domain, 128, 256));
  const model::channel_size size{.has_pool = true};
  std::uint32_t posted_of_many = 0;
  const auto group_of = [&](std::uint32_t peers) {
    return growth_by([&] {
      auto made =
          group(must(prepare_group(builder(bed, size), peers, pool, {.receives = receives})));
      posted_of_many = made.hub().receives_posted();
      return made;
    });
  };
  check(compare(group_of(few), group_of(many), size, receives));
  CHECK(posted_of_many == receives);
}

TEST_CASE("the memory of a queue pair of the software device matches the model") {
  if (!heap_is_known()) SKIP("the heap cannot be measured here");
  const testbed bed;
  const auto queue = must(completion_queue::create(bed.context, 64));
  for (const model::channel_size& size :
       {model::channel_size{}, model::channel_size{.sends = 128, .receives = 32}}) {
    const std::uint64_t grown = growth_by([&] {
      return must(bed.builder(queue)
                      .access(access::local_write)
                      .max_send_work_requests(must(work_request_count::from(size.sends)))
                      .max_receive_work_requests(must(work_request_count::from(size.receives)))
                      .max_send_elements(must(element_count::from(size.send_elements)))
                      .max_receive_elements(must(element_count::from(size.receive_elements)))
                      .build());
    });
    check({grown, model::of_softverbs_queue_pair(size)});
  }
  const std::uint64_t of_queue =
      growth_by([&] { return must(completion_queue::create(bed.context, 4000)); });
  check({of_queue, model::of_softverbs_completions(4000)});
}

#if __has_include(<infiniband/mlx5dv.h>)
TEST_CASE("the segments of an mlx5 request have the lengths in the model") {
  CHECK(sizeof(mlx5_wqe_data_seg) == model::mlx5_segment);
  CHECK(sizeof(mlx5_wqe_ctrl_seg) + sizeof(mlx5_wqe_umr_ctrl_seg) +
            sizeof(mlx5_wqe_mkey_context_seg) + 64 ==
        model::mlx5_send_overhead);
}
#endif

TEST_CASE("a group that is too large for any completion queue is refused") {
  const testbed bed;
  const model::channel_size size{.sends = 1024, .receives = 1024};
  const auto most = static_cast<std::uint64_t>(bed.limits.max_cqe);
  const std::uint64_t peers = most / model::completions_of(size, 1);
  if (peers > 60000) SKIP("this device's completion queues are large enough for the largest group");
  const error refused =
      failure_of(prepare_group(builder(bed, size), static_cast<std::uint32_t>(peers + 1)));
  CHECK(refused == error_kind::invalid_input);
}
