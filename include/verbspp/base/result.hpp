// SPDX-License-Identifier: Apache-2.0
/// \file
/// The return types of calls that can fail, for different kinds of failure. In your own functions,
/// return the first one that covers all the calls the function makes:
///
/// - `result<Value>`, with an `error`: a call that failed. Setup, teardown, posting, polling.
/// - `work_result<Value>`, with a `work_error`: a request that was posted, and failed.
/// - `batch_result`, with a `batch_error`: a call that failed, and the number of requests that it
///   posted first.
/// - `transport_result<Value>`, with a `transport_error`: any of these failures. The program can
///   test which one it is.
///
/// Their failures convert to `transport_error` and to `error`, implicitly and in `VERBSPP_TRY`, and
/// keep their details: `work_error::from` and `batch_error::from` return them. Scopes and groups
/// have two more types, `scope_result` and `group_result`. Their failures convert, too, but lose
/// details.
#pragma once

#include <verbspp/base/detail/outcome.hpp>
#include <verbspp/base/error.hpp>

#include <boost/outcome/success_failure.hpp>

#include <array>
#include <system_error>
#include <type_traits>
#include <utility>

namespace verbspp {

/// The exception that functions such as `result::value()` throw; `what()` is the error's message,
/// cut off after 511 characters.
class VERBSPP_EXCEPTION exception : public std::system_error {
 public:
  explicit exception(const class error& cause);
  [[nodiscard]] const class error& error() const noexcept { return error_; }
  [[nodiscard]] const char* what() const noexcept override { return text_.data(); }

 private:
  class error error_;
  std::array<char, 512> text_{};  // system_error::what() would add the errno's text a second time
};

/// The return type of a call that can fail with an `error`: it holds a `Value`, or the `error` that
/// explains why there is none.
///
/// `has_value()` and `bool` test for a value, `value()` returns it or throws `verbspp::exception`,
/// `error()` returns the failure, and `assume_value()` skips the check.
template <class Value>
using result = detail::outcome<Value, error>;

/// The success of a `result<void>`.
using BOOST_OUTCOME_V2_NAMESPACE::success;

namespace detail {

/// Returns the value for `VERBSPP_TRY`. A value that can't be moved is returned by reference.
template <class Value, class Error>
  requires std::is_move_constructible_v<Value>
[[nodiscard]] constexpr std::remove_cv_t<Value> tried(outcome<Value, Error>& from) {
  return std::move(from).assume_value();
}
template <class Value, class Error>
[[nodiscard]] constexpr Value& tried(outcome<Value, Error>& from) noexcept {
  return from.assume_value();
}

/// Returns the value for `VERBSPP_TRY` from the result types of other libraries. Their
/// `assume_value()` may return a reference, from which this function moves the value.
template <class Other>
[[nodiscard]] constexpr auto tried(Other& from) {
  return std::move(from).assume_value();
}

/// A copy of another outcome's success or error, without the value.
template <class Error>
struct copied_failure : outcome<void, Error> {
  template <class Value>
  constexpr copied_failure(const outcome<Value, Error>& from) noexcept
      : outcome<void, Error>(from.has_value() ? outcome<void, Error>(success())
                                              : outcome<void, Error>(from.assume_error())) {}
};

/// The type of the outcome that `VERBSPP_TRYV` stores and tests. If the macro's argument is a
/// temporary outcome, the macro moves the outcome into an object of this type. If the argument is a
/// variable, the macro stores a copy of the outcome or, if the value can't be copied, a copy of the
/// failure.
template <class Expression>
struct looked_at {
  using type = std::remove_cvref_t<Expression>;
};
template <class Value, class Error>
  requires(!std::is_copy_constructible_v<outcome<Value, Error>>)
struct looked_at<outcome<Value, Error>&> {
  using type = copied_failure<Error>;
};
template <class Value, class Error>
  requires(!std::is_copy_constructible_v<outcome<Value, Error>>)
struct looked_at<const outcome<Value, Error>&> {
  using type = copied_failure<Error>;
};

/// A range that contains the outcome if it is a failure, and is empty if it is a success.
template <class Outcome>
struct only_if_failed {
  [[nodiscard]] constexpr Outcome* begin() noexcept {
    return outcome.has_value() ? nullptr : &outcome;
  }
  [[nodiscard]] constexpr Outcome* end() noexcept { return nullptr; }

  Outcome outcome;
};
template <class Expression>
only_if_failed(Expression&&) -> only_if_failed<typename looked_at<Expression>::type>;

}  // namespace detail

}  // namespace verbspp

// The macros avoid __COUNTER__, which the newest clang reports as an extension. VERBSPP_TRY stores
// the outcome in a variable that is named after `name`, so that two uses in one scope conflict only
// if their names are the same. VERBSPP_TRYV stores it in the variable of a loop, whose scope is
// separate.
#define VERBSPP_DETAIL_TRY(give_back, name, ...)            \
  auto verbspp_tried_##name = (__VA_ARGS__);                \
  if (!verbspp_tried_##name.has_value()) [[unlikely]]       \
    give_back std::move(verbspp_tried_##name).as_failure(); \
  decltype(auto) name = ::verbspp::detail::tried(verbspp_tried_##name)

/// Evaluates an expression that returns a result. On success, declares `name` as the value. On
/// failure, returns the failure from the enclosing function. A value that can't be moved stays in
/// place until the end of the scope, and `name` is a reference to it.
#define VERBSPP_TRY(name, ...) VERBSPP_DETAIL_TRY(return, name, __VA_ARGS__)
/// Like `VERBSPP_TRY`, but for an expression without a value to bind, such as a `result<void>`.
// This is a loop and not an `if`, because an `if` would capture the `else` of an enclosing `if`.
#define VERBSPP_TRYV(...)                                                       \
  for (auto& verbspp_failed : ::verbspp::detail::only_if_failed{(__VA_ARGS__)}) \
  return std::move(verbspp_failed).as_failure()
/// The variants of `VERBSPP_TRY` and `VERBSPP_TRYV` for coroutines. They use co_return, so the
/// promise's `return_value` must accept a result.
// VERBSPP_CO_TRYV does not put the outcome into an aggregate, because g++ 11 and 12 destroy the
// members of an aggregate twice if the expression has a `co_await`.
#define VERBSPP_CO_TRY(name, ...) VERBSPP_DETAIL_TRY(co_return, name, __VA_ARGS__)
// With `auto&&`, the coroutine's frame would also have a reference. g++ 11 accepts only that form.
#if defined(__GNUC__) && !defined(__clang__) && __GNUC__ < 12
#define VERBSPP_DETAIL_AWAITED auto&&
#else
#define VERBSPP_DETAIL_AWAITED decltype(auto)
#endif
#define VERBSPP_CO_TRYV(...)                                                                  \
  for (VERBSPP_DETAIL_AWAITED verbspp_awaited = (__VA_ARGS__); !verbspp_awaited.has_value();) \
      [[unlikely]]                                                                            \
  co_return std::move(verbspp_awaited).as_failure()
