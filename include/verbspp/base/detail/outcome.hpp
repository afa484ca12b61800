// SPDX-License-Identifier: Apache-2.0
/// \file
/// The common implementation of `result` and similar types: a value or an error.
///
/// Boost.Outcome supplies the types for success and failure, and its macros work with this class.
/// Boost's `basic_result` is not used, for two reasons. Before Boost 1.76, it constructs an error
/// next to each value, which makes the data path slower. And the `value()` of a temporary
/// `basic_result` returns a reference, which dangles after the expression.
#pragma once

#include <verbspp/base/config.hpp>
#include <verbspp/base/detail/because.hpp>

#include <boost/outcome/success_failure.hpp>

#include <cassert>
#include <cstddef>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>

namespace verbspp::detail {

template <class Value, class Error>
class outcome;

using BOOST_OUTCOME_V2_NAMESPACE::failure_type;
using BOOST_OUTCOME_V2_NAMESPACE::success_type;

/// The value type of `Returned` if `Returned` is an outcome; otherwise `Returned` itself.
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

/// True for types for which an outcome has separate constructors. These constructors are used even
/// if the value could also be constructed from the type.
template <class T>
inline constexpr bool is_outcome_or_sugar = false;
template <class Value, class Error>
inline constexpr bool is_outcome_or_sugar<outcome<Value, Error>> = true;
template <class T>
inline constexpr bool is_outcome_or_sugar<success_type<T>> = true;
template <class T>
inline constexpr bool is_outcome_or_sugar<failure_type<T>> = true;

/// A type that becomes the value: the value type itself, or a type that converts to it and not to
/// the error.
template <class From, class Value, class Error, class Plain = std::remove_cvref_t<From>>
concept ValueOf = !std::is_same_v<Plain, Error> && std::is_convertible_v<From, Value> &&
                  (std::is_same_v<Plain, std::remove_cv_t<Value>> ||
                   (!is_outcome_or_sugar<Plain> && !std::is_convertible_v<From, Error>));

/// A type other than the error type that becomes the error: it converts to the error and not to the
/// value.
template <class From, class Value, class Error, class Plain = std::remove_cvref_t<From>>
concept ErrorOf = !std::is_same_v<Plain, Error> && !is_outcome_or_sugar<Plain> &&
                  !std::is_same_v<Plain, std::remove_cv_t<Value>> &&
                  std::is_convertible_v<From, Error> && !std::is_convertible_v<From, Value>;

struct as_value {};
struct as_error {};
struct nothing {};

/// An empty base class. A class derived from it can be copied only if `Copies` is true, and moved
/// only if `Moves` is true.
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

/// Copies an error in two parts. If it were copied as a whole, clang would pass the address of the
/// result to the function that returns the error, and could then not keep the result in registers.
template <class Error>
constexpr void copy_error(Error* into, const Error& from) noexcept {
#ifdef __clang__
  if (!std::is_constant_evaluated()) {
    constexpr std::size_t first = sizeof(void*);
    static_assert(sizeof(Error) > first);
    __builtin_memcpy(static_cast<void*>(into), &from, first);
    __builtin_memcpy(reinterpret_cast<std::byte*>(into) + first,
                     reinterpret_cast<const std::byte*>(&from) + first, sizeof(Error) - first);
    return;
  }
#endif
  std::construct_at(into, from);
}

/// A value or an error, in the same storage.
template <class Value, class Error, bool IsTrivial = std::is_trivially_copyable_v<Value>>
struct either {
  template <class... Arguments>
  constexpr explicit either(as_value, Arguments&&... arguments)
      : value(std::forward<Arguments>(arguments)...), has_value(true) {}
  constexpr either(as_error, const Error& cause) noexcept : none(), has_value(false) {
    copy_error(__builtin_addressof(error), cause);
  }

  union {
    nothing none;
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
  managed_either(as_error, const Error& cause) noexcept : none(), has_value(false) {
    copy_error(__builtin_addressof(error), cause);
  }
  managed_either(const managed_either& other) : none(), has_value(other.has_value) {
    construct(other);
  }
  managed_either(managed_either&& other) noexcept : none(), has_value(other.has_value) {
    construct(std::move(other));
  }
  managed_either& operator=(const managed_either& other) { return *this = managed_either(other); }
  /// Destroys the previous value first.
  managed_either& operator=(managed_either&& other) noexcept {
    if (this == &other) return *this;
    destroy();
    construct(std::move(other));
    return *this;
  }
  // This is always inlined, because a call would need the address of the result, and the compiler
  // could then not keep the result in registers.
  VERBSPP_DATA_PATH ~managed_either() { destroy(); }

  template <class Other>
  void construct(Other&& other) {
    if (other.has_value)
      ::new (static_cast<void*>(__builtin_addressof(value)))
          Value(std::forward<Other>(other).value);
    else
      ::new (static_cast<void*>(__builtin_addressof(error))) Error(other.error);
    // NOLINTNEXTLINE(bugprone-use-after-move): only the value was moved
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

/// Tells the compiler that a condition holds. Debug builds assert it.
VERBSPP_DATA_PATH constexpr void expect(bool holds) noexcept {
  assert(holds);
  if (!holds) __builtin_unreachable();
}

/// A `Value`, or the `Error` that explains why there is none.
template <class Value, class Error>
class [[nodiscard]] outcome {
  static_assert(!std::is_reference_v<Value>,
                "a result cannot hold a reference: return a pointer, or the value itself");
  static_assert(!std::is_array_v<Value>, "a result cannot hold an array: return a std::array");
  static_assert(!std::is_same_v<std::remove_cv_t<Value>, Error>,
                "a result's value cannot have the type of its error");
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
  /// Constructs the value in place from the arguments. This works even if the type can't be moved.
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

  /// Converts an outcome with a different value or error type, if both types convert.
  template <class From, class Cause>
    requires(!std::is_same_v<outcome<From, Cause>, outcome> &&
             !std::is_same_v<outcome<From, Cause>, taken> && std::is_convertible_v<From, Value> &&
             std::is_convertible_v<Cause, Error>)
  constexpr outcome(outcome<From, Cause> other)
      : either_(other.has_value() ? from_value(other) : either_type(as_error(), other.error())) {}

  // A range-based for loop over the result instead of its value does not compile, and the
  // diagnostic shows this message.
  template <class Nothing = void>
  void begin() const
      VERBSPP_DETAIL_REFUSED(std::is_void_v<Nothing>,
                             "this is a result, which may hold an error: iterate over its value, "
                             "as in for (... : q.poll(slots).value())");
  void end() const = delete;

  [[nodiscard]] constexpr bool has_value() const noexcept { return either_.has_value; }
  [[nodiscard]] constexpr bool has_error() const noexcept { return !either_.has_value; }
  [[nodiscard]] constexpr bool has_failure() const noexcept { return !either_.has_value; }
  constexpr explicit operator bool() const noexcept { return either_.has_value; }

  /// Returns the value, or raises the error if there is none.
  constexpr std::add_lvalue_reference_t<Value> value() & VERBSPP_LIFETIMEBOUND {
    if (!either_.has_value) [[unlikely]]
      raise();
    return assume_value();
  }
  // NOLINTBEGIN(modernize-use-nodiscard): sometimes called only for its exception
  constexpr std::add_lvalue_reference_t<const Value> value() const& VERBSPP_LIFETIMEBOUND {
    if (!either_.has_value) [[unlikely]]
      raise();
    return assume_value();
  }
  /// Returns a temporary's value by value, so that it outlives the expression.
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

  /// Returns the value. The caller must know that there is one, which debug builds assert.
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

  /// Returns the error. If there is none, throws an `exception`, or aborts if the library was built
  /// without exceptions.
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
  /// Returns the error as a failure, which converts to every outcome type whose error type `Error`
  /// converts to.
  [[nodiscard]] constexpr failure_type<Error> as_failure() const noexcept {
    return failure_type<Error>(assume_error());
  }

  outcome(const outcome&) = default;
  outcome(outcome&&) = default;
  outcome& operator=(const outcome&) = default;
  outcome& operator=(outcome&&) = default;
  // Always inlined, for the same reason as the destructor of `managed_either`.
  VERBSPP_DATA_PATH ~outcome() = default;

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
                  "the value cannot be moved out of this result, because its type cannot be moved "
                  "or the result is const: keep the result in a variable, and use the value in it");
    return std::forward<From>(from);
  }
  /// Raises a copy of the error. Raising the original would require its address, and the compiler
  /// could then not keep the result in registers.
  [[noreturn]] constexpr void raise() const {
    const Error cause = either_.error;
    cause.raise();
  }

  either_type either_;
};

}  // namespace verbspp::detail
