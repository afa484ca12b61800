// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/detail/outcome.hpp>
#include <verbspp/base/error.hpp>
#include <verbspp/work/transport_error.hpp>

#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>
#include <type_traits>

namespace verbspp {

/// The failure of an operation on several peers: the first peer that failed, the cause of that
/// failure, and the number of peers that failed. For a scope, it also contains, separately, the
/// error that the function returned.
///
/// The errors of the other peers are in `group_results`, or in the `failure()` of their channels.
class group_error {
 public:
  constexpr group_error() noexcept = default;
  /// Constructs an error that is not specific to a peer, from any failure that converts to a
  /// `transport_error`.
  template <class Failure>
    requires(std::is_convertible_v<const Failure&, transport_error> &&
             !std::is_same_v<Failure, group_error>)
  group_error(const Failure& cause) noexcept : cause_(cause) {}
  group_error(std::uint32_t peer, const transport_error& cause, std::uint32_t failed) noexcept
      : peer_(peer), cause_(cause), failed_(failed) {}

  /// The number of the first peer that failed. Empty if the operation failed as a whole, or if only
  /// the function that was passed to a scope has failed.
  [[nodiscard]] const std::optional<std::uint32_t>& peer() const noexcept { return peer_; }
  /// The cause of the failure of the peer `peer()`, or of an operation that failed as a whole. If
  /// only the function of a scope failed, `own()` has the cause instead.
  [[nodiscard]] const transport_error& cause() const noexcept { return cause_; }
  /// The number of peers that failed.
  [[nodiscard]] std::uint32_t failed() const noexcept { return failed_; }
  /// The error that the function passed to a scope returned. Empty if the function succeeded, or if
  /// there is no scope.
  [[nodiscard]] const std::optional<error>& own() const noexcept { return own_; }

  /// Converts to the function's error if there is one, and to the cause otherwise.
  operator error() const noexcept {
    if (own_) return *own_;
    return cause_;
  }
  operator transport_error() const noexcept {
    if (own_) return *own_;
    return cause_;
  }
  /// Returns the complete description on one line.
  [[nodiscard]] std::string message() const;
  /// Throws the error to which this object converts. If exceptions are disabled, prints that error
  /// and aborts.
  [[noreturn]] void raise() const;

  /// Used by the library only.
  void add_own(const error& cause) noexcept { own_ = cause; }

 private:
  std::optional<std::uint32_t> peer_{};
  transport_error cause_{};
  std::uint32_t failed_ = 0;
  std::optional<error> own_{};
};

std::ostream& operator<<(std::ostream& out, const group_error& e);

/// A `Value`, or the `group_error` that explains why there is none.
template <class Value>
using group_result = detail::outcome<Value, group_error>;

}  // namespace verbspp
