// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/detail/literal.hpp>
#include <verbspp/base/result.hpp>

#include <compare>
#include <cstddef>
#include <system_error>  // declares std::hash, and is already included by other headers
#include <utility>

namespace verbspp {

namespace detail {
/// This function is deliberately not constexpr, so that a constant expression that calls it does
/// not compile. The diagnostic then shows the function's name. It has a definition because clang 14
/// evaluates the constants in default member initializers at run time.
void value_is_out_of_range();
}  // namespace detail

/// An integer within a fixed range.
///
/// A literal converts implicitly, and a literal that is out of range does not compile. For a value
/// that is known only at run time, call `from`, which checks it. `Traits` defines `value_type`,
/// `minimum`, `maximum` and `name`. Error messages show the name, which includes the range.
template <class Traits>
class bounded {
 public:
  using value_type = typename Traits::value_type;
  static constexpr value_type minimum = Traits::minimum;
  static constexpr value_type maximum = Traits::maximum;

  constexpr bounded() noexcept = default;
  template <detail::Number Integer>
  consteval bounded(const Integer& value) noexcept
      : value_(static_cast<value_type>(VERBSPP_DETAIL_LITERAL(value))) {
    if (!in_range(value)) detail::value_is_out_of_range();
  }
  VERBSPP_DETAIL_NUMBERS_ONLY(bounded);

  /// \errors `invalid_input` if the value is out of range; the message shows the name, the range
  /// and the value
  template <detail::Number Integer>
  [[nodiscard]] static constexpr result<bounded> from(Integer value) noexcept {
    if (!in_range(value)) return error::out_of_range("parameter", Traits::name, value);
    return assume(static_cast<value_type>(value));
  }
  /// Converts `value` without checking the range. The caller must ensure that it is in range.
  [[nodiscard]] static constexpr bounded assume(value_type value) noexcept {
    bounded result;
    result.value_ = value;
    return result;
  }

  [[nodiscard]] constexpr value_type value() const noexcept { return value_; }
  friend constexpr auto operator<=>(bounded, bounded) noexcept = default;

 private:
  template <detail::Number Integer>
  [[nodiscard]] static constexpr bool in_range(Integer value) noexcept {
    return !std::cmp_less(value, Traits::minimum) && !std::cmp_greater(value, Traits::maximum);
  }

  value_type value_ = Traits::minimum;
};

}  // namespace verbspp

template <class Traits>
struct std::hash<verbspp::bounded<Traits>> {
  [[nodiscard]] std::size_t operator()(verbspp::bounded<Traits> number) const noexcept {
    return static_cast<std::size_t>(number.value());
  }
};
