// SPDX-License-Identifier: Apache-2.0
/// \file
/// Types for text and bytes of limited length, which can be sent in an exchange.
#pragma once

#include <verbspp/base/result.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace verbspp {

namespace detail {

/// Up to `Maximum` elements, stored in place.
template <class Element, std::size_t Maximum>
class bounded_array {
  static_assert(Maximum > 0 && Maximum <= 16384,
                "the maximum length of a bounded_text or bounded_bytes must be 1 to 16384 bytes: "
                "send larger data after the exchange, over the connection");

 public:
  static constexpr std::size_t maximum = Maximum;

  [[nodiscard]] constexpr std::size_t size() const noexcept { return size_; }
  [[nodiscard]] constexpr bool empty() const noexcept { return size_ == 0; }

 protected:
  constexpr bounded_array() noexcept = default;

  /// Copies the elements.
  /// \errors `invalid_input` for more than `Maximum` elements
  [[nodiscard]] constexpr result<void> set(const char* operation,
                                           std::span<const Element> elements) noexcept {
    if (elements.size() > Maximum)
      return error::above_limit(operation, "length in bytes", elements.size(), Maximum);
    std::copy(elements.begin(), elements.end(), elements_.begin());
    size_ = static_cast<std::uint16_t>(elements.size());
    return success();
  }
  [[nodiscard]] constexpr std::span<const Element> elements() const noexcept {
    return std::span(elements_).first(size_);
  }

 private:
  std::array<Element, Maximum> elements_{};
  std::uint16_t size_ = 0;
};

}  // namespace detail

/// Up to `Maximum` bytes, stored in place.
///
/// A plain value. If it was received from a peer, it may contain any bytes.
template <std::size_t Maximum>
class bounded_bytes : public detail::bounded_array<std::byte, Maximum> {
 public:
  constexpr bounded_bytes() noexcept = default;
  /// Copies the bytes.
  /// \errors `invalid_input` for more than `Maximum` bytes
  [[nodiscard]] static constexpr result<bounded_bytes> from(
      std::span<const std::byte> bytes) noexcept {
    bounded_bytes made;
    VERBSPP_TRYV(made.set("bounded_bytes::from", bytes));
    return made;
  }

  [[nodiscard]] constexpr std::span<const std::byte> view() const& noexcept VERBSPP_LIFETIMEBOUND {
    return this->elements();
  }
  [[nodiscard]] std::span<const std::byte> view() const&& = delete;

  friend constexpr bool operator==(const bounded_bytes& a, const bounded_bytes& b) noexcept {
    return std::ranges::equal(a.view(), b.view());
  }
};

/// Text of up to `Maximum` bytes, stored in place.
///
/// A plain value. If it was received from a peer, it may contain any bytes, including zeros and
/// control characters.
template <std::size_t Maximum>
class bounded_text : public detail::bounded_array<char, Maximum> {
 public:
  constexpr bounded_text() noexcept = default;
  /// A literal of up to `Maximum` characters.
  template <std::size_t Size>
    requires(Size <= Maximum + 1)
  constexpr bounded_text(const char (&literal)[Size]) noexcept {
    static_cast<void>(this->set("bounded_text", std::string_view(literal)));
  }
  /// Copies the text.
  /// \errors `invalid_input` for more than `Maximum` bytes
  [[nodiscard]] static constexpr result<bounded_text> from(std::string_view text) noexcept {
    bounded_text made;
    VERBSPP_TRYV(made.set("bounded_text::from", text));
    return made;
  }

  [[nodiscard]] constexpr std::string_view view() const& noexcept VERBSPP_LIFETIMEBOUND {
    return {this->elements().data(), this->size()};
  }
  [[nodiscard]] std::string_view view() const&& = delete;

  friend constexpr bool operator==(const bounded_text& a, const bounded_text& b) noexcept {
    return a.view() == b.view();
  }
};

}  // namespace verbspp
