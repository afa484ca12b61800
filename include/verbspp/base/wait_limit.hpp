// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/detail/chrono.hpp>
#include <verbspp/base/error.hpp>

#include <concepts>
#include <cstddef>
#include <new>
#include <optional>
#include <type_traits>

namespace verbspp {

class wait_limit;

/// What can be asked whether the work that it was given to shall stop: `std::stop_token`, and the
/// stop tokens of senders' environments.
template <class Token>
concept StopToken = !std::same_as<Token, wait_limit> && requires(const Token& token) {
  { token.stop_requested() } -> std::convertible_to<bool>;
};

namespace detail {

/// What a limit can do with a token whose type it has forgotten.
struct stop_token_operations {
  bool (*stop_requested)(const void* token) noexcept;
  void (*copy)(void* to, const void* token) noexcept;
  void (*destroy)(void* token) noexcept;
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
};

}  // namespace detail

/// Until when a wait goes on: a time point of the steady clock, a duration from now, a request to
/// stop, or the first of time and request. All that waits takes one, and takes nothing else to be
/// cancelled by.
///
///     queue.wait(slots, std::chrono::milliseconds(100));
///     queue.wait(slots, deadline);                // for several waits with one end
///     queue.wait(slots, thread_token);            // std::stop_token
///     queue.wait(slots, wait_limit(100ms, thread_token));
///     queue.wait(slots, wait_limit::forever());
///
/// What has passed already, a duration that is not above zero, and a stop that was requested before
/// make a wait a poll. A time point at its maximum, and durations above a hundred years, are for
/// ever: nothing overflows. A sleeping wait ends at its time, and within 20 ms of a request.
///
/// A duration counts from the moment that the limit is made from it. The token is kept by value, in
/// the limit itself: any type with `stop_requested()` will do whose size is at most that of two
/// pointers, and which can be copied and asked without an exception. Limits that are moved are
/// copied: none forgets its token.
///
/// Thread rule: as a plain value; a token may be asked to stop on any thread if its type allows it.
class wait_limit {
 public:
  using time_point = std::chrono::steady_clock::time_point;

  constexpr wait_limit(time_point at) noexcept : at_(at) {}
  template <class Number, class Period>
  wait_limit(std::chrono::duration<Number, Period> length) noexcept : at_(after(length)) {}
  template <StopToken Token>
  wait_limit(const Token& token) noexcept : wait_limit((time_point::max)(), token) {}
  /// Whichever is first.
  template <StopToken Token>
  wait_limit(time_point at, const Token& token) noexcept
      : at_(at), stop_(&detail::operations_of_stop_token<Token>) {
    static_assert(sizeof(Token) <= sizeof(token_) && alignof(Token) <= alignof(void*),
                  "a stop token is kept in the limit, which has room for two pointers: give it one "
                  "that refers to the rest");
    static_assert(std::is_nothrow_copy_constructible_v<Token> && noexcept(token.stop_requested()),
                  "a stop token is copied and asked where nobody could catch an exception: its "
                  "copy constructor and stop_requested() have to be noexcept");
    ::new (static_cast<void*>(token_)) Token(token);
  }
  template <class Number, class Period, StopToken Token>
  wait_limit(std::chrono::duration<Number, Period> length, const Token& token) noexcept
      : wait_limit(after(length), token) {}

  /// For what is known to end, or may wait as long as the program runs.
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

  /// Whether neither a time nor a token ends the wait.
  [[nodiscard]] constexpr bool is_forever() const noexcept {
    return at_ == (time_point::max)() && stop_ == nullptr;
  }
  /// Whether the time has come or a stop was requested.
  [[nodiscard]] bool has_passed() const noexcept {
    return stop_requested() ||
           (at_ != (time_point::max)() && std::chrono::steady_clock::now() >= at_);
  }
  /// Whether its token was asked to stop; false without a token.
  [[nodiscard]] constexpr bool stop_requested() const noexcept {
    return stop_ != nullptr && stop_->stop_requested(token_);
  }
  /// The time at which the wait ends; `time_point::max()` if none ends it.
  [[nodiscard]] constexpr time_point deadline() const noexcept { return at_; }
  /// How much time is left: 0 if the limit has passed, by a stop as well; nothing if no time ends
  /// the wait.
  [[nodiscard]] std::optional<std::chrono::nanoseconds> remaining() const noexcept;
  /// Until when one may sleep without looking whether the limit has passed: the deadline or, with a
  /// token, 10 ms from now if that is before; `time_point::min()` if a stop was requested. For
  /// waits of the program's own.
  [[nodiscard]] time_point sleep_until() const noexcept {
    if (stop_ == nullptr) return at_;
    if (stop_requested()) return (time_point::min)();
    const time_point soon = std::chrono::steady_clock::now() + std::chrono::milliseconds(10);
    return soon < at_ ? soon : at_;
  }

  /// What the operation failed with if it had to be done by this limit, and was not: `cancelled`
  /// if a stop was requested, else `timed_out`. Both strings have to live as long as the program.
  [[nodiscard]] error failure(const char* operation, const char* hint = nullptr) const noexcept;

 private:
  template <class Number, class Period>
  [[nodiscard]] static time_point after(std::chrono::duration<Number, Period> length) noexcept {
    // Compared as floating point numbers, which have room for every duration; a NaN is not above.
    using seconds = std::chrono::duration<double>;
    constexpr seconds hundred_years = std::chrono::hours(24) * 36525;
    const seconds approximate = length;
    if (!(approximate > seconds::zero())) return (time_point::min)();
    if (approximate > hundred_years) return (time_point::max)();
    // Not earlier than asked for, where the duration is finer than the clock.
    return std::chrono::steady_clock::now() + std::chrono::ceil<time_point::duration>(length);
  }

  time_point at_;
  const detail::stop_token_operations* stop_ = nullptr;  ///< null without a token
  union {
    char no_token_ = 0;
    alignas(void*) std::byte token_[2 * sizeof(void*)];
  };
};

}  // namespace verbspp
