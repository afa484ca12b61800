// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

/// Accesses to the program's memory that behave like those of a device. If the program has unmapped
/// the memory, a work request fails, but the process doesn't crash. Sanitizers and similar tools
/// don't see these accesses, because the program may have marked the memory as inaccessible until
/// it polls the completion.
///
/// On x86-64, single instructions access the memory, and a signal handler recognizes their faults
/// by the instruction's address. It forwards all other faults to the handler that was installed
/// before. In some cases, system calls are used instead: they copy the memory, or check whether a
/// word is writable before it is accessed. These cases are other processors, Valgrind, threads that
/// block the signals, rsockets of a process without an open device, and the time while a handler of
/// the program has replaced this one.
namespace softverbs::user_memory {

/// Installs the process's handler for memory faults, unless it is installed already. `leave`
/// removes the handler if it is still the current one.
void prepare() noexcept;
void leave() noexcept;
/// Checks now, instead of at the calling thread's first access, whether the handlers are installed.
/// If ThreadSanitizer forwards signals, this also causes a fault on purpose, once in each thread.
/// ThreadSanitizer maps memory at a thread's first fault, and could otherwise map it at an address
/// that the program has just unmapped.
void prepare_thread() noexcept;
/// Makes each thread check at its next access whether the handlers are still installed, because the
/// program may have replaced them. Without this call, threads notice a change within a millisecond.
void look_again() noexcept;

/// No flags for process_vm_readv and process_vm_writev, in the type that the kernel reads. A
/// narrower argument would leave the upper half of its register undefined.
inline constexpr unsigned long no_flags = 0;

/// Copies memory. Returns false if some of it isn't mapped, or doesn't permit the access. In this
/// case, a part may have been copied.
bool copy(void* to, const void* from, std::size_t length) noexcept;

// Each of these functions operates on a word at an address divisible by 8, and is atomic for all
// threads and processes that use the word. It returns the previous value, or nothing if the word
// isn't writable.

std::optional<std::uint64_t> fetch_add(std::byte* word, std::uint64_t amount) noexcept;
std::optional<std::uint64_t> compare_and_swap(std::byte* word, std::uint64_t compare,
                                              std::uint64_t swap) noexcept;
std::optional<std::uint64_t> exchange(std::byte* word, std::uint64_t next) noexcept;

}  // namespace softverbs::user_memory
