// SPDX-License-Identifier: Apache-2.0
/// \file
/// Binding memory windows: in batches, together with other requests, and to different kinds
/// of memory.
#include "memory_windows.hpp"
#include "transports.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <utility>

namespace verbspp::test::windows {

TEST_CASE("both posting interfaces can bind a window and send its handle in one batch") {
  with_each_interface([](const testbed& bed, connected left, auto right) {
    shown_memory memory(bed.domain, 128);
    buffer<> outbox(bed.domain, remote_memory<both_ways>::encoded_size);
    buffer<> inbox(bed.domain, outbox.size());
    buffer<> source(bed.domain, pattern(64, 10));
    auto window = window_of<type_2>(bed.domain);
    // In the second round, the batch first invalidates the key that the first round bound.
    for (const std::size_t offset : {0U, 64U}) {
      const remote_key before = window->rkey();
      must(left.post_receive({.elements = inbox.scatter()}, {.id = 1}));
      must(right.template post_batch<3>([&](auto& batch) {
        if (offset != 0) batch.post_local_invalidate({.rkey = before}, {.signaled = false});
        const auto far =
            batch.post_bind(*window, part_of<both_ways>(memory, offset, 64), {.signaled = false});
        CHECK(far.rkey() != before);
        CHECK(window->rkey() == before);  // the driver has not processed the bind yet
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

TEST_CASE("a window in a batch that is refused is unchanged") {
  with_each_interface([](const testbed& bed, connected left, auto right) {
    shown_memory memory(bed.domain, 64);
    buffer<> source(bed.domain, 64);
    auto window = window_of<type_2>(bed.domain);
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
               Catch::Contains("the limit is the length of the remote memory"));
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
    // The window still has the key that the device expects, so it can be bound again.
    bind(right, *window, part);
    CHECK(write(bed, left, part.remote(window->rkey()), source) == work_status::success);
  });
}

TEST_CASE("a window bound by an accepted request of a failed batch has its new key") {
  const testbed bed;
  connected_pair pair =
      connect(must(bed.left().build()), must(bed.right().max_send_work_requests(4).build()));
  REQUIRE(pair.right.capacities().max_send_work_requests < 64);
  shown_memory memory(bed.domain, 64);
  buffer<> target(bed.domain, 8);
  auto bound = window_of<type_2>(bed.domain);
  auto refused = window_of<type_2>(bed.domain);
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
  // Both windows still have the keys that the device expects.
  invalidate(pair.right, bound->rkey());
  bind(pair.right, *bound, part);
  bind(pair.right, *refused, part);
}

TEST_CASE("a bind can be unsignaled and fenced") {
  for_each_type([]<memory_window_type Type>() {
    const testbed bed;
    connected_pair pair = connect(bed);
    shown_memory memory(bed.domain, 64);
    buffer<> there(bed.domain, pattern(64, 12));
    buffer<> here(bed.domain, 64);
    auto window = window_of<Type>(bed.domain);
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

TEST_CASE("UC: a window permits writes") {
  for_each_type([]<memory_window_type Type>() {
    const testbed bed;
    auto pair = connect_both<transport::uc>(bed);
    shown_memory memory(bed.domain, 64);
    buffer<> source(bed.domain, pattern(64, 13));
    auto window = window_of<Type>(bed.domain);
    const auto far = bind(pair.right, *window, part_of<access::remote_write>(memory, 0, 64));
    must(pair.right.post_receive({}, {.id = 1}));
    must(pair.left.post_write(
        {.elements = source.gather(), .remote = far, .immediate = immediate_data(14)}, {.id = 2}));
    take_success(bed.left_queue, 2);
    CHECK(take_success(bed.right_queue, 1).immediate() == immediate_data(14));
    CHECK(memory.bytes() == source.bytes());
  });
}

TEST_CASE("a part for a window must lie within its region") {
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

TEST_CASE_METHOD(two_queue_pairs,
                 "a window covers memory at the address under which it was registered") {
  struct alignas(4096) page {
    std::array<std::byte, 4096> bytes{};
  };
  const auto memory = std::make_unique<page>();
  constexpr std::uint64_t start = std::uint64_t{1} << 40;
  const auto region = must(register_memory_at < access::local_write |
                           access::window_bind > (bed.domain, start, memory->bytes));
  auto window = window_of<type_2>(bed.domain);
  const auto far = bind(pair.right, *window, must(region.window_part<both_ways>(100, 64)));
  CHECK(far.address() == start + 100);
  buffer<> source(bed.domain, pattern(64, 15));
  CHECK(write(bed, pair.left, far, source) == work_status::success);
  CHECK(std::equal(source.bytes().begin(), source.bytes().end(), memory->bytes.begin() + 100));
}

}  // namespace verbspp::test::windows
