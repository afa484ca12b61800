// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/config.hpp>
#include <verbspp/base/detail/chrono.hpp>
#include <verbspp/base/wait_limit.hpp>

#include <concepts>

namespace verbspp {

namespace detail {

/// Accesses a limit whose type has been erased. If `begun` is null, returns true if the limit has
/// passed; otherwise, stores the limit there.
using limit_access = bool (*)(const void* source, wait_limit* begun) noexcept;

template <class Source>
inline constexpr bool is_duration = false;
template <class Number, class Period>
inline constexpr bool is_duration<std::chrono::duration<Number, Period>> = true;

template <class Source>
bool access_limit(const void* source, wait_limit* begun) noexcept {
  const Source& limit = *static_cast<const Source*>(source);
  if (begun != nullptr) {
    *begun = limit;
    return false;
  }
  // A duration begins only when the call waits. So a positive duration cannot have expired before
  // the call, and there is no need to read the clock.
  if constexpr (is_duration<Source>)
    return !(limit > Source::zero());
  else
    return wait_limit(limit).has_passed();
}

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
/// A duration begins when the call begins to wait, so a call whose request has finished already
/// does not read the clock. The object refers to its argument, so it must not be stored.
class call_limit {
 public:
  template <class Source>
    requires std::convertible_to<const Source&, wait_limit>
  VERBSPP_DATA_PATH call_limit(const Source& limit VERBSPP_LIFETIMEBOUND) noexcept
      : source_(&limit), access_(&detail::access_limit<Source>) {}

  /// The channel's default limit.
  [[nodiscard]] VERBSPP_DATA_PATH static call_limit of_channel() noexcept {
    return {nullptr, nullptr};
  }
  /// Used by the library only: an optional limit; null stands for the channel's default limit.
  [[nodiscard]] VERBSPP_DATA_PATH static call_limit from(const wait_limit* limit) noexcept {
    return {limit, limit != nullptr ? &detail::access_limit<wait_limit> : nullptr};
  }

  /// Used by the library only: true for the channel's default limit.
  [[nodiscard]] bool is_of_channel() const noexcept { return source_ == nullptr; }
  /// Used by the library only: true if the limit had already expired before the call; false for a
  /// positive duration.
  [[nodiscard]] VERBSPP_DATA_PATH bool has_passed() const noexcept {
    return source_ != nullptr && access_(source_, nullptr);
  }
  /// Used by the library only: returns the limit. If it is a duration, the duration begins now.
  [[nodiscard]] wait_limit begin(std::chrono::nanoseconds of_channel) const noexcept {
    if (source_ == nullptr) return of_channel;
    wait_limit begun = wait_limit::forever();
    access_(source_, &begun);
    return begun;
  }

 private:
  VERBSPP_DATA_PATH call_limit(const void* source, detail::limit_access access) noexcept
      : source_(source), access_(access) {}

  const void* source_;
  detail::limit_access access_;
};

}  // namespace verbspp
