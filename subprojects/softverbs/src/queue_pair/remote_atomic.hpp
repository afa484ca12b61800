// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "wire/packet.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace softverbs {

/// Atomics work on so many bytes, at addresses that they divide.
inline constexpr std::uint32_t atomic_bytes = 8;

/// Does what an atomic, an atomic write, or a flush asks for, and gives the value before (0 for a
/// flush); nothing if the memory may not be written, or has no word there. Atomic for all that use
/// the memory, the processor included, although devices promise less.
std::optional<std::uint64_t> carry_out(packet_kind kind, const atomic_operands& operands,
                                       std::span<std::byte> memory) noexcept;

}  // namespace softverbs
