// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/config.hpp>
#include <verbspp/base/detail/chrono.hpp>
#include <verbspp/base/wait_limit.hpp>

#include <concepts>

namespace verbspp {

namespace detail {

/// The operations on a limit whose type has been erased. Each takes a pointer to the original
/// limit.
struct limit_source {
  wait_limit (*make)(const void* source) noexcept;
  bool (*has_passed)(const void* source) noexcept;
};

template <class Source>
inline constexpr limit_source limit_source_of = {
    .make = [](const void* source) noexcept -> wait_limit {
      return *static_cast<const Source*>(source);
    },
    .has_passed = [](const void* source) noexcept -> bool {
      return wait_limit(*static_cast<const Source*>(source)).has_passed();
    },
};

/// A duration begins when `make` is called. So a positive duration cannot have expired before the
/// call, and there is no need to read the clock.
template <class Number, class Period>
inline constexpr limit_source limit_source_of<std::chrono::duration<Number, Period>> = {
    .make = [](const void* source) noexcept -> wait_limit {
      return *static_cast<const std::chrono::duration<Number, Period>*>(source);
    },
    .has_passed = [](const void* source) noexcept -> bool {
      using length = std::chrono::duration<Number, Period>;
      return !(*static_cast<const length*>(source) > length::zero());
    },
};

/// The default argument for `wait_limit` parameters. It stands for the channel's default limit, and
/// is recognized by its address.
inline constexpr wait_limit default_limit = wait_limit::forever();
/// Returns a pointer to the limit, or null if it is the default argument. The function is inlined
/// into its caller, where the compiler evaluates the comparison.
[[nodiscard]] VERBSPP_DATA_PATH const wait_limit* given(const wait_limit& limit) noexcept {
  return &limit == &default_limit ? nullptr : &limit;
}

}  // namespace detail

/// The parameter type for the limit of one call: a duration, or another type that converts to a
/// `wait_limit`.
///
///     channel.send(operation, std::chrono::seconds(5));
///     channel.send(operation, deadline);  // a wait_limit, for several calls
///
/// For requests, a duration begins when the call begins to wait, so a call whose request has
/// finished already does not read the clock. The object refers to its argument, so it must not be
/// stored.
class call_limit {
 public:
  template <class Source>
    requires std::convertible_to<const Source&, wait_limit>
  VERBSPP_DATA_PATH call_limit(const Source& limit VERBSPP_LIFETIMEBOUND) noexcept
      : source_(&limit), how_(&detail::limit_source_of<Source>) {}

  /// The channel's default limit.
  [[nodiscard]] VERBSPP_DATA_PATH static call_limit of_channel() noexcept {
    return {nullptr, nullptr};
  }
  /// Used by the library only: an optional limit; null stands for the channel's default limit.
  [[nodiscard]] VERBSPP_DATA_PATH static call_limit from(const wait_limit* limit) noexcept {
    return {limit, limit != nullptr ? &detail::limit_source_of<wait_limit> : nullptr};
  }

  /// Used by the library only: true for the channel's default limit.
  [[nodiscard]] bool is_of_channel() const noexcept { return source_ == nullptr; }
  /// Used by the library only: true if the limit had already expired before the call; false for a
  /// positive duration.
  [[nodiscard]] VERBSPP_DATA_PATH bool has_passed() const noexcept {
    return source_ != nullptr && how_->has_passed(source_);
  }
  /// Used by the library only: returns the limit. If it is a duration, the duration begins now.
  [[nodiscard]] wait_limit begin(std::chrono::nanoseconds of_channel) const noexcept {
    return source_ != nullptr ? how_->make(source_) : wait_limit(of_channel);
  }

 private:
  VERBSPP_DATA_PATH call_limit(const void* source, const detail::limit_source* how) noexcept
      : source_(source), how_(how) {}

  const void* source_;
  const detail::limit_source* how_;
};

}  // namespace verbspp
