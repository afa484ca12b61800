// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/detail/because.hpp>

#include <infiniband/verbs.h>

#include <cstdint>
#include <optional>
#include <type_traits>

namespace verbspp {

/// 32 bits that accompany a send or an RDMA write, and appear in the receiver's completion.
///
/// They are stored in host byte order and sent in network byte order, so both ends see the same
/// number.
class immediate_data {
 public:
  constexpr explicit immediate_data(std::uint32_t value) noexcept : value_(value) {}
  /// Rejects numbers with more than 32 bits and floating-point numbers, which would be truncated.
  template <class Number>
  explicit immediate_data(Number)
      VERBSPP_DETAIL_REFUSED((std::is_arithmetic_v<Number> &&
                              (sizeof(Number) > sizeof(std::uint32_t) ||
                               std::is_floating_point_v<Number>)),
                             "immediate data is a 32-bit integer: to convert another number, write "
                             "immediate_data(static_cast<std::uint32_t>(value))");
  [[nodiscard]] static immediate_data from_network(__be32 value) noexcept {
    return immediate_data(big_endian(value));
  }
  [[nodiscard]] constexpr std::uint32_t value() const noexcept { return value_; }
  [[nodiscard]] __be32 network() const noexcept { return big_endian(value_); }
  friend constexpr bool operator==(immediate_data, immediate_data) noexcept = default;

 private:
  // This function is used instead of htonl, because clang can check even without optimization that
  // this function does not block.
  static constexpr std::uint32_t big_endian(std::uint32_t number) noexcept {
    return __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ ? __builtin_bswap32(number) : number;
  }

  std::uint32_t value_;
};

/// The immediate data of an operation, or nothing. This is a `std::optional` that rejects plain
/// numbers with a message.
class optional_immediate_data : public std::optional<immediate_data> {
 public:
  using std::optional<immediate_data>::optional;
  constexpr optional_immediate_data(const std::optional<immediate_data>& other) noexcept
      : optional(other) {}
  template <class Number>
  optional_immediate_data(Number) VERBSPP_DETAIL_REFUSED(
      std::is_arithmetic_v<Number>,
      "a number does not convert to immediate data implicitly: write immediate_data(number)");
};

namespace detail {

/// The default value in operations: a constant, which g++ 12 tracks through copies in a coroutine's
/// frame, unlike the result of a constructor.
inline constexpr optional_immediate_data no_immediate_data;

}  // namespace detail

}  // namespace verbspp
