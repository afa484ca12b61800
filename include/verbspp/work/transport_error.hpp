// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/result.hpp>
#include <verbspp/work/work_error.hpp>

#include <cstddef>
#include <iosfwd>
#include <optional>
#include <string>

namespace verbspp {

/// The failure of a batch from which only the first requests, or no requests, were posted.
class batch_error {
 public:
  constexpr batch_error() noexcept = default;
  constexpr batch_error(const error& cause, std::size_t accepted) noexcept
      : cause_(cause), accepted_(accepted) {}

  /// The cause of the failure. If the driver rejected a request, this is the error for that
  /// request.
  [[nodiscard]] constexpr const error& cause() const noexcept { return cause_; }
  /// The number of requests that were posted. They are the first requests in the batch.
  [[nodiscard]] constexpr std::size_t accepted() const noexcept { return accepted_; }
  [[nodiscard]] constexpr error_kind kind() const noexcept { return cause_.kind(); }
  /// Converts to the cause. The resulting error also keeps the number of posted requests.
  operator error() const noexcept { return detail::error_access::of_batch(cause_, accepted_); }
  /// Returns the batch error from which `e` was converted, or nothing if `e` comes from a different
  /// kind of failure.
  [[nodiscard]] static std::optional<batch_error> from(const error& e) noexcept;
  [[nodiscard]] std::string message() const;
  /// Throws the error as an `exception`. If the library was built without exceptions, prints the
  /// message and aborts.
  [[noreturn]] void raise() const;

 private:
  error cause_{};
  std::size_t accepted_ = 0;
};

std::ostream& operator<<(std::ostream& out, const batch_error& e);

/// The result of posting a batch: success, or a failure with the number of posted requests.
using batch_result = detail::outcome<void, batch_error>;

/// The failure of a data transfer, which is either a call that failed or a request that failed.
///
/// `error`, `work_error` and `batch_error` convert to it, so a function that returns a
/// `transport_result` can pass on any of them with `VERBSPP_TRY`.
class transport_error {
 public:
  constexpr transport_error() noexcept = default;
  /// Converts the error of a call. If it was converted from a `work_error`, this object stands for
  /// a failed request (`work`), unless the call was refused because an earlier failed request had
  /// broken the connection. Otherwise, it stands for a failed call (`call`).
  transport_error(const error& call) noexcept;
  constexpr transport_error(const work_error& work) noexcept : work_(work), is_work_(true) {}
  transport_error(const batch_error& batch) noexcept : call_(batch) {}

  /// The failed call; null if a request failed.
  [[nodiscard]] constexpr const error* call() const noexcept VERBSPP_LIFETIMEBOUND {
    return is_work_ ? nullptr : &call_;
  }
  /// The failed request; null if a call failed.
  [[nodiscard]] constexpr const work_error* work() const noexcept VERBSPP_LIFETIMEBOUND {
    return is_work_ ? &work_ : nullptr;
  }
  /// Converts to an `error` for the same failure, which keeps all details.
  operator error() const noexcept {
    if (is_work_) return work_;
    return call_;
  }
  /// True if the `error` to which this converts is of this kind.
  friend bool operator==(const transport_error& e, error_kind kind) noexcept {
    return error(e) == kind;
  }
  [[nodiscard]] std::string message() const;
  /// Throws a `work_exception` if a request failed, or an `exception` if a call failed. If the
  /// library was built without exceptions, prints the message and aborts.
  [[noreturn]] void raise() const;

 private:
  error call_{};
  work_error work_{};
  bool is_work_ = false;
};

std::ostream& operator<<(std::ostream& out, const transport_error& e);

/// A `Value`, or the failure of a data transfer.
template <class Value>
using transport_result = detail::outcome<Value, transport_error>;

}  // namespace verbspp
