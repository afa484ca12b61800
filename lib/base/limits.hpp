// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/result.hpp>

#include <algorithm>
#include <cstdint>

#pragma GCC visibility push(hidden)
namespace verbspp::detail {

/// Rejects a value above a limit that the device reports.
/// \errors `invalid_input`
[[nodiscard]] inline result<void> check_limit(const char* operation, const char* what,
                                              std::uint64_t value, int limit) noexcept {
  const auto most = static_cast<std::uint64_t>(std::max(limit, 0));
  if (value > most)
    return error::above_limit(operation, what, value, most, "the device imposes this limit");
  return success();
}

/// Rejects an index that is not in a table of the given length.
/// \errors `invalid_input`
[[nodiscard]] inline result<void> check_index(const char* operation, const char* what,
                                              std::uint64_t index, std::uint64_t length) noexcept {
  if (index < length) return success();
  if (length == 0)
    return error::out_of_range(operation, what, static_cast<std::int64_t>(index),
                               "the port's table has no entries");
  return error::above_limit(operation, what, index, length - 1,
                            "the limit is the index of the last entry in the port's table");
}

}  // namespace verbspp::detail
#pragma GCC visibility pop
