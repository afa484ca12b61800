// SPDX-License-Identifier: Apache-2.0
/// \file
/// Informs AddressSanitizer and Valgrind of the memory that the device uses, so that they report
/// the line of the program that touches it too early. This only serves diagnosis: it does not
/// change what is allowed, and without these tools the functions do nothing.
///
/// Neither tool can mark memory as readable but not writable. The sources of sends and writes are
/// therefore protected by the permissions of their pages: a write there faults, and both tools
/// report its line, as a write that the memory's permissions forbid.
///
/// They can't see the device's own accesses, nor memory whose address in elements is not the
/// program's own (`register_memory_at`, dma-bufs). Such memory is left alone.
#pragma once

#include <cstdint>

namespace verbspp::detail {

/// True if the program runs with AddressSanitizer (whatever the library was compiled with), or
/// under Valgrind. The result does not change during a run: cache it where the call is too slow.
[[nodiscard]] bool device_memory_is_watched() noexcept;

/// The device may write there from now on; any access before `device_returns` is reported.
///
/// The arguments are the address and length of an element. No bytes, and bytes at address 0, are
/// ignored. AddressSanitizer sees groups of 8 aligned bytes: the bytes of the last group are
/// watched only if all following bytes of that group are, too. Thread-safe.
void device_takes(std::uint64_t address, std::uint64_t length) noexcept;

/// The device no longer writes there: the program may use the memory again, and it has values.
///
/// AddressSanitizer reports memory that has been freed in the meantime, or was a variable whose
/// block has ended, with where it was allocated and freed: here, and in `device_takes`.
///
/// Ranges are not counted. If two requests in flight use the same memory, the first one that ends
/// returns the bytes of both. A mistake may thus be missed, but correct code is never reported.
/// Call it before the memory can be freed, or used for another request.
void device_returns(std::uint64_t address, std::uint64_t length) noexcept;

/// The device reads there from now on. A write before `device_has_read` for the same bytes faults
/// at that line; in a system call such as `read`, it fails with EFAULT.
///
/// Channels call this for work that owns or shares its memory, but not for borrowed memory: a check
/// for each send would slow down every program, and a program may intend to write to memory that it
/// has lent.
///
/// Affects only memory that `registered_buffer` has allocated, and only pages that lie entirely
/// within the bytes (huge pages by their size). Does nothing where writes may be legitimate: to
/// pages that are registered for peers that write, for atomics or for memory windows, or that were
/// registered twice, and while a request in flight has the device write there. Thread-safe.
void device_reads(std::uint64_t address, std::uint64_t length) noexcept;
/// The device no longer reads there for this request; requests are counted.
void device_has_read(std::uint64_t address, std::uint64_t length) noexcept;

}  // namespace verbspp::detail
