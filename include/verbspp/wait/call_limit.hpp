// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/config.hpp>
#include <verbspp/base/detail/chrono.hpp>
#include <verbspp/base/wait_limit.hpp>

#include <chrono>
#include <concepts>
#include <cstdint>

namespace verbspp {

namespace detail {

/// The default argument for `wait_limit` parameters. It stands for the channel's default limit, and
/// is recognized by its address.
inline constexpr wait_limit default_limit = wait_limit::forever();
/// The default limit of hubs, and of channels whose builder sets no other.
inline constexpr std::chrono::nanoseconds usual_limit = std::chrono::seconds(30);
/// Returns a pointer to the limit, or null if it is the default argument. The function is always
/// inlined, so that the compiler can evaluate the comparison at compile time.
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
/// finished already does not read the clock. If a blocking operation, such as `channel::send`,
/// waits for room in the queue, the duration begins again when it then waits for the request.
/// Unless its argument is a duration, the object refers to that argument, so the object must not be
/// stored.
class call_limit {
 public:
  template <class Number, class Period>
  VERBSPP_DATA_PATH call_limit(std::chrono::duration<Number, Period> length) noexcept
      : call_limit(detail::bounded(length).count()) {}
  template <class Source>
    requires std::convertible_to<const Source&, wait_limit>
  VERBSPP_DATA_PATH call_limit(const Source& limit VERBSPP_LIFETIMEBOUND) noexcept
      : make_(&of_source<Source>), source_(&limit) {
    if constexpr (std::same_as<Source, wait_limit>)
      if (detail::given(limit) == nullptr) *this = of_channel();
  }

  /// The channel's default limit.
  [[nodiscard]] VERBSPP_DATA_PATH static call_limit of_channel() noexcept {
    return call_limit(std::int64_t{-1});
  }
  /// Used by the library only: true for the channel's default limit.
  [[nodiscard]] bool is_of_channel() const noexcept { return make_ == nullptr && length_ < 0; }
  /// Used by the library only: true if the limit had already expired before the call. A duration
  /// has not begun yet, so the clock is not read for it.
  [[nodiscard]] VERBSPP_DATA_PATH bool has_passed() const noexcept {
    return make_ == nullptr ? length_ == 0 : make_(source_).has_passed();
  }
  /// Used by the library only: returns the limit. If it is a duration, the duration begins now.
  [[nodiscard]] wait_limit begin(std::chrono::nanoseconds of_channel) const noexcept {
    if (make_ != nullptr) return make_(source_);
    return is_of_channel() ? of_channel : std::chrono::nanoseconds(length_);
  }

 private:
  VERBSPP_DATA_PATH explicit call_limit(std::int64_t length) noexcept
      : make_(nullptr), length_(length) {}

  template <class Source>
  static wait_limit of_source(const void* source) noexcept {
    return *static_cast<const Source*>(source);
  }

  // A duration is stored by value, so that the compiler need not store a constant one in memory.
  wait_limit (*make_)(const void* source) noexcept;  ///< null unless there is a source
  union {
    std::int64_t length_;  ///< nanoseconds; -1 stands for the channel's default limit
    const void* source_;   ///< an argument that is not a duration
  };
};

}  // namespace verbspp
