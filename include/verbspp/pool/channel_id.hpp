// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <compare>
#include <cstdint>
#include <iosfwd>

namespace verbspp {

/// Identifies a channel in its hub. Each `arrival` contains the id of its channel.
///
/// Indexes are small and dense, below the hub's maximum number of channels. An index may be reused
/// when its channel has left the hub; the generation distinguishes the channels that had the same
/// index. So a program can keep its data about channels in a plain array, together with their ids:
/// if the id in an entry differs from the id in an arrival, one of them belongs to an earlier
/// channel.
struct channel_id {
  std::uint32_t index = 0;
  std::uint32_t generation = 0;  ///< 0 if the channel is in no hub

  friend constexpr auto operator<=>(const channel_id&, const channel_id&) noexcept = default;
  /// Compares both members at once.
  friend constexpr bool operator==(const channel_id& one, const channel_id& other) noexcept {
    return std::bit_cast<std::uint64_t>(one) == std::bit_cast<std::uint64_t>(other);
  }
};

std::ostream& operator<<(std::ostream& out, const channel_id& id);

}  // namespace verbspp
