// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/result.hpp>
#include <verbspp/work/work_error.hpp>

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

  /// The cause of the refusal of the first request that was not posted.
  [[nodiscard]] constexpr const error& cause() const noexcept { return cause_; }
  /// The number of requests, the first ones, that were posted and will complete.
  [[nodiscard]] constexpr std::size_t accepted() const noexcept { return accepted_; }
  [[nodiscard]] constexpr error_kind kind() const noexcept { return cause_.kind(); }
  /// The cause as an error, which keeps how far the batch came.
  operator error() const noexcept { return detail::error_access::of_batch(cause_, accepted_); }
  /// The batch error that an error was made from; empty if it was made from another one.
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

/// Either kind of failure that moving data can meet: a call that failed, or a request that did.
///
/// Both convert to it, and so does the failure of a batch; so a function that returns a
/// `transport_result` can pass any of them on by `VERBSPP_TRY`.
class transport_error {
 public:
  constexpr transport_error() noexcept = default;
  /// A failed call; or the failed request that the error was made from.
  transport_error(const error& call) noexcept;
  constexpr transport_error(const work_error& work) noexcept : work_(work), is_work_(true) {}
  transport_error(const batch_error& batch) noexcept : call_(batch) {}

  /// The failed call; null if it was a request that failed.
  [[nodiscard]] constexpr const error* call() const noexcept VERBSPP_LIFETIMEBOUND {
    return is_work_ ? nullptr : &call_;
  }
  /// The failed request; null if it was a call that failed.
  [[nodiscard]] constexpr const work_error* work() const noexcept VERBSPP_LIFETIMEBOUND {
    return is_work_ ? &work_ : nullptr;
  }
  /// The same failure as an error, which keeps all that this one knows.
  operator error() const noexcept {
    if (is_work_) return work_;
    return call_;
  }
  [[nodiscard]] std::string message() const;
  /// Throws what the failure itself would; without exceptions prints the message and aborts.
  [[noreturn]] void raise() const;

 private:
  error call_{};
  work_error work_{};
  bool is_work_ = false;
};

std::ostream& operator<<(std::ostream& out, const transport_error& e);

/// A `Value`, or why the data did not move.
template <class Value>
using transport_result = detail::outcome<Value, transport_error>;

}  // namespace verbspp
