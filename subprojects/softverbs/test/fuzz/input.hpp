// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>

/// Code that the fuzz targets share.
namespace fuzz {

inline void require(bool holds) {
  if (!holds) std::abort();
}

/// The fuzzer's input, which is read from its beginning. Once it is used up, all further values are
/// zero.
class input {
 public:
  input(const std::uint8_t* bytes, std::size_t length) noexcept : left_(bytes, length) {}

  bool is_empty() const noexcept { return left_.empty(); }
  template <typename Number>
  Number take() noexcept {
    Number result{};
    const auto bytes = take_bytes(sizeof(result));
    if (!bytes.empty()) std::memcpy(&result, bytes.data(), bytes.size());
    return result;
  }
  /// Returns a number below `end`. `end` is at most 256.
  unsigned below(unsigned end) noexcept { return take<std::uint8_t>() % end; }
  /// Returns the next `count` bytes, or all that are left if there are fewer.
  std::span<const std::uint8_t> take_bytes(std::size_t count) noexcept {
    const auto taken = left_.first(std::min(count, left_.size()));
    left_ = left_.subspan(taken.size());
    return taken;
  }

 private:
  std::span<const std::uint8_t> left_;
};

}  // namespace fuzz
