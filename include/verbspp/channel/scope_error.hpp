// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/result.hpp>
#include <verbspp/work/transport_error.hpp>

#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>

namespace verbspp {

/// Why a scope failed: by its function's own error, by requests that the scope had to see finished,
/// or both, which it tells apart.
class scope_error {
 public:
  constexpr scope_error() noexcept = default;
  /// A scope that failed before its function was called.
  scope_error(const error& own) noexcept : own_(own) {}

  /// What the function returned; empty if it succeeded.
  [[nodiscard]] const std::optional<error>& own() const noexcept { return own_; }
  /// Why requests of the scope failed whose results nobody took; empty if none did. It is the root:
  /// what failed first on the channel (`work_error::from` has the rest), or the limit that ended
  /// the wait for them.
  [[nodiscard]] const std::optional<error>& work() const noexcept { return work_; }
  /// How many of them failed by themselves, and how many were flushed because of another failure.
  [[nodiscard]] std::uint32_t failed() const noexcept { return failed_; }
  [[nodiscard]] std::uint32_t flushed() const noexcept { return flushed_; }
  /// Of a manual scope: how many requests were left without their result having been taken.
  [[nodiscard]] std::uint32_t left() const noexcept { return left_; }

  /// The function's error, or else that of the work, or else that some was left.
  operator error() const noexcept;
  operator transport_error() const noexcept { return static_cast<error>(*this); }
  /// One line that says all of it.
  [[nodiscard]] std::string message() const;
  /// Throws it as an `exception` with this message's beginning; without exceptions prints the
  /// message and aborts.
  [[noreturn]] void raise() const;

  /// For the library.
  void add_own(const error& cause) noexcept { own_ = cause; }
  /// For the library.
  void add_work(const error& root, std::uint32_t failed, std::uint32_t flushed) noexcept {
    work_ = root;
    failed_ = failed;
    flushed_ = flushed;
  }
  /// For the library.
  void add_left(std::uint32_t left) noexcept { left_ = left; }
  [[nodiscard]] bool is_any() const noexcept { return own_ || work_ || left_ != 0; }

 private:
  std::optional<error> own_{};
  std::optional<error> work_{};
  std::uint32_t failed_ = 0;
  std::uint32_t flushed_ = 0;
  std::uint32_t left_ = 0;
};

std::ostream& operator<<(std::ostream& out, const scope_error& e);

/// A `Value`, or why the scope failed.
template <class Value>
using scope_result = detail::outcome<Value, scope_error>;

}  // namespace verbspp
