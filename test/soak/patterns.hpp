// SPDX-License-Identifier: Apache-2.0
/// \file
/// Bytes that are generated from a number, which is called their tag. Each end that knows the
/// tag can check them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

namespace verbspp::soak {

/// The largest size that messages, blocks and parts of memory can have.
inline constexpr std::size_t longest = 9216;

/// Returns a hash (splitmix64) of one or several numbers.
[[nodiscard]] constexpr std::uint64_t mix(std::uint64_t value) {
  value += 0x9e3779b97f4a7c15;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9;
  value = (value ^ (value >> 27)) * 0x94d049bb133111eb;
  return value ^ (value >> 31);
}
template <class... More>
[[nodiscard]] constexpr std::uint64_t mix(std::uint64_t value, More... more) {
  return mix(value ^ mix(static_cast<std::uint64_t>(more)...));
}

/// Returns `size` of the bytes that are generated from `tag`, starting at `offset`. `offset` +
/// `size` is at most `longest`.
[[nodiscard]] inline std::span<const std::byte> bytes_of(std::uint64_t tag, std::size_t offset,
                                                         std::size_t size) {
  constexpr std::size_t all = 1 << 16;
  static const std::vector<std::byte> table = [] {
    std::vector<std::byte> made(all + 2 * longest);
    for (std::size_t i = 0; i < made.size(); ++i) made[i] = static_cast<std::byte>(mix(i) >> 8);
    return made;
  }();
  return std::span(table).subspan(static_cast<std::size_t>(mix(tag) % all) + offset, size);
}

/// A part of a `place`, which one scatter-gather element describes.
struct range {
  std::size_t offset = 0;
  std::size_t size = 0;
};

/// Memory that belongs alternately to the program and to the device. While it belongs to the
/// program, it is filled with bytes that are generated from its own tag, so that a late write by
/// the device is detected.
struct place {
  std::byte* data = nullptr;
  std::size_t size = 0;
  std::uint64_t tag = 0;

  /// Called when the memory belongs to the program again. Fills it with bytes that are generated
  /// from a new tag.
  void fill() {
    tag = mix(tag);
    std::memcpy(data, bytes_of(tag, 0, size).data(), size);
  }
  [[nodiscard]] bool holds(std::uint64_t which, std::size_t from, range part) const {
    return part.size == 0 ||
           std::memcmp(data + part.offset, bytes_of(which, from, part.size).data(), part.size) == 0;
  }
  /// Returns true if the first `count` bytes of the concatenated ranges are those that were
  /// generated from `content`, starting at offset `skipped`, and all other bytes are unchanged.
  [[nodiscard]] bool is_as_filled(std::span<const range> ranges, std::uint64_t content,
                                  std::size_t skipped, std::size_t count) const {
    std::size_t at = 0;
    std::size_t done = 0;
    for (const range& each : ranges) {
      const std::size_t here = std::min(each.size, count - done);
      if (!holds(tag, at, {at, each.offset - at}) ||
          !holds(content, skipped + done, {each.offset, here}))
        return false;
      at = each.offset + here;
      done += here;
    }
    return done == count && holds(tag, at, {at, size - at});
  }
  [[nodiscard]] bool is_untouched() const { return holds(tag, 0, {0, size}); }
  /// Fills the ranges with the bytes that are generated from `content`.
  void put(std::span<const range> ranges, std::uint64_t content) const {
    std::size_t done = 0;
    for (const range& each : ranges) {
      if (each.size != 0)
        std::memcpy(data + each.offset, bytes_of(content, done, each.size).data(), each.size);
      done += each.size;
    }
  }
};

}  // namespace verbspp::soak
