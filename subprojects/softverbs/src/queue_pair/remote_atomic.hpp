// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "wire/packet.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace softverbs {

/// The size of an atomic operation in bytes. Its address must be a multiple of this size.
inline constexpr std::uint32_t atomic_bytes = 8;

/// Carries out an atomic, an atomic write or a flush. Returns the previous value (0 for a flush).
/// Returns nothing if this fails, for example because the memory can't be written, or is not
/// aligned to 8 bytes. Atomics and atomic writes are atomic for all accesses to the memory, even
/// those by processors, which is more than many network cards guarantee.
std::optional<std::uint64_t> carry_out(packet_kind kind, const atomic_operands& operands,
                                       std::span<std::byte> memory) noexcept;

}  // namespace softverbs
