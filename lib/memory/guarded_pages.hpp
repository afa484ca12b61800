// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/memory/access.hpp>

#include <cstddef>
#include <cstdint>

#pragma GCC visibility push(hidden)
namespace verbspp::detail {

// Where memory is watched, the pages that the library allocates are known, so that they can be
// write-protected while the device reads them. Elsewhere these do nothing. Thread-safe.

/// The library has allocated pages of that size, which nobody else has anything in.
void pages_appear(void* first, std::size_t length, std::size_t page) noexcept;
/// They are about to be freed; nothing happens if they were not told of.
void pages_go(void* first) noexcept;
/// Memory is about to be registered. Pages that a peer may write to then, or that were registered
/// before, are writable and stay so.
void pages_are_registered(const void* first, std::size_t length, access_flags rights) noexcept;

/// The device reads there until `unguard_source`, called with the same bytes: pages that lie within
/// them are write-protected.
void guard_source(std::uint64_t address, std::uint64_t length) noexcept;
void unguard_source(std::uint64_t address, std::uint64_t length) noexcept;
/// The device may write there until `leave_target`: the pages are writable.
void enter_target(std::uint64_t address, std::uint64_t length) noexcept;
void leave_target(std::uint64_t address, std::uint64_t length) noexcept;

}  // namespace verbspp::detail
#pragma GCC visibility pop
