// SPDX-License-Identifier: Apache-2.0
#include "device.hpp"

#include <algorithm>

using namespace verbspp;
using namespace verbspp::test;

namespace {

/// Returns true if all bytes before and after the `size` bytes at `offset` have this value.
bool is_untouched_around(const std::vector<std::byte>& memory, std::size_t offset, std::size_t size,
                         std::byte value) {
  const auto at = [&](std::size_t i) { return memory.begin() + static_cast<std::ptrdiff_t>(i); };
  const auto same = [&](std::byte byte) { return byte == value; };
  return std::all_of(memory.begin(), at(offset), same) &&
         std::all_of(at(offset + size), memory.end(), same);
}

bool holds_at(const std::vector<std::byte>& memory, std::size_t offset,
              const std::vector<std::byte>& expected) {
  return std::equal(expected.begin(), expected.end(),
                    memory.begin() + static_cast<std::ptrdiff_t>(offset));
}

}  // namespace

TEST_CASE_METHOD(two_queue_pairs, "an RDMA write changes exactly the bytes that it addresses") {
  const auto sizes = telling_sizes(bed);
  buffer<> from(bed.domain, pattern(sizes.back(), 20));
  for (const std::size_t size : sizes) {
    INFO(size << " bytes");
    constexpr std::size_t offset = 9;
    buffer<> to(bed.domain, std::vector<std::byte>(size + 20, std::byte{0xaa}));
    must(left.post_write(
        {.elements = from.gather(0, size), .remote = must(to.remote().slice(offset, size))},
        {.id = 1}));
    const completed_work written = take_success(bed.left_queue, 1);
    CHECK(written.operation() == work_operation::rdma_write);
    CHECK_FALSE(written.byte_count());
    CHECK(holds_at(to.bytes(), offset, from.front(size)));
    CHECK(is_untouched_around(to.bytes(), offset, size, std::byte{0xaa}));
  }
  CHECK(count_within_a_moment(bed.right_queue) == 0);
}

TEST_CASE_METHOD(two_queue_pairs, "an RDMA write consumes none of the peer's receives") {
  buffer<> memory(bed.domain, 64);
  must(right.post_receive({.elements = memory.scatter(0, 16)}, {.id = 1}));
  must(left.post_write(
      {.elements = memory.gather(16, 16), .remote = must(memory.remote().slice(32, 16))},
      {.id = 2}));
  take_success(bed.left_queue, 2);
  CHECK(count_within_a_moment(bed.right_queue) == 0);
  must(left.post_send({.elements = memory.gather(16, 16)}, {.id = 3}));
  take_success(bed.left_queue, 3);
  take_success(bed.right_queue, 1);
}

TEST_CASE_METHOD(
    two_queue_pairs,
    "an RDMA write with immediate data consumes a receive that reports the byte count") {
  const auto sizes = telling_sizes(bed);
  buffer<> from(bed.domain, pattern(sizes.back(), 21));
  buffer<> to(bed.domain, sizes.back());
  buffer<> unused(bed.domain, std::vector<std::byte>(8, std::byte{0x11}));
  for (const std::size_t size : sizes) {
    INFO(size << " bytes");
    // A write with immediate data consumes the receive, but does not touch the memory of the
    // receive.
    must(right.post_receive({.elements = unused.scatter()}, {.id = 1}));
    must(left.post_write({.elements = from.gather(0, size),
                          .remote = to.remote(),
                          .immediate = immediate_data(static_cast<std::uint32_t>(size) + 0xabc),
                          .solicited = true},
                         {.id = 2}));
    CHECK(take_success(bed.left_queue, 2).operation() == work_operation::rdma_write);
    const completed_work noticed = take_success(bed.right_queue, 1);
    CHECK(noticed.operation() == work_operation::receive_of_rdma_write);
    CHECK(noticed.is_receive());
    CHECK(noticed.byte_count() == size);
    REQUIRE(noticed.immediate());
    CHECK(noticed.immediate()->value() == size + 0xabc);
    CHECK(holds_at(to.bytes(), 0, from.front(size)));
    CHECK(unused.bytes() == std::vector<std::byte>(8, std::byte{0x11}));
  }
}

TEST_CASE_METHOD(two_queue_pairs, "an RDMA read returns the peer's bytes") {
  const auto sizes = telling_sizes(bed);
  buffer<> from(bed.domain, pattern(sizes.back() + 10, 22));
  for (const std::size_t size : sizes) {
    INFO(size << " bytes");
    constexpr std::size_t offset = 5;
    buffer<> to(bed.domain, std::vector<std::byte>(size + 20, std::byte{0xbb}));
    must(left.post_read(
        {.elements = to.scatter(offset, size), .remote = must(from.remote().slice(3, size))},
        {.id = 1}));
    const completed_work done = take_success(bed.left_queue, 1);
    CHECK(done.operation() == work_operation::rdma_read);
    CHECK_FALSE(done.is_receive());
    CHECK(done.byte_count() == size);
    CHECK(std::equal(from.bytes().begin() + 3,
                     from.bytes().begin() + 3 + static_cast<std::ptrdiff_t>(size),
                     to.bytes().begin() + offset));
    CHECK(is_untouched_around(to.bytes(), offset, size, std::byte{0xbb}));
  }
  CHECK(count_within_a_moment(bed.right_queue) == 0);
}

TEST_CASE("RDMA gathers and scatters several elements") {
  const testbed bed;
  if (bed.limits.max_sge < 3 || bed.limits.max_sge_rd < 3)
    SKIP("the device takes fewer than three elements");
  auto [left, right] = connect(bed);
  buffer<> far(bed.domain, 10000);
  buffer<> near(bed.domain, pattern(10000, 23));
  const std::vector<gather_element> from{near.gather(0, 1), near.gather(10, 4999),
                                         near.gather(6000, 1000)};
  must(left.post_write({.elements = from, .remote = far.remote()}, {.id = 1}));
  take_success(bed.left_queue, 1);
  std::vector<std::byte> expected;
  for (const gather_element& each : from) {
    const auto* begin = reinterpret_cast<const std::byte*>(each.address());
    expected.insert(expected.end(), begin, begin + each.length());
  }
  CHECK(holds_at(far.bytes(), 0, expected));

  buffer<> back(bed.domain, 10000);
  const std::vector<scatter_element> into{back.scatter(3000, 3000), back.scatter(0, 1000),
                                          back.scatter(7000, 2000)};
  must(left.post_read({.elements = into, .remote = far.remote()}, {.id = 2}));
  CHECK(take_success(bed.left_queue, 2).byte_count() == 6000U);
  CHECK(std::equal(expected.begin(), expected.begin() + 3000, back.bytes().begin() + 3000));
  CHECK(std::equal(expected.begin() + 3000, expected.begin() + 4000, back.bytes().begin()));
  CHECK(std::equal(expected.begin() + 4000, expected.begin() + 6000, back.bytes().begin() + 7000));
}

TEST_CASE_METHOD(two_queue_pairs,
                 "remote memory that is too short is refused before the device is called") {
  buffer<> near(bed.domain, 64);
  buffer<> far(bed.domain, 64);
  const auto shorter = must(far.remote().slice(0, 31));
  const std::vector<gather_element> from{near.gather(0, 16), near.gather(16, 16)};
  const std::vector<scatter_element> into{near.scatter(0, 16), near.scatter(16, 16)};
  for (const error& e :
       {failure_of(left.post_write({.elements = from, .remote = shorter}, {.id = 1})),
        failure_of(left.post_read({.elements = into, .remote = shorter}, {.id = 2}))}) {
    INFO(e);
    CHECK(e == error_kind::invalid_input);
    CHECK(e.native_errno() == 0);
    CHECK_THAT(e.message(), Catch::Contains("32") && Catch::Contains("31"));
  }
  // Nothing was posted, and the connection still works.
  CHECK(count_within_a_moment(bed.left_queue) == 0);
  must(left.post_write({.elements = from, .remote = must(far.remote().slice(0, 32))}, {.id = 3}));
  take_success(bed.left_queue, 3);
}

TEST_CASE("more reads than may be in flight at once all complete in order") {
  const testbed bed;
  constexpr std::size_t count = 64;
  constexpr std::size_t size = 3000;
  prepared first = must(bed.left().max_send_work_requests(count).max_reads_as_initiator(2).build());
  auto [left, right] = connect(std::move(first), must(bed.right().max_reads_as_target(2).build()));
  buffer<> far(bed.domain, pattern(count * size, 24));
  buffer<> near(bed.domain, count * size);
  for (std::size_t id = 0; id < count; ++id)
    must(left.post_read({.elements = near.scatter(id * size, size),
                         .remote = must(far.remote().slice(id * size, size))},
                        {.id = id}));
  for (std::size_t id = 0; id < count; ++id)
    CHECK(take_success(bed.left_queue, id).byte_count() == size);
  CHECK(near.bytes() == far.bytes());
}

TEST_CASE_METHOD(
    two_queue_pairs,
    "writes and reads and sends of one queue pair take effect in the order of their posts") {
  buffer<> near(bed.domain, pattern(8192, 25));
  buffer<> far(bed.domain, 8192);
  buffer<> back(bed.domain, 8192);
  buffer<> inbox(bed.domain, 16);
  must(right.post_receive({.elements = inbox.scatter()}, {.id = 9}));
  must(left.post_write({.elements = near.gather(), .remote = far.remote()}, {.id = 1}));
  must(left.post_read({.elements = back.scatter(), .remote = far.remote()}, {.id = 2}));
  must(left.post_send({.elements = near.gather(0, 16)}, {.id = 3}));
  // This message was sent after the write, so its arrival shows that the write has been performed.
  take_success(bed.right_queue, 9);
  CHECK(far.bytes() == near.bytes());
  for (std::uint64_t id = 1; id <= 3; ++id) take_success(bed.left_queue, id);
  CHECK(back.bytes() == near.bytes());
}

TEST_CASE_METHOD(two_queue_pairs, "both ends can write to each other and read from each other") {
  buffer<> left_memory(bed.domain, pattern(4096, 26));
  buffer<> right_memory(bed.domain, pattern(4096, 27));
  buffer<> left_copy(bed.domain, 4096);
  buffer<> right_copy(bed.domain, 4096);
  must(left.post_read({.elements = left_copy.scatter(), .remote = right_memory.remote()},
                      {.id = 1}));
  must(right.post_read({.elements = right_copy.scatter(), .remote = left_memory.remote()},
                       {.id = 2}));
  take_success(bed.left_queue, 1);
  take_success(bed.right_queue, 2);
  CHECK(left_copy.bytes() == right_memory.bytes());
  CHECK(right_copy.bytes() == left_memory.bytes());
}

TEST_CASE_METHOD(two_queue_pairs, "a decoded remote handle works like the original") {
  buffer<> near(bed.domain, pattern(100, 28));
  buffer<> far(bed.domain, 100);
  using handle = remote_memory<access::remote_write>;
  const handle decoded = must(handle::decode(far.remote().encode()));
  must(left.post_write({.elements = near.gather(), .remote = decoded}, {.id = 1}));
  take_success(bed.left_queue, 1);
  CHECK(far.bytes() == near.bytes());
}
