// SPDX-License-Identifier: Apache-2.0
#include "ranks/environment.hpp"
#include "ranks/values_of_ranks.hpp"
#include <verbspp/ranks/hosts_bootstrap.hpp>

#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <span>
#include <string>

namespace verbspp {

namespace {

constexpr const char* joining_hosts = "join a world with a list of hosts";

/// The name of the world. It contains a hash of the list, so that ranks with different lists do not
/// meet.
[[nodiscard]] std::string name_of(const host_list& hosts) {
  std::uint64_t hash = 0xcbf2'9ce4'8422'2325U;
  const auto add = [&hash](std::uint64_t value) { hash = (hash ^ value) * 0x100'0000'01b3U; };
  for (const host_entry& host : hosts.hosts()) {
    for (const char c : host.name) add(static_cast<unsigned char>(c));
    add(0x100 + std::uint64_t{host.ranks});
  }
  std::array<char, 20> digits{};
  std::snprintf(digits.data(), digits.size(), "#%016llx", static_cast<unsigned long long>(hash));
  return std::string(hosts.world()) + digits.data();
}

}  // namespace

result<hosts_bootstrap> hosts_bootstrap::join(const host_list& hosts, std::uint32_t rank,
                                              const wait_limit& limit) noexcept {
  if (hosts.size() == 0)
    return error(error_kind::invalid_input, joining_hosts, "this list of hosts was moved from");
  if (rank >= hosts.size())
    return error::above_limit(
        joining_hosts, "rank", rank, hosts.size() - 1,
        "a rank must be below the size of the world: check the list of hosts, and "
        "VERBSPP_WORLD_SIZE if it is set");
  return detail::without_exceptions(joining_hosts, [&]() -> result<hosts_bootstrap> {
    const std::span<const host_entry> listed = hosts.hosts();
    const std::string& host = listed.front().name;
    const bool is_address = host.find(':') != std::string::npos;
    const std::string place =
        (is_address ? "[" + host + "]" : host) + ":" + std::to_string(hosts.port());
    const std::string name = name_of(hosts);
    auto met = tcp_bootstrap::join(
        {.rank = rank, .size = hosts.size(), .meeting_point = place, .name = name}, limit);
    if (met.has_value()) return hosts_bootstrap(std::move(met).assume_value());
    const error& cause = met.assume_error();
    if (cause.kind() != error_kind::mismatch) return cause;
    return error(error_kind::mismatch, joining_hosts,
                 "the ranks at the meeting point have a different list of hosts or world size, "
                 "belong to a different world, or use another version of verbspp: give all ranks "
                 "of a world the same list, size and version, and each world its own port");
  });
}

result<hosts_bootstrap> hosts_bootstrap::from_environment(const wait_limit& limit) noexcept {
  const char* const path = std::getenv("VERBSPP_HOSTS");
  if (path == nullptr)
    return error(error_kind::not_found, "VERBSPP_HOSTS",
                 "it is not set: set it to the path of the file that lists the hosts");
  if (std::getenv("VERBSPP_MEETING_POINT") != nullptr)
    return error(
        error_kind::invalid_input, "VERBSPP_MEETING_POINT",
        "VERBSPP_HOSTS is also set, and its list determines the meeting point: unset one of them");
  VERBSPP_TRY(all, host_list::read(path));
  std::optional<host_list> chosen;
  if (std::getenv("VERBSPP_WORLD_SIZE") != nullptr) {
    VERBSPP_TRY(size, detail::size_from_environment());
    VERBSPP_TRY(first, all.first(size));
    chosen = std::move(first);
  }
  const host_list& hosts = chosen ? *chosen : all;
  if (std::getenv("VERBSPP_RANK") != nullptr) {
    VERBSPP_TRY(rank, detail::rank_from_environment());
    return join(hosts, rank, limit);
  }
  std::array<char, 256> own{};
  if (::gethostname(own.data(), own.size() - 1) != 0)
    return error::from_errno(errno, "gethostname");
  VERBSPP_TRY(rank, hosts.rank_on(own.data()));
  return join(hosts, rank, limit);
}

}  // namespace verbspp
