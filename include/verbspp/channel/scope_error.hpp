// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/result.hpp>
#include <verbspp/work/transport_error.hpp>

#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>

namespace verbspp {

/// The failure of a scope, in separate parts: its function's own error, failures of requests that
/// the scope waited for, and the number of results that the function of a manual scope did not
/// take.
class scope_error {
 public:
  constexpr scope_error() noexcept = default;
  /// A failure that consists of the function's own error.
  scope_error(const error& own) noexcept : own_(own) {}

  /// The error that the function returned; empty if it succeeded.
  [[nodiscard]] const std::optional<error>& own() const noexcept { return own_; }
  /// The failure of requests whose results were not taken; empty if none has failed. This is the
  /// root of the channel's failure (`work_error::from` has the details if a request failed), or the
  /// error that ended the wait for these requests; `not_connected` if the channel has been renewed
  /// after the failure. Also set for a scope of an empty channel.
  [[nodiscard]] const std::optional<error>& work() const noexcept { return work_; }
  /// The numbers of failed requests whose results were not taken: those that failed by themselves,
  /// and those that were flushed because of another failure.
  [[nodiscard]] std::uint32_t failed() const noexcept { return failed_; }
  [[nodiscard]] std::uint32_t flushed() const noexcept { return flushed_; }
  /// The number of requests of a manual scope whose results were not taken.
  [[nodiscard]] std::uint32_t left() const noexcept { return left_; }

  /// Converts to the function's error if there is one; otherwise to the requests' error, if there
  /// is one; otherwise to an error that reports the results that were not taken.
  operator error() const noexcept;
  operator transport_error() const noexcept { return static_cast<error>(*this); }
  /// The complete description, on one line.
  [[nodiscard]] std::string message() const;
  /// Throws an `exception` with the error to which this object converts; if exceptions are
  /// disabled, prints that error and aborts.
  [[noreturn]] void raise() const;

  /// Used by the library only.
  void add_own(const error& cause) noexcept { own_ = cause; }
  /// Used by the library only.
  void add_work(const error& root, std::uint32_t failed, std::uint32_t flushed) noexcept {
    work_ = root;
    failed_ = failed;
    flushed_ = flushed;
  }
  /// Used by the library only.
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

/// A `Value`, or the failure of the scope.
template <class Value>
using scope_result = detail::outcome<Value, scope_error>;

}  // namespace verbspp
