// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/detail/chrono.hpp>
#include <verbspp/base/detail/owned.hpp>
#include <verbspp/base/result.hpp>
#include <verbspp/base/wait_limit.hpp>
#include <verbspp/group/group_results.hpp>
#include <verbspp/group/peer_list.hpp>

#include <cstdint>
#include <optional>
#include <utility>

namespace verbspp {
class group;
}

namespace verbspp::detail {

/// The progress of connecting several peers.
struct connecting_peers {
  using time_point = wait_limit::time_point;

  owned<peer_result[]> results{};  ///< the results so far, in the order of the list of peers
  owned<bool[]> is_open{};         ///< true for peers to which connection requests are still sent
  std::uint32_t size = 0;
  // A round sends one request to each of the peers that are still open.
  std::uint32_t said = 0;            ///< the number of listed peers that this round has handled
  std::chrono::nanoseconds pause{};  ///< the time between the next two rounds
  time_point next{};                 ///< the time of the next round
  /// The time at which this end learned that every peer was connected at both ends, or had failed;
  /// empty until then.
  std::optional<time_point> ready{};

  [[nodiscard]] group_results take_results() noexcept { return {std::move(results), size}; }
};

/// Connects the members of a group on their first use. Worlds implement this (`first_contact`),
/// because a world has the addresses of its members.
///
/// Thread rule: as for the group.
class member_connector {
 public:
  member_connector() noexcept = default;
  member_connector(const member_connector&) = delete;
  member_connector& operator=(const member_connector&) = delete;

  /// True if this peer still has to be connected. False for numbers outside the world, and for
  /// numbers to which the program assigned a channel of its own before either end began to connect.
  [[nodiscard]] virtual bool is_due(const group& members, std::uint32_t peer) const noexcept = 0;
  /// Begins to connect those of the listed peers that still have to be connected: puts channels for
  /// them into the group. The call may read the addresses of these peers, which takes until the
  /// limit at most.
  /// \errors `resource_exhausted`
  [[nodiscard]] virtual result<connecting_peers> begin(group& members, const peer_list& peers,
                                                       const wait_limit& limit) noexcept = 0;
  /// Continues to connect the peers, without waiting for them. Calls `serve`.
  /// \returns true when `those` has the result for each of the listed peers
  [[nodiscard]] virtual bool advance(group& members, connecting_peers& those,
                                     const wait_limit& limit) noexcept = 0;
  /// Responds to connection requests that have arrived from peers. Does not wait for requests, but
  /// may wait up to 200 ms for the data of each new peer.
  virtual void serve(group& members) noexcept = 0;

 protected:
  ~member_connector() = default;
};

}  // namespace verbspp::detail
