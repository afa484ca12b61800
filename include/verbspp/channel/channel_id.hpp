// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <cstdint>
#include <iosfwd>

namespace verbspp {

/// Which channel of a hub: what arrives from it says so.
///
/// Indexes are small and dense, below the hub's number of channels, and are used again when a
/// channel is gone; the generation tells the channels of one index apart. So a program keeps its
/// own data in a plain array, and compares the id of what is there.
struct channel_id {
  std::uint32_t index = 0;
  std::uint32_t generation = 0;  ///< 0 is that of no channel of a hub

  friend constexpr auto operator<=>(const channel_id&, const channel_id&) noexcept = default;
};

std::ostream& operator<<(std::ostream& out, const channel_id& id);

}  // namespace verbspp
