// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/error.hpp>

#include <boost/outcome/basic_result.hpp>
#include <boost/outcome/success_failure.hpp>

#include <array>
#include <system_error>
#include <utility>

namespace verbspp {

/// What `result::value()` throws; `what()` is the error's message.
class VERBSPP_EXCEPTION exception : public std::system_error {
 public:
  explicit exception(const class error& cause);
  [[nodiscard]] const class error& error() const noexcept { return error_; }
  [[nodiscard]] const char* what() const noexcept override { return text_.data(); }

 private:
  class error error_;
  std::array<char, 512> text_{};  // what system_error makes would repeat the errno's text
};

namespace detail {

/// Throws `exception`; without exceptions it prints the message and aborts.
[[noreturn]] void throw_error(const error& e);
/// The same for a result whose error was asked for although it holds a value.
[[noreturn]] void throw_no_error();

/// What Outcome does when a value is taken out of a failure.
template <class ThrowError>
struct throwing_policy : BOOST_OUTCOME_V2_NAMESPACE::policy::base {
  template <class Impl>
  static constexpr void wide_value_check(Impl&& self) {
    if (!base::_has_value(self)) ThrowError{}(base::_error(self));
  }
  template <class Impl>
  static constexpr void wide_error_check(Impl&& self) {
    if (!base::_has_error(self)) throw_no_error();
  }
  template <class Impl>
  static constexpr void wide_exception_check(Impl&&) noexcept {}
  template <class Impl>
  static constexpr void narrow_value_check(Impl&& self) noexcept {
    if (!base::_has_value(self)) __builtin_unreachable();
  }
  template <class Impl>
  static constexpr void narrow_error_check(Impl&& self) noexcept {
    if (!base::_has_error(self)) __builtin_unreachable();
  }
  template <class Impl>
  static constexpr void narrow_exception_check(Impl&&) noexcept {}
};

struct throw_verbs_error {
  [[noreturn]] void operator()(const error& e) const { throw_error(e); }
};

}  // namespace detail

/// What every call that can fail returns: a `Value`, or the `error` that says why not.
///
/// `has_value()`/`bool` ask, `value()` returns or throws `verbspp::exception`, `error()` gives the
/// failure, `assume_value()` skips the check.
template <class Value>
using result =
    BOOST_OUTCOME_V2_NAMESPACE::basic_result<Value, error,
                                             detail::throwing_policy<detail::throw_verbs_error>>;

/// The success of a `result<void>`.
using BOOST_OUTCOME_V2_NAMESPACE::success;

#define VERBSPP_DETAIL_JOIN2(a, b) a##b
#define VERBSPP_DETAIL_JOIN(a, b) VERBSPP_DETAIL_JOIN2(a, b)
#define VERBSPP_DETAIL_TRY(outcome, name, ...)                      \
  auto outcome = (__VA_ARGS__);                                     \
  if (!outcome.has_value()) return std::move(outcome).as_failure(); \
  auto name = std::move(outcome).assume_value()
// Not an `if`: that would take the `else` of the one it stands in.
#define VERBSPP_DETAIL_TRYV(outcome, ...) \
  for (auto outcome = (__VA_ARGS__); !outcome.has_value();) return std::move(outcome).as_failure()

/// Declares `name` as the value of the result that the expression gives, or returns its failure
/// from the enclosing function.
#define VERBSPP_TRY(name, ...) \
  VERBSPP_DETAIL_TRY(VERBSPP_DETAIL_JOIN(verbspp_try_, __LINE__), name, __VA_ARGS__)
/// The same where there is no value to bind, such as for `result<void>`.
#define VERBSPP_TRYV(...) \
  VERBSPP_DETAIL_TRYV(VERBSPP_DETAIL_JOIN(verbspp_try_, __LINE__), __VA_ARGS__)

}  // namespace verbspp
