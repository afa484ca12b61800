// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/result.hpp>
#include <verbspp/base/wait_limit.hpp>
#include <verbspp/ranks/bootstrap.hpp>

namespace verbspp {

/// Chooses the bootstrap that fits the way in which this process was started. In order of priority:
/// a list of hosts if VERBSPP_HOSTS is set; TCP if VERBSPP_MEETING_POINT is set; PMIx if a launcher
/// that supports it has started the process; TCP if VERBSPP_RANK is set.
/// \errors as `hosts_bootstrap::from_environment`, `pmix_bootstrap::open` and
/// `tcp_bootstrap::from_environment`; `not_found` if none of these conditions applies
[[nodiscard]] result<any_bootstrap> find_bootstrap(const wait_limit& limit) noexcept;

}  // namespace verbspp
