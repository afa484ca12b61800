// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/config.hpp>
#include <verbspp/base/detail/chrono.hpp>
#include <verbspp/base/wait_limit.hpp>

#include <concepts>

namespace verbspp {

namespace detail {

/// The operations of a limit whose source is of a forgotten type.
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

/// A duration has not begun, so no clock has to be read.
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

/// The default argument of functions whose limit is a `wait_limit`. It stands for the channel's
/// default limit, and is recognized by its address.
inline constexpr wait_limit default_limit = wait_limit::forever();
/// The limit, or null for the channel's default one. Inline where the default argument is, so that
/// it costs nothing.
[[nodiscard]] VERBSPP_DATA_PATH const wait_limit* given(const wait_limit& limit) noexcept {
  return &limit == &default_limit ? nullptr : &limit;
}

}  // namespace detail

/// The parameter type for the limit of one call: a duration, or anything else that a `wait_limit`
/// is made from.
///
///     channel.send(operation, std::chrono::seconds(5));
///     channel.send(operation, deadline);  // a wait_limit, for several calls with one end
///
/// A duration begins when the call begins to wait, so a call that finds its work finished does not
/// read the clock. It refers to its argument: do not keep one.
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
  /// For the library: a limit that may be missing; null stands for the channel's.
  [[nodiscard]] VERBSPP_DATA_PATH static call_limit from(const wait_limit* limit) noexcept {
    return {limit, limit != nullptr ? &detail::limit_source_of<wait_limit> : nullptr};
  }

  /// For the library: whether it has passed before the call; false for a duration above zero.
  [[nodiscard]] VERBSPP_DATA_PATH bool has_passed() const noexcept {
    return source_ != nullptr && how_->has_passed(source_);
  }
  /// For the library: the limit, which begins now if it is a duration.
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
