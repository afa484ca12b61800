// SPDX-License-Identifier: Apache-2.0
/// \file
/// Definitions that both ends need: how the peer's memory is laid out, and what messages
/// contain.
#pragma once

#include "patterns.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace verbspp::soak {

inline constexpr std::size_t slot_count = 96;
inline constexpr std::uint32_t inline_limit = 64;
inline constexpr std::array<std::size_t, 8> block_sizes{8, 40, 64, 256, 1000, 4096, longest, 512};
inline constexpr std::size_t gap_size = 64;
inline constexpr std::size_t leased_size = 4096;
/// The size of the words that atomics use, including the unused space after them.
inline constexpr std::size_t words_size = 64;
inline constexpr std::size_t exposed_size = [] {
  std::size_t all = words_size + gap_size;
  for (const std::size_t each : block_sizes) all += (each + 7) / 8 * 8 + gap_size;
  return all;
}();

/// Returns the offset of a block in the memory that is exposed to the peer.
[[nodiscard]] inline std::uint64_t block_offset(unsigned block) {
  std::uint64_t at = words_size + gap_size;
  for (unsigned i = 0; i < block; ++i) at += (block_sizes[i] + 7) / 8 * 8 + gap_size;
  return at;
}

/// The properties of a message. Both ends calculate them from the numbers of the connection, the
/// sender and the message.
struct message_plan {
  std::uint64_t content;
  std::size_t size;
  std::optional<std::uint32_t> immediate;
  unsigned block;  ///< the block to write, if the message is a write with immediate data
};
[[nodiscard]] inline message_plan plan_of(std::uint64_t connection, unsigned sender,
                                          std::uint64_t number) {
  const std::uint64_t chance = mix(connection, sender, number);
  std::size_t size = chance % 65;
  if (chance >> 60 == 0)
    size = (chance >> 8) % (longest + 1);
  else if (chance >> 60 < 4)
    size = (chance >> 8) % 1000;
  std::optional<std::uint32_t> immediate;
  if ((chance >> 59) % 2 == 0) immediate = static_cast<std::uint32_t>(chance >> 20);
  return {mix(chance), size, immediate, static_cast<unsigned>((chance >> 30) % block_sizes.size())};
}
[[nodiscard]] inline std::uint64_t first_content(std::uint64_t connection, unsigned owner,
                                                 unsigned block) {
  return mix(connection, owner, block, 77);
}

}  // namespace verbspp::soak
