// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/detail/chrono.hpp>
#include <verbspp/base/detail/stop_callback.hpp>
#include <verbspp/base/error.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <new>
#include <optional>
#include <type_traits>

namespace verbspp {

class wait_limit;

/// A token that reports whether a stop was requested: `std::stop_token`, and the stop tokens of
/// sender environments.
template <class Token>
concept StopToken = !std::same_as<Token, wait_limit> && requires(const Token& token) {
  { token.stop_requested() } -> std::convertible_to<bool>;
};

namespace detail {

/// The operations of a stop token whose type was erased.
struct stop_token_operations {
  bool (*stop_requested)(const void* token) noexcept;
  void (*copy)(void* to, const void* token) noexcept;
  void (*destroy)(void* token) noexcept;
  /// Begins a registration. The pointer is null for a token without callbacks.
  void (*watch)(const void* token, stop_registration& by, stoppable_sleep& asleep) noexcept;
};

template <class Token>
inline constexpr decltype(stop_token_operations::watch) watch_of_stop_token = nullptr;
template <TokenWithCallbacks Token>
inline constexpr decltype(stop_token_operations::watch) watch_of_stop_token<Token> =
    [](const void* token, stop_registration& by, stoppable_sleep& asleep) noexcept {
      by.begin(*std::launder(static_cast<const Token*>(token)), asleep);
    };

template <class Token>
inline constexpr stop_token_operations operations_of_stop_token = {
    .stop_requested = [](const void* token) noexcept -> bool {
      return std::launder(static_cast<const Token*>(token))->stop_requested();
    },
    .copy =
        [](void* to, const void* token) noexcept {
          ::new (to) Token(*std::launder(static_cast<const Token*>(token)));
        },
    .destroy = [](void* token) noexcept { std::launder(static_cast<Token*>(token))->~Token(); },
    .watch = watch_of_stop_token<Token>,
};

/// Returns the length of a wait: 0 if the duration is not above zero, the maximum if it is above a
/// hundred years.
template <class Number, class Period>
[[nodiscard]] constexpr std::chrono::nanoseconds bounded(
    std::chrono::duration<Number, Period> length) noexcept {
  // A 64-bit count of nanoseconds, or of a longer unit, is compared as it is; every other type is
  // compared as a floating-point number, because `most` may not fit into that type.
  using compared =
      std::conditional_t<std::is_same_v<Number, std::int64_t> &&
                             std::ratio_greater_equal_v<Period, std::nano>,
                         std::chrono::duration<Number, Period>, std::chrono::duration<double>>;
  constexpr auto most = std::chrono::duration_cast<compared>(std::chrono::hours(24) * 36525);
  const compared comparable = length;
  // A NaN counts as not above zero.
  if (!(comparable > compared::zero())) return std::chrono::nanoseconds::zero();
  if (comparable > most) return (std::chrono::nanoseconds::max)();
  // A duration that is finer than the clock is rounded up, so that the wait does not end early.
  return std::chrono::ceil<std::chrono::nanoseconds>(length);
}

}  // namespace detail

/// The end of a wait: a time point of the steady clock, a duration, a stop request, or both a time
/// and a stop request, of which the earlier one ends the wait. Functions that wait have a parameter
/// of this type, or a `call_limit`, which accepts the same arguments. To be able to cancel a wait,
/// pass a stop token.
///
///     queue.wait(slots, std::chrono::milliseconds(100));
///     queue.wait(slots, deadline);                // a deadline that several waits share
///     queue.wait(slots, thread_token);            // std::stop_token
///     queue.wait(slots, wait_limit(100ms, thread_token));
///     queue.wait(slots, wait_limit::forever());
///
/// If the time has already passed, the duration is not above zero, or a stop was already requested,
/// a wait only polls. The maximum time point and durations above a hundred years mean forever, so
/// nothing overflows.
///
/// A sleeping wait ends at its deadline, or at a stop request. The request wakes the thread
/// immediately if the token has callbacks: `std::stop_token`, and each type with a
/// `callback_type<Function>`, which the tokens of sender environments have. The callback is
/// registered only while the thread sleeps, while a coroutine or continuation waits, or as long as
/// a session exists whose descriptor an event loop uses. If the thread sleeps on file descriptors,
/// the callback writes to an eventfd. A thread opens its eventfd at the first such sleep, and
/// closes it when the thread exits; an `event_loop` and a session have an eventfd of their own. A
/// token that has only `stop_requested()` is polled, and the wait ends within 20 ms of the request.
/// A token is also polled, for example, if constructing its callback may throw an exception, if the
/// callback is larger than eight pointers, or if the process has no file descriptor left for the
/// eventfd.
///
/// A duration begins when the limit is constructed from it. The limit stores the token by value.
/// The token's type must have a `stop_requested()`, a size of at most two pointers, and at most the
/// alignment of a pointer. Its copy constructor and `stop_requested()` must be noexcept. Moving a
/// limit copies it, so a moved-from limit keeps its token.
///
/// Thread rule: as for a plain value. A stop may be requested on any thread if the token's type
/// allows it.
class wait_limit {
 public:
  using time_point = std::chrono::steady_clock::time_point;

  constexpr wait_limit(time_point at) noexcept : at_(at) {}
  template <class Number, class Period>
  wait_limit(std::chrono::duration<Number, Period> length) noexcept : at_(after(length)) {}
  template <StopToken Token>
  wait_limit(const Token& token) noexcept : wait_limit((time_point::max)(), token) {}
  /// Ends at the time or at the stop request, whichever comes first.
  template <StopToken Token>
  wait_limit(time_point at, const Token& token) noexcept
      : at_(at), stop_(&detail::operations_of_stop_token<Token>) {
    static_assert(sizeof(Token) <= sizeof(token_) && alignof(Token) <= alignof(void*),
                  "a stop token is stored in the limit, so it can have at most the size of two "
                  "pointers and the alignment of one: use a token that only refers to its state");
    static_assert(std::is_nothrow_copy_constructible_v<Token> && noexcept(token.stop_requested()),
                  "a stop token is copied and tested where no exception could be caught: its copy "
                  "constructor and stop_requested() must be noexcept");
    ::new (static_cast<void*>(token_)) Token(token);
  }
  template <class Number, class Period, StopToken Token>
  wait_limit(std::chrono::duration<Number, Period> length, const Token& token) noexcept
      : wait_limit(after(length), token) {}

  /// Returns a limit that is never reached, for waits that are known to end, or that may last as
  /// long as the program runs.
  [[nodiscard]] static constexpr wait_limit forever() noexcept { return (time_point::max)(); }

  constexpr wait_limit(const wait_limit& other) noexcept : at_(other.at_), stop_(other.stop_) {
    if (stop_ != nullptr) stop_->copy(token_, other.token_);
  }
  constexpr wait_limit& operator=(const wait_limit& other) noexcept {
    if (this == &other) return *this;
    if (stop_ != nullptr) stop_->destroy(token_);
    at_ = other.at_;
    stop_ = other.stop_;
    if (stop_ != nullptr) stop_->copy(token_, other.token_);
    return *this;
  }
  constexpr ~wait_limit() {
    if (stop_ != nullptr) stop_->destroy(token_);
  }

  /// True if neither a time nor a token ends the wait.
  [[nodiscard]] constexpr bool is_forever() const noexcept {
    return at_ == (time_point::max)() && stop_ == nullptr;
  }
  /// True if the deadline has passed or a stop was requested.
  [[nodiscard]] bool has_passed() const noexcept {
    return stop_requested() ||
           (at_ != (time_point::max)() && std::chrono::steady_clock::now() >= at_);
  }
  /// True if a stop was requested; false without a token.
  [[nodiscard]] constexpr bool stop_requested() const noexcept {
    return stop_ != nullptr && stop_->stop_requested(token_);
  }
  /// The time at which the wait ends; `time_point::max()` if no time ends it.
  [[nodiscard]] constexpr time_point deadline() const noexcept { return at_; }
  /// Returns the time that is left: 0 if the deadline has passed or a stop was requested; otherwise
  /// empty if the limit has no deadline.
  [[nodiscard]] std::optional<std::chrono::nanoseconds> remaining() const noexcept;
  /// The time until which a thread may sleep before it checks the limit again: the deadline or,
  /// with a token, 10 ms from now if that is earlier; `time_point::min()` if a stop was requested.
  /// This is for waits that the program implements itself. Such waits have to poll the token, even
  /// if the token has callbacks.
  [[nodiscard]] time_point sleep_until() const noexcept {
    if (stop_ == nullptr) return at_;
    if (stop_requested()) return (time_point::min)();
    const time_point soon = std::chrono::steady_clock::now() + std::chrono::milliseconds(10);
    return soon < at_ ? soon : at_;
  }

  /// Returns a limit for a part of a longer wait: a copy of this limit whose deadline is at most
  /// `at`.
  [[nodiscard]] wait_limit no_later_than(time_point at) const noexcept;

  /// Used by the library only: true if a stop request can wake a sleeping thread.
  [[nodiscard]] constexpr bool has_callbacks() const noexcept {
    return stop_ != nullptr && stop_->watch != nullptr;
  }
  /// Used by the library only: registers a callback until the registration ends. A stop request
  /// then calls `asleep.wake`.
  /// \pre `has_callbacks()`
  void watch(detail::stop_registration& by, detail::stoppable_sleep& asleep) const noexcept {
    stop_->watch(token_, by, asleep);
  }

  /// Returns the error for an operation that did not finish by this limit: `cancelled` if a stop
  /// was requested, otherwise `timed_out` with the hint. Both strings must live as long as the
  /// program.
  [[nodiscard]] error failure(const char* operation, const char* hint = nullptr) const noexcept;

 private:
  template <class Number, class Period>
  [[nodiscard]] static time_point after(std::chrono::duration<Number, Period> length) noexcept {
    const std::chrono::nanoseconds actual = detail::bounded(length);
    if (actual == std::chrono::nanoseconds::zero()) return (time_point::min)();
    if (actual == (std::chrono::nanoseconds::max)()) return (time_point::max)();
    return std::chrono::steady_clock::now() + actual;
  }

  time_point at_;
  const detail::stop_token_operations* stop_ = nullptr;  ///< null without a token
  union {
    char no_token_ = 0;
    alignas(void*) std::byte token_[2 * sizeof(void*)];
  };
};

}  // namespace verbspp
