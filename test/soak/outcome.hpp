// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "end.hpp"

#include <string>
#include <type_traits>
#include <utility>

namespace verbspp::soak {

/// The value of what has to succeed.
template <class Outcome>
auto must(Outcome outcome, const char* what) {
  if (!outcome.has_value()) throw wrong(std::string(what) + ": " + outcome.error().message());
  if constexpr (!std::is_void_v<typename Outcome::value_type>)
    return std::move(outcome).assume_value();
}

}  // namespace verbspp::soak
