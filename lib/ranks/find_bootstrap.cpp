// SPDX-License-Identifier: Apache-2.0
#include <verbspp/ranks/find_bootstrap.hpp>
#include <verbspp/ranks/hosts_bootstrap.hpp>
#include <verbspp/ranks/pmix_bootstrap.hpp>
#include <verbspp/ranks/tcp_bootstrap.hpp>

#include <cstdlib>
#include <utility>

namespace verbspp {

result<any_bootstrap> find_bootstrap(const wait_limit& limit) noexcept {
  // A list of hosts or a meeting point takes precedence over PMIx, even if a launcher with PMIx has
  // started the process.
  if (std::getenv("VERBSPP_HOSTS") != nullptr) {
    VERBSPP_TRY(launched, hosts_bootstrap::from_environment(limit));
    return any_bootstrap(std::move(launched));
  }
  const bool has_place = std::getenv("VERBSPP_MEETING_POINT") != nullptr;
  if (!has_place && pmix_bootstrap::is_launched()) {
    VERBSPP_TRY(launched, pmix_bootstrap::open());
    return any_bootstrap(std::move(launched));
  }
  if (!has_place && std::getenv("VERBSPP_RANK") == nullptr)
    return error(error_kind::not_found, "find the launcher of this process",
                 "this process has no rank: start it with a launcher that supports PMIx, such as "
                 "Open MPI's mpirun, if verbspp-ranks was built with PMIx; or set VERBSPP_HOSTS to "
                 "the path of a file that lists the hosts; or set VERBSPP_RANK, VERBSPP_WORLD_SIZE "
                 "and VERBSPP_MEETING_POINT");
  VERBSPP_TRY(launched, tcp_bootstrap::from_environment(limit));
  return any_bootstrap(std::move(launched));
}

}  // namespace verbspp
