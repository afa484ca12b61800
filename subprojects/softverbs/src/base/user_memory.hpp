// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

/// Accesses to the program's memory as a device makes them. If the program has unmapped the memory,
/// one work request fails, instead of the process crashing. Sanitizers and similar tools don't see
/// these accesses, because the program may have marked the memory as inaccessible until a
/// completion.
///
/// On x86-64, single instructions access the memory, and a signal handler recognizes their faults
/// by the instruction's address. It forwards all other faults to the handler that was installed
/// before. System calls replace these instructions on other processors, while the program has
/// installed its own handler over this one, and while a thread blocks the signals.
namespace softverbs::user_memory {

/// Installs the handler, once for the process; `leave` removes it if it is still the current one.
void prepare() noexcept;
void leave() noexcept;
/// Checks the handlers now instead of at the thread's first access. If ThreadSanitizer forwards
/// signals, this also causes a first fault: the memory that ThreadSanitizer maps for it could
/// otherwise end up where the program has just unmapped something.
void prepare_thread() noexcept;
/// Makes threads check the handlers again, because the program may have changed them. Without this
/// call, a change is noticed within a millisecond.
void look_again() noexcept;

/// No flags for process_vm_readv and process_vm_writev, in the type that the kernel reads: a
/// narrower argument would leave the upper half of its register undefined.
inline constexpr unsigned long no_flags = 0;

/// Returns false if some of the memory isn't mapped or may not be accessed in this way; part of it
/// may have been copied.
bool copy(void* to, const void* from, std::size_t length) noexcept;

// These operate on a word at an address divisible by 8, and are atomic for all threads and
// processes that use the word. They return its previous value, or nothing if it may not be written.

std::optional<std::uint64_t> fetch_add(std::byte* word, std::uint64_t amount) noexcept;
std::optional<std::uint64_t> compare_and_swap(std::byte* word, std::uint64_t compare,
                                              std::uint64_t swap) noexcept;
std::optional<std::uint64_t> exchange(std::byte* word, std::uint64_t next) noexcept;

}  // namespace softverbs::user_memory
