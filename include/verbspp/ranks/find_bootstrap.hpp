// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/result.hpp>
#include <verbspp/base/wait_limit.hpp>
#include <verbspp/ranks/bootstrap.hpp>

namespace verbspp {

/// The bootstrap of whatever has started this process: a list of hosts where VERBSPP_HOSTS is set;
/// TCP where VERBSPP_MEETING_POINT is; PMIx where its launcher speaks that.
/// \errors as `hosts_bootstrap::from_environment`, `pmix_bootstrap::open` and
/// `tcp_bootstrap::from_environment`; `not_found` if neither
/// is there
[[nodiscard]] result<any_bootstrap> find_bootstrap(const wait_limit& limit) noexcept;

}  // namespace verbspp
