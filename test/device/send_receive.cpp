// SPDX-License-Identifier: Apache-2.0
#include "device.hpp"

#include <arpa/inet.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <exception>
#include <thread>

using namespace verbspp;
using namespace verbspp::test;

namespace {

/// Divides memory into `count` pieces of different lengths, with gaps between them.
std::vector<std::pair<std::size_t, std::size_t>> uneven_pieces(std::size_t count, std::size_t first,
                                                               std::size_t step) {
  std::vector<std::pair<std::size_t, std::size_t>> pieces;
  std::size_t offset = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t length = first + i * step % 97;
    pieces.emplace_back(offset, length);
    offset += length + 3;
  }
  return pieces;
}

}  // namespace

TEST_CASE_METHOD(two_queue_pairs, "a message of any size arrives as it was sent") {
  const auto sizes = telling_sizes(bed);
  buffer<> outbox(bed.domain, pattern(sizes.back(), 5));
  buffer<> inbox(bed.domain, sizes.back() + 1);
  for (const std::size_t size : sizes) {
    INFO(size << " bytes");
    std::ranges::fill(inbox.content(), std::byte{0xee});
    must(right.post_receive({.elements = inbox.scatter()}, {.id = 1}));
    must(left.post_send({.elements = outbox.gather(0, size)}, {.id = 2}));
    const completed_work sent = take_success(bed.left_queue, 2);
    CHECK(sent.operation() == work_operation::send);
    CHECK_FALSE(sent.byte_count());
    const completed_work received = take_success(bed.right_queue, 1);
    CHECK(received.operation() == work_operation::receive);
    CHECK(received.is_receive());
    CHECK(received.byte_count() == size);
    CHECK_FALSE(received.immediate());
    CHECK(inbox.front(size) == outbox.front(size));
    // The device has not written to the byte after the message.
    CHECK(inbox.bytes()[size] == std::byte{0xee});
  }
}

TEST_CASE_METHOD(two_queue_pairs,
                 "a message without elements arrives in a receive without elements") {
  must(right.post_receive({}, {.id = 1}));
  must(left.post_send({.immediate = immediate_data(3)}, {.id = 2}));
  take_success(bed.left_queue, 2);
  const completed_work received = take_success(bed.right_queue, 1);
  CHECK(received.byte_count() == 0U);
  CHECK(received.immediate() == immediate_data(3));
}

TEST_CASE("elements of uneven lengths are gathered and scattered in order") {
  const testbed bed;
  const auto most = static_cast<std::uint32_t>(std::min(bed.limits.max_sge, 30));
  const auto allowed = must(element_count::from(most));
  auto [left, right] = connect(must(bed.left().max_send_elements(allowed).build()),
                               must(bed.right().max_receive_elements(allowed).build()));
  buffer<> outbox(bed.domain, pattern(16384, 6));
  for (std::uint32_t count = 1; count <= most; ++count) {
    INFO(count << " elements");
    std::vector<gather_element> from;
    std::vector<std::byte> expected;
    for (const auto& [offset, length] : uneven_pieces(count, 11, 31)) {
      from.push_back(outbox.gather(offset, length));
      expected.insert(expected.end(), outbox.bytes().begin() + static_cast<std::ptrdiff_t>(offset),
                      outbox.bytes().begin() + static_cast<std::ptrdiff_t>(offset + length));
    }
    buffer<> inbox(bed.domain, 32768);
    std::vector<scatter_element> into;
    const auto places = uneven_pieces(most + 1 - count, 7, 13);
    std::size_t room = 0;
    for (const auto& [offset, length] : places) {
      // The last element is large enough for the remaining bytes.
      const bool last = offset == places.back().first;
      const std::size_t taken = last ? std::max(length, expected.size()) : length;
      into.push_back(inbox.scatter(offset, taken));
      room += taken;
    }
    REQUIRE(room >= expected.size());
    must(right.post_receive({.elements = into}, {.id = 1}));
    must(left.post_send({.elements = from}, {.id = 2}));
    take_success(bed.left_queue, 2);
    CHECK(take_success(bed.right_queue, 1).byte_count() == expected.size());

    std::vector<std::byte> arrived;
    for (const scatter_element& each : into) {
      const auto* begin = reinterpret_cast<const std::byte*>(each.address());
      const std::size_t length =
          std::min<std::size_t>(each.length(), expected.size() - arrived.size());
      arrived.insert(arrived.end(), begin, begin + length);
    }
    CHECK(arrived == expected);
  }
}

TEST_CASE_METHOD(two_queue_pairs, "immediate data arrives unchanged in both directions") {
  buffer<> memory(bed.domain, 32);
  for (const std::uint32_t value : {0U, 1U, 0x01020304U, 0xffffffffU}) {
    must(right.post_receive({.elements = memory.scatter(16, 16)}, {.id = 1}));
    must(left.post_send({.elements = memory.gather(0, 16), .immediate = immediate_data(value)},
                        {.id = 2}));
    take_success(bed.left_queue, 2);
    const completed_work there = take_success(bed.right_queue, 1);
    REQUIRE(there.immediate());
    CHECK(there.immediate()->value() == value);
    CHECK(there.byte_count() == 16U);
    CHECK_FALSE(there.invalidated_rkey());

    must(left.post_receive({.elements = memory.scatter(16, 16)}, {.id = 3}));
    must(right.post_send({.immediate = immediate_data(~value)}, {.id = 4}));
    take_success(bed.right_queue, 4);
    const completed_work back = take_success(bed.left_queue, 3);
    REQUIRE(back.immediate());
    CHECK(back.immediate()->value() == ~value);
    CHECK(back.byte_count() == 0U);
  }
}

TEST_CASE_METHOD(two_queue_pairs,
                 "immediate data is in network byte order in the native completion") {
  must(right.post_receive({}, {.id = 1}));
  must(left.post_send({.immediate = immediate_data(0x01020304)}, {.id = 2}));
  take_success(bed.left_queue, 2);
  const work_completion received = take_one(bed.right_queue);
  REQUIRE(received.is_success());
  CHECK(received.native().imm_data == htonl(0x01020304));
}

TEST_CASE_METHOD(two_queue_pairs, "a solicited send completes as a send") {
  buffer<> memory(bed.domain, pattern(32, 7));
  must(right.post_receive({.elements = memory.scatter(16, 16)}, {.id = 1}));
  must(left.post_send({.elements = memory.gather(0, 16), .solicited = true}, {.id = 2}));
  CHECK(take_success(bed.left_queue, 2).operation() == work_operation::send);
  CHECK(take_success(bed.right_queue, 1).byte_count() == 16U);
}

TEST_CASE_METHOD(two_queue_pairs, "an unsignaled send arrives without a completion") {
  buffer<> outbox(bed.domain, pattern(3 * 16, 8));
  buffer<> inbox(bed.domain, 3 * 16);
  for (std::size_t i = 0; i < 3; ++i)
    must(right.post_receive({.elements = inbox.scatter(i * 16, 16)}, {.id = i}));
  must(left.post_send({.elements = outbox.gather(0, 16)}, {.id = 10, .signaled = false}));
  must(left.post_send({.elements = outbox.gather(16, 16)}, {.id = 11, .signaled = false}));
  for (std::size_t i = 0; i < 2; ++i) take_success(bed.right_queue, i);
  CHECK(count_within_a_moment(bed.left_queue) == 0);
  must(left.post_send({.elements = outbox.gather(32, 16)}, {.id = 12}));
  take_success(bed.left_queue, 12);
  take_success(bed.right_queue, 2);
  CHECK(inbox.bytes() == outbox.bytes());
  CHECK(count_within_a_moment(bed.left_queue) == 0);
}

TEST_CASE("a queue pair that signals all sends also signals sends that do not request it") {
  const testbed bed;
  auto [left, right] =
      connect(must(bed.left().signal_all_sends().build()), must(bed.right().build()));
  must(right.post_receive({}, {.id = 1}));
  must(left.post_send({}, {.id = 2, .signaled = false}));
  take_success(bed.left_queue, 2);
  take_success(bed.right_queue, 1);
}

TEST_CASE("thousands of messages arrive in order") {
  const testbed bed;
  constexpr std::uint64_t count = 4000;
  constexpr std::uint64_t window = 16;
  auto [left, right] = connect(bed);
  std::vector<std::uint64_t> numbers(window), arrived(window);
  const auto outgoing = must(register_memory(bed.domain, numbers));
  const auto incoming = must(register_memory<access::local_write>(bed.domain, arrived));
  const auto slot = [](std::uint64_t id) { return static_cast<std::size_t>(id % window) * 8; };
  for (std::uint64_t id = 0; id < window; ++id)
    must(right.post_receive({.elements = must(incoming.scatter(slot(id), 8))}, {.id = id}));

  std::uint64_t posted = 0, sent = 0, received = 0;
  bool in_order = true;
  std::array<work_completion, 8> slots;
  auto deadline = clock::now() + patience;
  while (sent < count || received < count) {
    // A slot is reused only after both its send and its receive have completed.
    while (posted < count && posted < std::min(sent, received) + window) {
      numbers[posted % window] = posted * 3;
      must(left.post_send({.elements = must(outgoing.gather(slot(posted), 8))}, {.id = posted}));
      ++posted;
    }
    for (const work_completion& each : must(bed.left_queue.poll(slots))) {
      must(each.get());
      in_order = in_order && each.wr_id() == sent++;
    }
    for (const work_completion& each : must(bed.right_queue.poll(slots))) {
      must(each.get());
      in_order = in_order && each.wr_id() == received && arrived[received % window] == received * 3;
      must(right.post_receive({.elements = must(incoming.scatter(slot(received), 8))},
                              {.id = received + window}));
      ++received;
    }
    if (!in_order || clock::now() > deadline) break;
  }
  CHECK(in_order);
  CHECK(sent == count);
  CHECK(received == count);
}

TEST_CASE("messages in both directions at once arrive unchanged") {
  const testbed bed;
  constexpr std::uint64_t rounds = 200;
  constexpr std::size_t size = 5000;
  auto [left, right] = connect(bed);
  buffer<> left_out(bed.domain, pattern(size, 10)), right_out(bed.domain, pattern(size, 11));
  buffer<> left_in(bed.domain, size), right_in(bed.domain, size);
  for (std::uint64_t id = 0; id < rounds; ++id) {
    must(left.post_receive({.elements = left_in.scatter()}, {.id = 1}));
    must(right.post_receive({.elements = right_in.scatter()}, {.id = 1}));
    must(left.post_send({.elements = left_out.gather()}, {.id = 2}));
    must(right.post_send({.elements = right_out.gather()}, {.id = 2}));
    for (const auto* queue : {&bed.left_queue, &bed.right_queue})
      for (const work_completion& each : take(*queue, 2)) must(each.get());
    if (left_in.bytes() != right_out.bytes() || right_in.bytes() != left_out.bytes())
      FAIL("round " << id << " delivered wrong data");
    left_in.content()[id] = right_in.content()[id] = std::byte{0};
  }
  SUCCEED();
}

TEST_CASE("two threads can share a completion queue and use separate queue pairs") {
  const testbed bed;
  constexpr std::uint64_t count = 500;
  std::array<std::atomic<std::uint64_t>, 4> completed{};
  std::array<std::exception_ptr, 2> failures{};

  // The id of a request identifies its thread and its direction. It is twice the thread's number
  // for sends, and one more than that for receives.
  const auto work = [&](std::uint64_t number) {
    buffer<> memory(bed.domain, pattern(128, static_cast<unsigned>(number)));
    connected pair = connect_to_itself(must(bed.left().build()));
    std::array<work_completion, 4> slots;
    std::uint64_t posted = 0;
    const auto deadline = clock::now() + patience;
    while (completed[2 * number] < count || completed[2 * number + 1] < count) {
      const std::uint64_t done =
          std::min<std::uint64_t>(completed[2 * number], completed[2 * number + 1]);
      while (posted < count && posted < done + 8) {
        must(pair.post_receive({.elements = memory.scatter(64, 64)}, {.id = 2 * number + 1}));
        must(pair.post_send({.elements = memory.gather(0, 64)}, {.id = 2 * number}));
        ++posted;
      }
      // This thread may also poll completions that belong to the other thread.
      for (const work_completion& each : must(bed.left_queue.poll(slots))) {
        must(each.get());
        ++completed.at(each.wr_id());
      }
      if (clock::now() > deadline)
        throw failure(__FILE__, __LINE__, "the threads made no progress");
    }
    if (!std::equal(memory.bytes().begin(), memory.bytes().begin() + 64,
                    memory.bytes().begin() + 64))
      throw failure(__FILE__, __LINE__, "wrong data arrived");
  };
  std::array<std::thread, 2> threads;
  for (std::size_t i = 0; i < 2; ++i)
    threads[i] = std::thread([&, i] {
      try {
        work(i);
      } catch (...) {
        failures[i] = std::current_exception();
      }
    });
  for (std::thread& each : threads) each.join();
  for (const std::exception_ptr& each : failures)
    if (each) std::rethrow_exception(each);
  for (const auto& each : completed) CHECK(each == count);
}

TEST_CASE_METHOD(two_queue_pairs, "a fenced send carries the data of an earlier read") {
  constexpr std::size_t size = 65536;
  for (unsigned round = 0; round < 10; ++round) {
    buffer<> far(bed.domain, pattern(size, 100 + round));
    buffer<> near(bed.domain, size);
    buffer<> inbox(bed.domain, size);
    must(right.post_receive({.elements = inbox.scatter()}, {.id = 1}));
    must(left.post_read({.elements = near.scatter(), .remote = far.remote()}, {.id = 2}));
    must(left.post_send({.elements = near.gather(), .fenced = true}, {.id = 3}));
    take_success(bed.left_queue, 2);
    take_success(bed.left_queue, 3);
    take_success(bed.right_queue, 1);
    CHECK(inbox.bytes() == far.bytes());
  }
}
