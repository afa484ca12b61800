// SPDX-License-Identifier: Apache-2.0
/// \file
/// Informs AddressSanitizer and Valgrind of the memory that the device uses. If the program touches
/// such memory too early, these tools then report the line that does so. This only helps to find
/// mistakes: it does not change which accesses are allowed, and without these tools the functions
/// do nothing.
///
/// Neither tool can mark memory as readable but not writable. `device_reads` therefore protects the
/// sources of some sends and RDMA writes with page permissions. If the program writes to such a
/// page, the write faults, and both tools report the line that caused it.
///
/// The tools can't see the accesses of the device. Memory is not watched if its scatter-gather
/// elements contain addresses that are not addresses in the program (`register_memory_at`,
/// dma-bufs).
#pragma once

#include <cstdint>

namespace verbspp::detail {

/// True if the program runs with AddressSanitizer (even if the library was compiled without it), or
/// under Valgrind's memory checker (if the library was compiled with Valgrind's headers). The
/// result does not change while the program runs, so callers can cache it where the call is too
/// slow.
[[nodiscard]] bool device_memory_is_watched() noexcept;

/// Marks bytes that the device may write from now on. If the program accesses them before
/// `device_returns` is called, the access is reported.
///
/// The arguments are the address and length of an element. Empty ranges and address 0 are ignored.
/// AddressSanitizer tracks aligned groups of 8 bytes. If the range ends within a group, the bytes
/// in that group are watched only if the byte after the range is inaccessible, too. Thread-safe.
void device_takes(std::uint64_t address, std::uint64_t length) noexcept;

/// Ends the effect of `device_takes`: the device no longer writes the bytes, so the program may use
/// them again, and they count as initialized.
///
/// If the memory has been freed in the meantime, or was a variable whose block has ended,
/// AddressSanitizer reports this during the call, and shows where the memory was allocated and
/// freed. The same is true for `device_takes`.
///
/// The calls to `device_takes` are not counted. If two requests in flight use the same bytes, the
/// bytes become accessible when the first of the requests ends. A mistake may therefore be missed,
/// but correct code is never reported. Call this before the memory can be freed or used for another
/// request.
void device_returns(std::uint64_t address, std::uint64_t length) noexcept;

/// Marks bytes that the device reads from now on. If the program writes to them before
/// `device_has_read` is called for the same bytes, the write faults; a system call that writes to
/// them, such as `read`, fails with EFAULT.
///
/// Channels call this for most requests that own or share their memory, but not for those that
/// borrow it. A check for each send would slow down every program, and a program may intend to
/// write to memory that it has lent to a request.
///
/// This affects only memory that `registered_buffer` has allocated, and only pages (or huge pages)
/// that lie entirely within the marked bytes. Pages to which writes may be legitimate are not
/// protected. These are all pages of a buffer that is registered twice, or registered for remote
/// writes, atomics or memory windows, and all pages that the device writes for another request in
/// flight. Thread-safe.
void device_reads(std::uint64_t address, std::uint64_t length) noexcept;
/// Ends the effect of one call to `device_reads`. These calls are counted, so the end of one
/// request does not end the protection of pages that another one still reads.
void device_has_read(std::uint64_t address, std::uint64_t length) noexcept;

}  // namespace verbspp::detail
