// SPDX-License-Identifier: Apache-2.0
/// \file
/// Checks that memory which the device uses is marked correctly for AddressSanitizer and Valgrind,
/// and that these tools do not report the device's own accesses. The tests also run without the
/// tools. The tests in ../watched check that the tools find mistakes.
#include "channels.hpp"
#include <verbspp/memory/detail/watched_memory.hpp>

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

using namespace verbspp;
using namespace verbspp::test;
using detail::device_returns;
using detail::device_takes;

namespace {

void takes(const gather_element& element) { device_takes(element.address(), element.length()); }
void returns(const gather_element& element) { device_returns(element.address(), element.length()); }

}  // namespace

TEST_CASE_METHOD(two_queue_pairs, "a device may access memory that the program must not access") {
  constexpr std::size_t size = 100'003;  // several packets, and not a multiple of 8
  buffer<> from(bed.domain, pattern(size, 1));
  buffer<> received(bed.domain, size);
  buffer<> written(bed.domain, size);
  buffer<> read(bed.domain, size);

  takes(received.scatter());
  takes(written.scatter());
  takes(read.scatter());
  must(right.post_receive({.elements = received.scatter()}, {.id = 1}));
  must(left.post_send({.elements = from.gather()}, {.id = 2}));
  take_success(bed.left_queue, 2);
  take_success(bed.right_queue, 1);
  must(left.post_write({.elements = from.gather(), .remote = written.remote()}, {.id = 3}));
  take_success(bed.left_queue, 3);
  must(left.post_read({.elements = read.scatter(), .remote = from.remote()}, {.id = 4}));
  take_success(bed.left_queue, 4);
  returns(received.scatter());
  returns(written.scatter());
  returns(read.scatter());
  CHECK(received.bytes() == from.bytes());
  CHECK(written.bytes() == from.bytes());
  CHECK(read.bytes() == from.bytes());
}

TEST_CASE("a peer's atomic operations may access memory that the program must not access") {
  const testbed bed;
  constexpr access_flags rights = all_rights | access::remote_atomic;
  connected_pair pair = connect(must(bed.builder(bed.left_queue).access(rights).build()),
                                must(bed.builder(bed.right_queue).access(rights).build()));
  buffer<rights> theirs(bed.domain, pattern(64, 2));
  buffer<rights> ours(bed.domain, 64);
  std::uint64_t before = 0;
  std::memcpy(&before, theirs.bytes().data(), sizeof before);

  takes(theirs.scatter());
  takes(ours.scatter());
  must(pair.left.post_read(
      {.elements = ours.scatter(0, 32), .remote = must(theirs.remote().slice(0, 32))}, {.id = 1}));
  take_success(bed.left_queue, 1);
  const bool has_atomics = bed.limits.atomic_cap != IBV_ATOMIC_NONE;
  if (has_atomics) {
    must(pair.left.post_fetch_and_add({.result = ours.scatter(32, 8),
                                       .remote = must(remote_word::at(theirs.remote(), 0)),
                                       .addend = 1},
                                      {.id = 2}));
    take_success(bed.left_queue, 2);
  }
  returns(theirs.scatter());
  returns(ours.scatter());
  CHECK(std::memcmp(ours.bytes().data(), &before, sizeof before) == 0);
  if (has_atomics) {
    CHECK(std::memcmp(ours.bytes().data() + 32, &before, sizeof before) == 0);
    ++before;
    CHECK(std::memcmp(theirs.bytes().data(), &before, sizeof before) == 0);
  }
}

TEST_CASE("the program may use memory that the device has returned even if requests overlapped") {
  std::vector<std::byte> memory(64);
  const auto address = reinterpret_cast<std::uintptr_t>(memory.data());
  device_takes(address, 40);
  device_takes(address + 8, 56);
  device_returns(address, 40);
  memory[0] = memory[39] = std::byte{1};
  device_returns(address + 8, 56);
  for (std::byte& each : memory) each = std::byte{2};
  device_takes(address + 3, 7);
  device_returns(address + 3, 7);
  for (const std::byte each : memory) CHECK(each == std::byte{2});
}

TEST_CASE("only ranges within the program's memory are watched") {
  // These are the addresses and lengths of invalid elements, which the device refuses. The ranges
  // do not belong to the program, so none of them may be marked.
  for (const std::uint64_t address :
       {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{0x1000}, std::uint64_t{0x7fff8000},
        std::uint64_t{0xdeadbeef}, std::uint64_t{0xdeadbeef000}, std::uint64_t{1} << 47,
        std::uint64_t{0xdeadbeefdeadbeef}, UINT64_MAX})
    for (const std::uint64_t length : {std::uint64_t{0}, std::uint64_t{64}, UINT64_MAX}) {
      device_takes(address, length);
      device_returns(address, length);
    }
  std::vector<std::byte> memory(16);
  device_takes(reinterpret_cast<std::uintptr_t>(memory.data()), 0);
  CHECK(memory[0] == std::byte{0});
}

TEST_CASE(
    "if the device uses another address for a region, the program's memory at that address is not "
    "marked") {
  const testbed bed;
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  alignas(64) std::vector<std::byte> both(4 * page);
  const std::span<std::byte> of_the_device(both.data(), page);
  const std::span<std::byte> of_the_program(both.data() + 2 * page, page);
  const auto region = must(register_memory_at<access::local_write>(
      bed.domain, reinterpret_cast<std::uintptr_t>(of_the_program.data()), of_the_device));
  const scatter_element element = must(region.scatter());
  takes(element);
  CHECK(of_the_program[7] == std::byte{0});
  returns(element);
}

TEST_CASE("the program may read the messages of a hub that it holds") {
  const testbed bed;
  const auto pool = must(message_pool::create(bed.domain, 8, 64));
  // Each message that the program takes lets the hub post one more receive.
  const auto hub = supported(channel_hub::create(bed.domain, pool, {.receives = 2, .refill = 1}),
                             shared_receive_queues);
  channel_pair ends = connect_channels(must(bed.domain.build_channel().hub(hub).build()),
                                       must(bed.domain.build_channel().build()));
  inbox messages = must(inbox::open(ends.left, pool));
  std::vector<message> held;
  for (int i = 0; i < 6; ++i) {
    must(ends.right.send({.elements = inline_payload(i)}));
    held.push_back(must(messages.wait(patience)));
    for (int k = 0; k <= i; ++k)
      CHECK(std::memcmp(held[static_cast<std::size_t>(k)].bytes().data(), &k, sizeof(k)) == 0);
  }
}

TEST_CASE_METHOD(two_channels, "memory of a channel's sends can be written in all permitted ways") {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const std::size_t size = 8 * page;
  buffer<> theirs(bed.domain, size);
  // The peer posts a receive only when `receive` is called. Until then, a send stays in flight.
  const auto send = [&](const auto& memory) { return must(ends.left.post_send(memory)); };
  const auto receive = [&] {
    must(must(ends.right.post_receive({.elements = theirs.scatter()})).wait(patience));
  };

  SECTION("outside of the pages that are sent completely") {
    const auto shared = must(must(registered_buffer<>::allocate(bed.domain, size)).share());
    auto first = send(must(shared.part(1, page)));
    auto second = send(must(shared.part(2 * page + 1, 2 * page - 2)));
    std::ranges::fill(shared, std::byte{1});
    receive();
    receive();
    must(first.wait(patience));
    must(second.wait(patience));
  }
  SECTION("after all sends of it have finished") {
    const auto shared = must(must(registered_buffer<>::allocate(bed.domain, size)).share());
    auto first = send(shared);
    auto second = send(must(shared.part(0, page)));
    receive();
    must(first.wait(patience));
    std::ranges::fill(must(shared.part(page, page)), std::byte{1});
    receive();
    must(second.wait(patience));
    std::ranges::fill(shared, std::byte{1});
  }
  SECTION("after the connection was closed") {
    const auto shared = must(must(registered_buffer<>::allocate(bed.domain, size)).share());
    static_cast<void>(send(shared).wait(short_limit));
    std::ranges::fill(shared, std::byte{1});
  }
  SECTION("by a peer") {
    const auto shared =
        must(must(registered_buffer<all_rights>::allocate(bed.domain, size)).share());
    auto first = send(shared);
    must(ends.right.write({.elements = theirs.gather(), .remote = must(shared.remote())}));
    std::ranges::fill(shared, std::byte{1});
    receive();
    must(first.wait(patience));
  }
  SECTION("by a peer through the program's own registration") {
    const auto shared = must(must(registered_buffer<>::allocate(bed.domain, size)).share());
    auto first = send(shared);
    const auto region =
        must(register_memory<all_rights>(bed.domain, std::span(shared.data(), size)));
    must(ends.right.write({.elements = theirs.gather(), .remote = must(region.remote())}));
    receive();
    must(first.wait(patience));
  }
  SECTION("by the device") {
    const auto shared = must(must(registered_buffer<>::allocate(bed.domain, size)).share());
    auto before = must(ends.left.post_receive(must(shared.part(page, page))));
    auto first = send(shared);
    auto behind = must(ends.left.post_receive(must(shared.part(page, page))));
    must(ends.right.send({.elements = theirs.gather(0, page)}));
    must(ends.right.send({.elements = theirs.gather(0, page)}));
    must(before.wait(patience));
    must(behind.wait(patience));
    receive();
    must(first.wait(patience));
    std::ranges::fill(shared, std::byte{1});
  }
  SECTION("by filling a new message that uses the place of a sent one") {
    auto pool = must(message_pool::create(bed.domain, 2, 2 * static_cast<std::uint32_t>(page)));
    for (int i = 0; i < 4; ++i) {
      auto message = must(pool.take());
      std::ranges::fill(message.bytes(), std::byte{1});
      auto sent = must(ends.left.post_send(std::move(message)));
      receive();
      must(sent.wait(patience));
    }
  }
}
