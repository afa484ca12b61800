// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

/// Accesses to the program's memory as a device makes them. The program may have unmapped it, which
/// is an error of one work request then, instead of a crash; and whatever watches the program, as
/// sanitizers do, doesn't see them, because it may have marked the memory as untouchable until a
/// completion.
///
/// Where the processor is an x86-64, single instructions do that, whose faults a signal handler
/// knows by their address. It hands on all other faults to the handler that was there before. While
/// the program has a handler of its own in front, or a thread has the signals blocked, and on other
/// processors, system calls do the same.
namespace softverbs::user_memory {

/// Puts the handler in place, once for all; or takes it away, if it is still the first.
void prepare() noexcept;
void leave() noexcept;
/// Looks at the handlers now instead of with the thread's first access, and has a first fault if
/// ThreadSanitizer hands them on: what that maps then could come to lie where the program has just
/// unmapped something.
void prepare_thread() noexcept;
/// The program may have changed its handlers: that is noticed within a millisecond anyway.
void look_again() noexcept;

/// No flags for process_vm_readv and process_vm_writev, in the type that the kernel reads: a
/// shorter argument would leave the upper half of its register undefined.
inline constexpr unsigned long no_flags = 0;

/// False if some of it isn't mapped or may not be accessed so; part of it may have been copied
/// then.
bool copy(void* to, const void* from, std::size_t length) noexcept;

// Of a word at an address that 8 divides, and atomic for all that use it. What was there before;
// nothing if it may not be written.

std::optional<std::uint64_t> fetch_add(std::byte* word, std::uint64_t amount) noexcept;
std::optional<std::uint64_t> compare_and_swap(std::byte* word, std::uint64_t compare,
                                              std::uint64_t swap) noexcept;
std::optional<std::uint64_t> exchange(std::byte* word, std::uint64_t next) noexcept;

}  // namespace softverbs::user_memory
