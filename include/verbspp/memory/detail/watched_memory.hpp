// SPDX-License-Identifier: Apache-2.0
/// \file
/// Informs AddressSanitizer and Valgrind of the memory that the device uses, so that they report
/// the line of the program that touches it too early. This only helps to find mistakes: it does not
/// change which accesses are allowed, and without these tools the functions do nothing.
///
/// Neither tool can mark memory as readable but not writable. The sources of sends and writes are
/// therefore protected by the permissions of their pages. A write to such a page faults, and both
/// tools report the line of the program that writes.
///
/// The tools can't see the accesses of the device. Memory is not watched if the addresses in its
/// elements are not addresses of the program (`register_memory_at`, dma-bufs).
#pragma once

#include <cstdint>

namespace verbspp::detail {

/// True if the program runs with AddressSanitizer (even if the library was compiled without it), or
/// under Valgrind. The result does not change during a run: cache it where the call is too slow.
[[nodiscard]] bool device_memory_is_watched() noexcept;

/// Marks bytes that the device may write from now on. Any access of the program to them before
/// `device_returns` is reported.
///
/// The arguments are the address and length of an element. Empty ranges and address 0 are ignored.
/// AddressSanitizer tracks aligned groups of 8 bytes: if the range ends within a group, its bytes
/// in that group are watched only if the rest of the group is watched, too. Thread-safe.
void device_takes(std::uint64_t address, std::uint64_t length) noexcept;

/// Ends the effect of `device_takes`: the device no longer writes the bytes, so the program may use
/// them again, and they count as initialized.
///
/// If the memory has been freed in the meantime, or was a variable whose block has ended,
/// AddressSanitizer reports this during the call, with the places of its allocation and release.
/// `device_takes` does the same.
///
/// The calls of `device_takes` are not counted. If two requests in flight use the same bytes, the
/// first one that ends makes them accessible. A mistake may thus be missed, but correct code is
/// never reported. Call this before the memory can be freed, or used for another request.
void device_returns(std::uint64_t address, std::uint64_t length) noexcept;

/// Marks bytes that the device reads from now on. If the program writes to them before
/// `device_has_read` is called for the same bytes, the write faults; a system call that writes to
/// them, such as `read`, fails with EFAULT.
///
/// Channels call this for work that owns or shares its memory, but not for borrowed memory: a check
/// for each send would slow down every program, and a program may intend to write to memory that it
/// has lent.
///
/// Affects only memory that `registered_buffer` has allocated, and only pages (or huge pages) that
/// lie entirely within the bytes. Pages to which writes may be legitimate are not protected: pages
/// that are registered for remote writes, atomics or memory windows, or that are registered twice,
/// and pages that the device writes for another request in flight. Thread-safe.
void device_reads(std::uint64_t address, std::uint64_t length) noexcept;
/// Ends the effect of one call of `device_reads`. The calls are counted: the pages remain protected
/// until the last request that reads them has ended.
void device_has_read(std::uint64_t address, std::uint64_t length) noexcept;

}  // namespace verbspp::detail
