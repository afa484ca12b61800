// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/result.hpp>

#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <system_error>

#pragma GCC visibility push(hidden)

namespace verbspp::detail {

/// Reads a number from an environment variable; `hint` says which values are valid.
[[nodiscard]] inline result<std::uint32_t> number_from_environment(const char* variable,
                                                                   const char* hint) noexcept {
  const char* const text = std::getenv(variable);
  if (text == nullptr) return error(error_kind::not_found, variable, "it is not set");
  const std::string_view all(text);
  std::uint32_t value = 0;
  const auto read = std::from_chars(all.data(), all.data() + all.size(), value);
  if (all.empty() || read.ec != std::errc() || read.ptr != all.data() + all.size())
    return error(error_kind::invalid_input, variable, hint);
  return value;
}

[[nodiscard]] inline result<std::uint32_t> rank_from_environment() noexcept {
  return number_from_environment("VERBSPP_RANK",
                                 "it must be the rank of this process, a number from 0 to 65534");
}
[[nodiscard]] inline result<std::uint32_t> size_from_environment() noexcept {
  return number_from_environment("VERBSPP_WORLD_SIZE",
                                 "it must be the number of ranks of the world, from 1 to 65535");
}

}  // namespace verbspp::detail

#pragma GCC visibility pop
