// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/detail/literal.hpp>

#include <optional>
#include <type_traits>

namespace verbspp {

namespace detail {
/// The default `Need` of `optional_setting`: the setting has a default value, so it may be omitted.
struct not_required {
  static constexpr bool required = false;
};
}  // namespace detail

/// The parameter of a setter whose value may be left at its default: a `Value`, anything that
/// converts to one, or a `std::optional<Value>`, where empty means the default. A program that has
/// a value only in some cases can therefore make the same chain of calls in all of them.
///
/// The compiler checks literals as it does for a `Value` parameter. If `Need::required` is true,
/// there is no default, and an optional is rejected with a message.
template <class Value, class Need = detail::not_required>
class optional_setting {
  // True if integers convert to `Value`. The library's classes of this kind, such as `bounded`,
  // accept only constants, so the constructor below is `consteval`.
  static constexpr bool from_literals =
      std::is_convertible_v<int, Value> && !std::is_arithmetic_v<Value>;

 public:
  constexpr optional_setting(const Value& value) noexcept : value_(value) {}
  constexpr optional_setting(const std::optional<Value>& value) noexcept
    requires(!Need::required)
      : value_(value) {}
  optional_setting(const std::optional<Value>&)
      VERBSPP_DETAIL_REFUSED(Need::required,
                             "this value is required, so an optional, which may be empty, is not "
                             "accepted: test it first, and pass *value");
  constexpr optional_setting(std::nullopt_t) noexcept
    requires(!Need::required)
  {}
  template <class Literal>
    requires(from_literals && std::is_convertible_v<Literal, Value>)
  consteval optional_setting(const Literal& literal) noexcept
      : value_(Value(VERBSPP_DETAIL_LITERAL(literal))) {}
  template <class Other>
    requires(!from_literals && !std::is_arithmetic_v<Value> &&
             std::is_convertible_v<const Other&, Value>)
  constexpr optional_setting(const Other& other) noexcept : value_(Value(other)) {}

  [[nodiscard]] constexpr bool has_value() const noexcept { return value_.has_value(); }
  /// Returns the value. \pre `has_value()`
  [[nodiscard]] constexpr const Value& operator*() const noexcept { return *value_; }
  /// Assigns the value, if there is one, to `target`, which holds the default.
  template <class Target>
  constexpr void replace(Target& target) const noexcept {
    if (value_) target = *value_;
  }

 private:
  std::optional<Value> value_;
};

}  // namespace verbspp
