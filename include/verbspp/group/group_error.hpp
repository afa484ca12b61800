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

/// Why work with several peers failed: with which of them first, how, and with how many in all; in
/// a scope, also what its function returned, which it tells apart.
///
/// What failed with each of the others, `group_results` tells, or the `failure()` of its channel.
class group_error {
 public:
  constexpr group_error() noexcept = default;
  /// Of no peer in particular: any failure of moving data.
  template <class Failure>
    requires(std::is_convertible_v<const Failure&, transport_error> &&
             !std::is_same_v<Failure, group_error>)
  group_error(const Failure& cause) noexcept : cause_(cause) {}
  group_error(std::uint32_t peer, const transport_error& cause, std::uint32_t failed) noexcept
      : peer_(peer), cause_(cause), failed_(failed) {}

  /// The number of the first peer with which it failed; empty if it failed before, or only the
  /// function of a scope did.
  [[nodiscard]] const std::optional<std::uint32_t>& peer() const noexcept { return peer_; }
  /// What went wrong there.
  [[nodiscard]] const transport_error& cause() const noexcept { return cause_; }
  /// With how many peers it failed.
  [[nodiscard]] std::uint32_t failed() const noexcept { return failed_; }
  /// What the function of a scope returned; empty if that succeeded, or there is none.
  [[nodiscard]] const std::optional<error>& own() const noexcept { return own_; }

  /// The function's error, or else the cause.
  operator error() const noexcept {
    if (own_) return *own_;
    return cause_;
  }
  operator transport_error() const noexcept {
    if (own_) return *own_;
    return cause_;
  }
  /// One line that says all of it.
  [[nodiscard]] std::string message() const;
  /// Throws the error that it converts to; without exceptions prints the message and aborts.
  [[noreturn]] void raise() const;

  /// For the library.
  void add_own(const error& cause) noexcept { own_ = cause; }

 private:
  std::optional<std::uint32_t> peer_{};
  transport_error cause_{};
  std::uint32_t failed_ = 0;
  std::optional<error> own_{};
};

std::ostream& operator<<(std::ostream& out, const group_error& e);

/// A `Value`, or with which peers it failed, and why.
template <class Value>
using group_result = detail::outcome<Value, group_error>;

}  // namespace verbspp
