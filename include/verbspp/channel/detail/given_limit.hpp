// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/config.hpp>
#include <verbspp/base/wait_limit.hpp>

namespace verbspp::detail {

/// Stands where the caller gives no limit, so that the channel's default one holds, and is known by
/// its address.
inline constexpr wait_limit default_limit = wait_limit::forever();
/// Null if none was given. Inline in what has the default argument, so that it costs nothing.
[[nodiscard]] VERBSPP_DATA_PATH const wait_limit* given(const wait_limit& limit) noexcept {
  return &limit == &default_limit ? nullptr : &limit;
}

}  // namespace verbspp::detail
