// SPDX-License-Identifier: Apache-2.0
/// \file
/// Mistakes that AddressSanitizer and Valgrind must detect. Each mistake is a separate test case,
/// which runs only if it is selected by its name, as ./watched.py does. The tool must report the
/// line that is marked with the comment "caught". If the comment is "caught by AddressSanitizer",
/// Valgrind does not detect the mistake.
#include "../device/channels.hpp"
#include <verbspp/memory/detail/watched_memory.hpp>
#include <verbspp/memory/shared_buffer.hpp>

#include <unistd.h>

#include <array>
#include <csignal>
#include <cstddef>
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

std::uint64_t address_of(const volatile void* memory) {
  return reinterpret_cast<std::uintptr_t>(memory);
}

/// The tests store values here, so that neither the compiler nor Valgrind treats them as unused.
volatile std::byte seen;

/// Returns a pointer that keeps the compiler from omitting accesses to the memory.
volatile std::byte* look(void* memory) { return static_cast<volatile std::byte*>(memory); }

/// Removes the signal handler that Catch2 has installed, which would hide the line from Valgrind.
void let_faults_end_the_program() { static_cast<void>(std::signal(SIGSEGV, SIG_DFL)); }

}  // namespace

TEST_CASE("the program reads memory that the device uses", "[.mistake]") {
  std::vector<std::byte> memory(64);
  auto* const bytes = look(memory.data());
  device_takes(address_of(memory.data()), 64);
  seen = bytes[20];  // caught
}

TEST_CASE("the program writes memory that the device uses", "[.mistake]") {
  std::vector<std::byte> memory(64);
  auto* const bytes = look(memory.data());
  device_takes(address_of(memory.data()), 64);
  bytes[63] = std::byte{1};  // caught
}

TEST_CASE("the memory of a receive is read before its completion", "[.mistake]") {
  const testbed bed;
  auto [left, right] = connect(bed);
  auto target = must(registered_buffer<>::allocate(bed.domain, 4096));
  auto* const bytes = look(target.data());
  const scatter_element element = must(target.scatter(64, 64));
  device_takes(element.address(), element.length());
  must(right.post_receive({.elements = element}, {.id = 1}));
  seen = bytes[0];
  seen = bytes[128];
  seen = bytes[64];  // caught
}

TEST_CASE("memory is read after its message has arrived but before its completion", "[.mistake]") {
  const testbed bed;
  auto [left, right] = connect(bed);
  auto memory = must(registered_buffer<>::allocate(bed.domain, 4096));
  auto* const bytes = look(memory.data());
  const scatter_element element = must(memory.scatter(64, 64));
  device_takes(element.address(), element.length());
  must(right.post_receive({.elements = element}, {.id = 1}));
  must(left.post_send({.elements = must(memory.gather(0, 64))}, {.id = 2}));
  take_success(bed.left_queue, 2);
  seen = bytes[64];  // caught
}

TEST_CASE("memory is read after it was passed to the device again", "[.mistake]") {
  std::vector<std::byte> memory(64);
  auto* const bytes = look(memory.data());
  for (int round = 0; round < 2; ++round) {
    device_takes(address_of(memory.data()), 64);
    device_returns(address_of(memory.data()), 64);
    bytes[0] = std::byte{1};
  }
  device_takes(address_of(memory.data()), 64);
  seen = bytes[0];  // caught
}

TEST_CASE("memory at an address that belonged to an earlier registration is read", "[.mistake]") {
  const testbed bed;
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  std::vector<std::byte> both(4 * page);
  std::byte* const later = both.data() + 2 * page;
  static_cast<void>(must(register_memory_at<access::local_write>(
      bed.domain, address_of(later), std::span<std::byte>(both.data(), page))));
  device_takes(address_of(later), 64);
  seen = *look(later);  // caught
}

TEST_CASE("memory that the device uses is freed", "[.mistake]") {
  auto* const memory = new std::byte[64];
  const std::uint64_t address = address_of(memory);
  device_takes(address, 64);
  delete[] memory;  // caught by AddressSanitizer
  device_returns(address, 64);
}

TEST_CASE("the scope of a variable ends while the device uses it", "[.mistake]") {
  std::uint64_t address = 0;
  {
    std::array<std::byte, 64> memory{};
    address = address_of(look(memory.data()));
    device_takes(address, memory.size());
  }
  device_returns(address, 64);  // caught by AddressSanitizer
}

TEST_CASE("memory is passed to the device after it was freed", "[.mistake]") {
  auto* const memory = new std::byte[64];
  const std::uint64_t address = address_of(memory);
  delete[] memory;
  device_takes(address, 64);  // caught by AddressSanitizer
}

TEST_CASE("the memory of a channel's receive is read before the message", "[.mistake]") {
  const testbed bed;
  channel_pair ends = connect_channels(bed);
  auto target = must(registered_buffer<>::allocate(bed.domain, 64));
  auto* const bytes = look(target.data());
  auto message = must(ends.right.post_receive({.elements = must(target.scatter(8, 56))}));
  seen = bytes[0];
  must(ends.left.send({.elements = must(target.gather(0, 8))}));
  seen = bytes[8];  // caught
  static_cast<void>(message.wait(short_limit));
}

TEST_CASE("a message of a hub is read after its place was posted again", "[.mistake]") {
  const testbed bed;
  const auto pool = must(message_pool::create(bed.domain, 2, 64));
  const auto hub = must(channel_hub::create(bed.domain, pool, {.receives = 2, .refill = 1}));
  channel_pair ends = connect_channels(must(bed.domain.build_channel().hub(hub).build()),
                                       must(bed.domain.build_channel().build()));
  inbox messages = must(inbox::open(ends.left, pool));
  must(ends.right.send({.elements = inline_payload(1)}));
  message first = must(messages.wait(patience));
  volatile std::byte* const bytes = look(first.bytes().data());
  seen = bytes[0];
  first = message();
  must(ends.right.send({.elements = inline_payload(2)}));
  const message second = must(messages.wait(patience));
  REQUIRE(pool.available() == 0);
  seen = bytes[0];  // caught
}

TEST_CASE("the memory of a channel's read is written before the result is taken", "[.mistake]") {
  const testbed bed;
  channel_pair ends = connect_channels(bed);
  buffer<> theirs(bed.domain, 64);
  auto mine = must(registered_buffer<>::allocate(bed.domain, 64));
  auto* const bytes = look(mine.data());
  must(ends.left.read({.elements = must(mine.scatter()), .remote = theirs.remote()}));
  bytes[1] = std::byte{1};
  auto work =
      must(ends.left.post_read({.elements = must(mine.scatter()), .remote = theirs.remote()}));
  bytes[2] = std::byte{2};  // caught
  static_cast<void>(work.wait(short_limit));
}

TEST_CASE("shared memory is read while a channel's request uses it", "[.mistake]") {
  const testbed bed;
  channel_pair ends = connect_channels(bed);
  const auto shared = must(must(registered_buffer<>::allocate(bed.domain, 64)).share());
  auto* const bytes = look(shared.data());
  auto message = must(ends.right.post_receive(must(shared.part(0, 32))));
  seen = bytes[32];
  seen = bytes[31];  // caught
  static_cast<void>(message.wait(short_limit));
}

TEST_CASE("shared memory is written while a channel's request sends it", "[.mistake]") {
  const testbed bed;
  channel_pair ends = connect_channels(bed);
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const auto shared = must(must(registered_buffer<>::allocate(bed.domain, 4 * page)).share());
  auto* const bytes = look(shared.data());
  // So far, the peer has posted no receive for this request.
  auto work = must(ends.left.post_send(must(shared.part(page / 2, 2 * page))));
  seen = bytes[page];
  bytes[page / 2] = std::byte{1};
  bytes[2 * page] = std::byte{1};
  let_faults_end_the_program();
  bytes[page] = std::byte{1};  // caught
  static_cast<void>(work.wait(short_limit));
}

TEST_CASE("memory that a channel's request owns is written", "[.mistake]") {
  const testbed bed;
  channel_pair ends = connect_channels(bed);
  constexpr std::size_t size = 100'000;
  buffer<> theirs(bed.domain, size);
  auto mine = must(registered_buffer<>::allocate(bed.domain, size));
  auto* const bytes = look(mine.data());
  bytes[0] = std::byte{1};
  auto finished =
      must(ends.left.post_write(std::move(mine), {.remote = theirs.remote()})).wait(patience);
  must(finished.result);
  bytes[0] = std::byte{2};
  auto work = must(ends.left.post_send(std::move(finished.memory)));
  let_faults_end_the_program();
  bytes[0] = std::byte{3};  // caught
  static_cast<void>(work.wait(short_limit));
}

// No message arrives for this receive. If one did, the device would overwrite the freed memory, in
// which AddressSanitizer stores information about the deallocation.
TEST_CASE("memory is freed in a scope before the scope's requests have finished", "[.mistake]") {
  const testbed bed;
  channel_pair ends = connect_channels(bed);
  const auto done = ends.left.scope(
      [&](auto& scope) -> result<void> {
        auto* const memory = new std::byte[64];
        const auto region =
            must(register_memory<access::local_write>(bed.domain, std::span(memory, 64)));
        static_cast<void>(must(scope.post_receive({.elements = must(region.scatter())})));
        delete[] memory;  // caught by AddressSanitizer
        return success();
      },
      short_limit);
  static_cast<void>(done);
}
