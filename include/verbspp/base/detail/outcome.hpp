// SPDX-License-Identifier: Apache-2.0
/// \file
/// What `result` and its like are: a value or an error, in one implementation.
///
/// Boost.Outcome gives the words for success and failure, and its macros work with it. Its own
/// `basic_result` is not used: it constructs an error beside each value, which the data path would
/// pay for, and its `value()` of a temporary is a reference to what ends with the expression.
#pragma once

#include <verbspp/base/config.hpp>
#include <verbspp/base/detail/because.hpp>

#include <boost/outcome/success_failure.hpp>

#include <cassert>
#include <new>
#include <type_traits>
#include <utility>

namespace verbspp::detail {

template <class Value, class Error>
class outcome;

using BOOST_OUTCOME_V2_NAMESPACE::failure_type;
using BOOST_OUTCOME_V2_NAMESPACE::success_type;

/// What a function's return value has to offer: the value of an outcome, or else itself.
template <class Returned>
struct value_within {
  using type = Returned;
};
template <class Value, class Error>
struct value_within<outcome<Value, Error>> {
  using type = Value;
};
template <class Returned>
using value_within_t = typename value_within<Returned>::type;

/// For what an outcome has constructors of their own, whatever its value could be made from.
template <class T>
inline constexpr bool is_outcome_or_sugar = false;
template <class Value, class Error>
inline constexpr bool is_outcome_or_sugar<outcome<Value, Error>> = true;
template <class T>
inline constexpr bool is_outcome_or_sugar<success_type<T>> = true;
template <class T>
inline constexpr bool is_outcome_or_sugar<failure_type<T>> = true;

/// What becomes the value: what is of its type, and what converts to it but not to an error.
template <class From, class Value, class Error, class Plain = std::remove_cvref_t<From>>
concept ValueOf = !std::is_same_v<Plain, Error> && std::is_convertible_v<From, Value> &&
                  (std::is_same_v<Plain, std::remove_cv_t<Value>> ||
                   (!is_outcome_or_sugar<Plain> && !std::is_convertible_v<From, Error>));

/// What becomes the error without being one: what converts to it but not to a value.
template <class From, class Value, class Error, class Plain = std::remove_cvref_t<From>>
concept ErrorOf = !std::is_same_v<Plain, Error> && !is_outcome_or_sugar<Plain> &&
                  !std::is_same_v<Plain, std::remove_cv_t<Value>> &&
                  std::is_convertible_v<From, Error> && !std::is_convertible_v<From, Value>;

struct as_value {};
struct as_error {};
struct nothing {};

/// Has the special members that its arguments say.
template <bool Copies, bool Moves>
struct movability {};
template <>
struct movability<false, true> {
  movability() = default;
  movability(const movability&) = delete;
  movability(movability&&) = default;
  movability& operator=(const movability&) = delete;
  movability& operator=(movability&&) = default;
  ~movability() = default;
};
template <>
struct movability<false, false> {
  movability() = default;
  movability(const movability&) = delete;
  movability& operator=(const movability&) = delete;
  ~movability() = default;
};

/// A value, or an error, in the same place.
template <class Value, class Error, bool IsTrivial = std::is_trivially_copyable_v<Value>>
struct either {
  template <class... Arguments>
  constexpr explicit either(as_value, Arguments&&... arguments)
      : value(std::forward<Arguments>(arguments)...), has_value(true) {}
  constexpr either(as_error, const Error& cause) noexcept : error(cause), has_value(false) {}

  union {
    Value value;
    Error error;
  };
  bool has_value;
};

template <class Value, class Error>
struct managed_either {
  template <class... Arguments>
  explicit managed_either(as_value, Arguments&&... arguments)
      : value(std::forward<Arguments>(arguments)...), has_value(true) {}
  managed_either(as_error, const Error& cause) noexcept : error(cause), has_value(false) {}
  managed_either(const managed_either& other) : none(), has_value(other.has_value) {
    construct(other);
  }
  managed_either(managed_either&& other) noexcept : none(), has_value(other.has_value) {
    construct(std::move(other));
  }
  managed_either& operator=(const managed_either& other) { return *this = managed_either(other); }
  /// What was there is destroyed at once.
  managed_either& operator=(managed_either&& other) noexcept {
    if (this == &other) return *this;
    destroy();
    construct(std::move(other));
    return *this;
  }
  // Inline: where a result's address is given away, all of it is in memory.
  VERBSPP_DATA_PATH ~managed_either() { destroy(); }

  template <class Other>
  void construct(Other&& other) {
    if (other.has_value)
      ::new (static_cast<void*>(__builtin_addressof(value)))
          Value(std::forward<Other>(other).value);
    else
      ::new (static_cast<void*>(__builtin_addressof(error))) Error(other.error);
    has_value = other.has_value;
  }
  VERBSPP_DATA_PATH void destroy() noexcept {
    if (has_value) value.~Value();
  }

  union {
    nothing none;
    Value value;
    Error error;
  };
  bool has_value;
};

template <class Value, class Error>
struct either<Value, Error, false>
    : managed_either<Value, Error>,
      movability<std::is_copy_constructible_v<Value>, std::is_move_constructible_v<Value>> {
  using managed_either<Value, Error>::managed_either;
};

[[noreturn]] void throw_no_error();

/// A `Value`, or the `Error` that says why there is none.
template <class Value, class Error>
class [[nodiscard]] outcome {
  static_assert(!std::is_reference_v<Value>,
                "a result holds no reference: return a pointer, or the value itself");
  static_assert(!std::is_array_v<Value>, "a result holds no array: return a std::array");
  static_assert(!std::is_same_v<std::remove_cv_t<Value>, Error>,
                "a result's value can't be of the type of its error");
  static_assert(std::is_trivially_copyable_v<Error>);

  static constexpr bool is_void = std::is_void_v<Value>;
  using stored = std::conditional_t<is_void, nothing, std::remove_reference_t<Value>>;
  using taken = std::remove_cv_t<Value>;

 public:
  using value_type = Value;
  using error_type = Error;

  template <class From>
    requires ValueOf<From, Value, Error>
  constexpr outcome(From&& value) noexcept(std::is_nothrow_constructible_v<stored, From>)
      : either_(as_value(), std::forward<From>(value)) {}
  constexpr outcome(const Error& error) noexcept : either_(as_error(), error) {}
  template <class From>
    requires ErrorOf<From, Value, Error>
  constexpr outcome(From&& error) noexcept : either_(as_error(), std::forward<From>(error)) {}
  /// The value is constructed in the result, where it stays if it can't be moved.
  template <class... Arguments>
    requires std::is_constructible_v<stored, Arguments...>
  constexpr explicit outcome(std::in_place_t, Arguments&&... arguments) noexcept(
      std::is_nothrow_constructible_v<stored, Arguments...>)
      : either_(as_value(), std::forward<Arguments>(arguments)...) {}

  constexpr outcome(success_type<void>) noexcept(std::is_nothrow_default_constructible_v<stored>)
    requires std::is_default_constructible_v<stored>
      : either_(as_value()) {}
  template <class From>
    requires std::is_convertible_v<From, Value>
  constexpr outcome(success_type<From> success) : either_(as_value(), std::move(success).value()) {}
  template <class From>
    requires std::is_convertible_v<From, Error>
  constexpr outcome(const failure_type<From>& failure) noexcept
      : either_(as_error(), failure.error()) {}

  /// One whose value and whose error both convert.
  template <class From, class Cause>
    requires(!std::is_same_v<outcome<From, Cause>, outcome> &&
             !std::is_same_v<outcome<From, Cause>, taken> && std::is_convertible_v<From, Value> &&
             std::is_convertible_v<Cause, Error>)
  constexpr outcome(outcome<From, Cause> other)
      : either_(other.has_value() ? from_value(other) : either_type(as_error(), other.error())) {}

  // What a loop over it asks for.
  template <class Nothing = void>
  void begin() const
      VERBSPP_DETAIL_REFUSED(std::is_void_v<Nothing>,
                             "this is a result, which may hold an error: go through what it holds, "
                             "as in for (... : q.poll(slots).value())");
  void end() const = delete;

  [[nodiscard]] constexpr bool has_value() const noexcept { return either_.has_value; }
  [[nodiscard]] constexpr bool has_error() const noexcept { return !either_.has_value; }
  [[nodiscard]] constexpr bool has_failure() const noexcept { return !either_.has_value; }
  constexpr explicit operator bool() const noexcept { return either_.has_value; }

  /// The value; where there is none, the error is raised.
  constexpr std::add_lvalue_reference_t<Value> value() & VERBSPP_LIFETIMEBOUND {
    if (!either_.has_value) [[unlikely]]
      raise();
    return assume_value();
  }
  // NOLINTBEGIN(modernize-use-nodiscard): also called for the exception alone
  constexpr std::add_lvalue_reference_t<const Value> value() const& VERBSPP_LIFETIMEBOUND {
    if (!either_.has_value) [[unlikely]]
      raise();
    return assume_value();
  }
  /// Of a temporary, the value itself: it does not end with the expression.
  constexpr taken value() && {
    if (!either_.has_value) [[unlikely]]
      raise();
    return std::move(*this).assume_value();
  }
  constexpr taken value() const&& {
    if (!either_.has_value) [[unlikely]]
      raise();
    return std::move(*this).assume_value();
  }

  /// The value of what is known to have one: debug builds assert it.
  constexpr std::add_lvalue_reference_t<Value> assume_value() & noexcept VERBSPP_LIFETIMEBOUND {
    expect(either_.has_value);
    if constexpr (!is_void) return either_.value;
  }
  constexpr std::add_lvalue_reference_t<const Value> assume_value() const& noexcept
      VERBSPP_LIFETIMEBOUND {
    expect(either_.has_value);
    if constexpr (!is_void) return either_.value;
  }
  constexpr taken assume_value() && {
    expect(either_.has_value);
    if constexpr (!is_void) return take(std::move(either_.value));
  }
  constexpr taken assume_value() const&& {
    expect(either_.has_value);
    if constexpr (!is_void) return take(std::move(either_.value));
  }
  // NOLINTEND(modernize-use-nodiscard)

  /// The error; it throws where there is none, instead of making one up.
  [[nodiscard]] constexpr const Error& error() const& VERBSPP_LIFETIMEBOUND {
    if (either_.has_value) [[unlikely]]
      throw_no_error();
    return either_.error;
  }
  [[nodiscard]] constexpr Error error() const&& {
    if (either_.has_value) [[unlikely]]
      throw_no_error();
    return either_.error;
  }
  [[nodiscard]] constexpr const Error& assume_error() const& noexcept VERBSPP_LIFETIMEBOUND {
    expect(!either_.has_value);
    return either_.error;
  }
  [[nodiscard]] constexpr Error assume_error() const&& noexcept {
    expect(!either_.has_value);
    return either_.error;
  }
  /// The error as a failure that every outcome takes whose error it converts to.
  [[nodiscard]] constexpr failure_type<Error> as_failure() const noexcept {
    return failure_type<Error>(assume_error());
  }

 private:
  using either_type = either<stored, Error>;

  template <class Other>
  static constexpr either_type from_value(Other& other) {
    if constexpr (is_void)
      return either_type(as_value());
    else
      return either_type(as_value(), std::move(other).assume_value());
  }
  template <class From>
  static constexpr taken take(From&& from) {
    static_assert(std::is_constructible_v<taken, From>,
                  "the value can't be moved, and this result ends with the expression: keep the "
                  "result in a variable");
    return std::forward<From>(from);
  }
  static constexpr void expect(bool holds) noexcept {
    assert(holds);
    if (!holds) __builtin_unreachable();
  }
  /// Of a copy: what has its address given away could not stay in registers.
  [[noreturn]] constexpr void raise() const {
    const Error cause = either_.error;
    cause.raise();
  }

  either_type either_;
};

}  // namespace verbspp::detail
