// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/result.hpp>
#include <verbspp/base/wait_limit.hpp>
#include <verbspp/ranks/bootstrap.hpp>

namespace verbspp {

/// The bootstrap of whatever has started this process: PMIx where its launcher speaks that, else
/// TCP by the variables VERBSPP_RANK, VERBSPP_WORLD_SIZE and VERBSPP_MEETING_POINT.
/// \errors as `pmix_bootstrap::open` and `tcp_bootstrap::from_environment`; `not_found` if neither
/// is there
[[nodiscard]] result<any_bootstrap> find_bootstrap(const wait_limit& limit) noexcept;

}  // namespace verbspp
