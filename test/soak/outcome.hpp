// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

namespace verbspp::soak {

/// Thrown when the soak fails. The message describes the failure.
struct wrong : std::runtime_error {
  using std::runtime_error::runtime_error;
};
/// Thrown if the other end has failed.
struct stopped : std::runtime_error {
  stopped() : std::runtime_error("the other end has failed") {}
};

/// Returns the value of a call that must succeed.
template <class Outcome>
auto must(Outcome outcome, const char* what) {
  if (!outcome.has_value()) throw wrong(std::string(what) + ": " + outcome.error().message());
  if constexpr (!std::is_void_v<typename Outcome::value_type>)
    return std::move(outcome).assume_value();
}

}  // namespace verbspp::soak
