// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/result.hpp>

#include <cstddef>
#include <iosfwd>
#include <optional>
#include <string>

namespace verbspp {

/// A batch of which not everything was posted.
class batch_error {
 public:
  constexpr batch_error() noexcept = default;
  constexpr batch_error(const error& cause, std::size_t accepted) noexcept
      : cause_(cause), accepted_(accepted) {}

  /// Why the first request that was not posted was refused.
  [[nodiscard]] constexpr const error& cause() const noexcept { return cause_; }
  /// So many requests, the first ones, were posted and will complete.
  [[nodiscard]] constexpr std::size_t accepted() const noexcept { return accepted_; }
  [[nodiscard]] constexpr error_kind kind() const noexcept { return cause_.kind(); }
  /// The cause as an error, which keeps how far the batch came.
  operator error() const noexcept { return detail::error_access::of_batch(cause_, accepted_); }
  /// What an error was made from; empty if that was no batch.
  [[nodiscard]] static std::optional<batch_error> from(const error& e) noexcept;
  [[nodiscard]] std::string message() const;
  /// Throws itself as an error in an `exception`; without exceptions prints the message and aborts.
  [[noreturn]] void raise() const;

 private:
  error cause_{};
  std::size_t accepted_ = 0;
};

std::ostream& operator<<(std::ostream& out, const batch_error& e);

/// That a batch was posted, or how far it came and why.
using batch_result = detail::outcome<void, batch_error>;

}  // namespace verbspp
