// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/result.hpp>
#include <verbspp/base/wait_limit.hpp>
#include <verbspp/group/group_error.hpp>
#include <verbspp/ranks/host_list.hpp>
#include <verbspp/ranks/tcp_bootstrap.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>

namespace verbspp {

/// A bootstrap that uses a list of hosts, which has to be the same for all ranks. The ranks meet
/// over TCP on the first host. A rank that arrives there with a different list is refused.
///
/// In all other respects, it behaves like a `tcp_bootstrap`.
class hosts_bootstrap {
 public:
  /// Joins the world.
  /// \errors as `tcp_bootstrap::join`, and `mismatch` if the list differs from rank 0's list
  [[nodiscard]] static result<hosts_bootstrap> join(const host_list& hosts, std::uint32_t rank,
                                                    const wait_limit& limit) noexcept;
  /// Reads the list from the file that VERBSPP_HOSTS names. If VERBSPP_WORLD_SIZE is set, only that
  /// number of ranks is used. The rank is VERBSPP_RANK or, if that is not set, the rank that the
  /// list assigns to this host's name.
  /// \errors as `join`, `host_list::read`, `first` and `rank_on`; `not_found` if VERBSPP_HOSTS is
  /// not set; `invalid_input` if VERBSPP_WORLD_SIZE or VERBSPP_RANK is not a number, or
  /// VERBSPP_MEETING_POINT is set, since the list determines the meeting point
  [[nodiscard]] static result<hosts_bootstrap> from_environment(const wait_limit& limit) noexcept;

  [[nodiscard]] std::uint32_t rank() const noexcept { return met_.rank(); }
  [[nodiscard]] std::uint32_t size() const noexcept { return met_.size(); }
  /// These functions publish a value, wait for all ranks, and read a value, as described for
  /// `Bootstrap`.
  /// \errors as the same functions of `tcp_bootstrap`
  [[nodiscard]] result<void> put(std::string_view key, std::span<const std::byte> value) noexcept {
    return met_.put(key, value);
  }
  [[nodiscard]] group_result<void> fence(const wait_limit& limit) noexcept {
    return met_.fence(limit);
  }
  [[nodiscard]] result<std::size_t> get(std::uint32_t rank, std::string_view key,
                                        std::span<std::byte> into,
                                        const wait_limit& limit) noexcept {
    return met_.get(rank, key, into, limit);
  }

 private:
  explicit hosts_bootstrap(tcp_bootstrap met) noexcept : met_(std::move(met)) {}

  tcp_bootstrap met_;
};

}  // namespace verbspp
