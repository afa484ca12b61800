// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/memory/access.hpp>

#include <cstddef>
#include <cstdint>

#pragma GCC visibility push(hidden)
namespace verbspp::detail {

// If AddressSanitizer or Valgrind watches memory, the pages that the library allocates are
// recorded, so that they can be write-protected while the device reads them. Otherwise these
// functions do nothing. Thread-safe.

/// Records pages that the library has allocated, and that hold no other data. `page` is the size of
/// one page.
void pages_appear(void* first, std::size_t length, std::size_t page) noexcept;
/// Removes pages that are about to be freed; does nothing if they were not recorded.
void pages_go(void* first) noexcept;
/// Called before memory is registered, or its registration is changed. If a peer may then write to
/// the memory, or the buffer that contains the memory was registered before, all pages of the
/// buffer become writable and remain so.
void pages_are_registered(const void* first, std::size_t length, access_flags rights) noexcept;

/// Write-protects the pages that lie within the bytes, because the device reads them until
/// `unguard_source` is called with the same bytes. Pages that remain writable, or that the device
/// may write to, are not protected.
void guard_source(std::uint64_t address, std::uint64_t length) noexcept;
void unguard_source(std::uint64_t address, std::uint64_t length) noexcept;
/// Makes all pages that contain some of the bytes writable, because the device may write to them
/// until `leave_target` is called.
void enter_target(std::uint64_t address, std::uint64_t length) noexcept;
void leave_target(std::uint64_t address, std::uint64_t length) noexcept;

}  // namespace verbspp::detail
#pragma GCC visibility pop
