// SPDX-License-Identifier: Apache-2.0
/// \file
/// Code that the memory window tests share.
#pragma once

#include "device.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace verbspp::test::windows {

using enum memory_window_type;
using first_type = memory_window<type_1>;
using second_type = memory_window<type_2>;

inline constexpr access_flags both_ways = access::remote_read | access::remote_write;

/// Memory that peers can access only through windows.
using shown_memory = buffer<access::local_write | access::window_bind>;

/// Creates a window. Skips the test if the device has no windows of this type. Declare the window
/// after the queue pairs that bind it, so that it is destroyed before them.
template <memory_window_type Type>
std::optional<memory_window<Type>> window_of(const protection_domain& domain) {
  return supported(memory_window<Type>::create(domain),
                   "memory windows of " + std::string(to_string(Type)));
}

/// Runs a test for both types of window: `test.operator()<type>()`.
template <class Test>
void for_each_type(Test test) {
  SECTION("a window of type 1") { test.template operator()<type_1>(); }
  SECTION("a window of type 2") { test.template operator()<type_2>(); }
}

template <access_flags Rights>
window_part<Rights> part_of(const shown_memory& memory, std::size_t offset, std::size_t length) {
  return must(memory.region().window_part<Rights>(offset, length));
}

/// Binds the window through the queue pair `by`, and waits until the binding has completed.
template <class QueuePair, memory_window_type Type, access_flags Rights>
remote_memory<Rights> bind(QueuePair& by, memory_window<Type>& window,
                           const window_part<Rights>& part, int line = __builtin_LINE()) {
  const remote_key before = window.rkey();
  const remote_memory<Rights> far = must(by.post_bind(window, part, {.id = 50}), line);
  const completed_work done = take_success(by.send_completion_queue(), 50, line);
  CHECK(done.operation() == work_operation::bind_memory_window);
  CHECK(far.rkey() == window.rkey());
  CHECK(far.rkey() != before);
  CHECK(far.address() == part.address());
  CHECK(far.length() == part.length());
  return far;
}

/// Writes the first bytes of `from` to the remote memory through the queue pair `left`. Returns the
/// status of the write.
inline work_status write(const testbed& bed, connected& left, const remote_destination& to,
                         const buffer<>& from) {
  must(left.post_write(
      {.elements = from.gather(0, static_cast<std::size_t>(to.memory().length())), .remote = to},
      {.id = 60}));
  return status_of(take_one(bed.left_queue));
}

inline std::vector<std::byte> written_by_another(std::uint64_t size) {
  return pattern(static_cast<std::size_t>(size), 9);
}

/// Writes through a separate queue pair, so that a write that is refused does not break the
/// connections of the test.
inline work_status write_by_another(const testbed& bed, const remote_destination& to) {
  connected_pair pair = connect(bed);
  const buffer<> source(bed.domain, written_by_another(to.memory().length()));
  return write(bed, pair.left, to, source);
}

/// Returns a forged handle, which claims access that was not granted.
inline remote_memory<access::remote_write> claimed(std::uint64_t address, std::uint64_t length,
                                                   remote_key rkey) {
  return {address, length, rkey};
}

/// Calls `test` with two connected queue pairs, once for each posting interface that the device
/// has. The right queue pair can post batches with that interface.
template <class Test>
void with_each_interface(Test test) {
  const testbed bed;
  const auto run = [&](auto right) {
    prepared left = must(bed.left().build());
    const endpoint address = right.endpoint();
    auto connected_right = must(std::move(right).handshake(left.endpoint()));
    test(bed, must(std::move(left).handshake(address)), std::move(connected_right));
  };
  {
    INFO("linked lists");
    run(must(bed.right().build()));
  }
  INFO("the extended interface");
  run(supported(bed.right().extended_posting().build(), extended_posting));
}

/// Through the queue pair `by`, invalidates the window that has this rkey, and waits until the
/// invalidation has completed.
inline void invalidate(connected& by, remote_key rkey, int line = __builtin_LINE()) {
  must(by.post_local_invalidate({.rkey = rkey}, {.id = 70}), line);
  CHECK(take_success(by.send_completion_queue(), 70, line).operation() ==
        work_operation::local_invalidate);
}

/// The errors that were reported because an object could not be released.
inline std::vector<std::string> reports;

}  // namespace verbspp::test::windows
