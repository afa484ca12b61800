// SPDX-License-Identifier: Apache-2.0
/// \file
/// Text and bytes of a limited length, as they travel in an exchange.
#pragma once

#include <verbspp/base/result.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace verbspp {

/// Up to `Maximum` bytes, kept in place.
///
/// A plain value. What came from a peer may be any bytes.
template <std::size_t Maximum>
class bounded_bytes {
  static_assert(Maximum > 0 && Maximum <= 16384,
                "what travels in an exchange is short: 1 to 16384 bytes; send the rest through the "
                "channel");

 public:
  static constexpr std::size_t maximum = Maximum;

  constexpr bounded_bytes() noexcept = default;
  /// \errors `invalid_input` if these are more than `Maximum`
  [[nodiscard]] static constexpr result<bounded_bytes> from(
      std::span<const std::byte> bytes) noexcept {
    if (bytes.size() > Maximum)
      return error::above_limit("bounded_bytes::from", "length, bytes", bytes.size(), Maximum);
    bounded_bytes made;
    std::copy(bytes.begin(), bytes.end(), made.bytes_.begin());
    made.size_ = static_cast<std::uint16_t>(bytes.size());
    return made;
  }

  [[nodiscard]] constexpr std::size_t size() const noexcept { return size_; }
  [[nodiscard]] constexpr bool empty() const noexcept { return size_ == 0; }
  [[nodiscard]] constexpr std::span<const std::byte> view() const& noexcept VERBSPP_LIFETIMEBOUND {
    return std::span(bytes_).first(size_);
  }
  std::span<const std::byte> view() const&& = delete;

  friend constexpr bool operator==(const bounded_bytes& a, const bounded_bytes& b) noexcept {
    return std::ranges::equal(a.view(), b.view());
  }

 private:
  std::array<std::byte, Maximum> bytes_{};
  std::uint16_t size_ = 0;
};

/// A text of up to `Maximum` bytes, kept in place.
///
/// A plain value. What came from a peer may be any bytes, zeros and control characters among them.
template <std::size_t Maximum>
class bounded_text {
  static_assert(Maximum > 0 && Maximum <= 16384,
                "what travels in an exchange is short: 1 to 16384 bytes; send the rest through the "
                "channel");

 public:
  static constexpr std::size_t maximum = Maximum;

  constexpr bounded_text() noexcept = default;
  /// A literal that fits.
  template <std::size_t Size>
    requires(Size <= Maximum + 1)
  constexpr bounded_text(const char (&literal)[Size]) noexcept {
    set(std::string_view(literal));
  }
  /// \errors `invalid_input` if it is longer than `Maximum`
  [[nodiscard]] static constexpr result<bounded_text> from(std::string_view text) noexcept {
    if (text.size() > Maximum)
      return error::above_limit("bounded_text::from", "length, bytes", text.size(), Maximum);
    bounded_text made;
    made.set(text);
    return made;
  }

  [[nodiscard]] constexpr std::size_t size() const noexcept { return size_; }
  [[nodiscard]] constexpr bool empty() const noexcept { return size_ == 0; }
  [[nodiscard]] constexpr std::string_view view() const& noexcept VERBSPP_LIFETIMEBOUND {
    return {text_.data(), size_};
  }
  std::string_view view() const&& = delete;

  friend constexpr bool operator==(const bounded_text& a, const bounded_text& b) noexcept {
    return a.view() == b.view();
  }

 private:
  constexpr void set(std::string_view text) noexcept {
    std::copy(text.begin(), text.end(), text_.begin());
    size_ = static_cast<std::uint16_t>(text.size());
  }

  std::array<char, Maximum> text_{};
  std::uint16_t size_ = 0;
};

}  // namespace verbspp
