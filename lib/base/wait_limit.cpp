// SPDX-License-Identifier: Apache-2.0
#include <verbspp/base/wait_limit.hpp>

namespace verbspp {

std::optional<std::chrono::nanoseconds> wait_limit::remaining() const noexcept {
  if (stop_requested()) return std::chrono::nanoseconds::zero();
  if (at_ == (time_point::max)()) return std::nullopt;
  const time_point now = std::chrono::steady_clock::now();
  // Compares before it subtracts, because the minimum time point is farther away than a duration
  // can express.
  return now < at_ ? at_ - now : std::chrono::nanoseconds::zero();
}

wait_limit wait_limit::no_later_than(time_point at) const noexcept {
  wait_limit part = *this;
  if (at < part.at_) part.at_ = at;
  return part;
}

error wait_limit::failure(const char* operation, const char* hint) const noexcept {
  if (stop_requested()) return {error_kind::cancelled, operation, "a stop was requested"};
  return {error_kind::timed_out, operation, hint};
}

}  // namespace verbspp
