// SPDX-License-Identifier: Apache-2.0
/// \file
/// Lets AddressSanitizer and Valgrind see what memory the device has, so that they report the line
/// of the program that touches it too early. They only tell: what is allowed does not change, and
/// without them the functions do nothing.
///
/// Neither of them lets memory be read and not written. So sources of sends and writes are
/// protected by their pages' permissions: who writes there faults, which both report with the line,
/// as a write that the memory's permissions forbid.
///
/// What they can't see: the device's own accesses; memory that the program names by another address
/// than its own (`register_memory_at`, dma-bufs), which is left alone.
#pragma once

#include <cstdint>

namespace verbspp::detail {

/// Whether the program runs with AddressSanitizer (whatever the library was compiled with), or
/// under Valgrind. The same for the whole run: ask once, where telling costs.
[[nodiscard]] bool device_memory_is_watched() noexcept;

/// The device may write there from now on: whoever touches it until `device_returns` is reported.
///
/// Bytes of an element, as its address and length say; none, or those at address 0, are ignored.
/// AddressSanitizer sees groups of 8 aligned bytes: of the last one, the bytes before the end are
/// watched only if what follows them is, too. Thread-safe.
void device_takes(std::uint64_t address, std::uint64_t length) noexcept;

/// The device is done there: it is the program's again, and has values.
///
/// AddressSanitizer reports memory that was freed meanwhile, or was a variable whose block has
/// ended, with where it was allocated and freed: here, and in `device_takes`.
///
/// Ranges are not counted. Of memory that two requests in flight have, the one that ends first
/// returns what both have, so that a mistake may be missed; none is ever reported that is no
/// mistake. Call it before the memory can be freed, or used for another request.
void device_returns(std::uint64_t address, std::uint64_t length) noexcept;

/// The device reads there from now on: whoever writes there until `device_has_read`, of the same
/// bytes, faults at that line; a system call that would, as `read`, fails with EFAULT.
///
/// Channels say so of work that owns or shares its memory; of borrowed memory they don't: asking
/// for each send would cost every program, and one that writes to what it has lent may mean it.
///
/// Of memory that `registered_buffer` has allocated, and of pages that lie within the bytes as a
/// whole (huge ones by their size); elsewhere nothing happens. Nor does it where somebody may
/// rightly write: to pages that are registered for peers that write, for atomics or for memory
/// windows, or that were registered twice, and while a request in flight has the device write
/// there. Thread-safe.
void device_reads(std::uint64_t address, std::uint64_t length) noexcept;
/// The device is done there, as far as that request goes: requests are counted.
void device_has_read(std::uint64_t address, std::uint64_t length) noexcept;

}  // namespace verbspp::detail
