// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/wait_limit.hpp>
#include <verbspp/group/group_results.hpp>
#include <verbspp/group/peer_list.hpp>

#include <cstdint>

namespace verbspp {
class group;
}

namespace verbspp::detail {

/// Connects the members of a group at their first use. A world implements this, because it has the
/// addresses of its members.
///
/// Thread rule: as for the group.
class member_connector {
 public:
  member_connector() noexcept = default;
  member_connector(const member_connector&) = delete;
  member_connector& operator=(const member_connector&) = delete;

  /// True if this peer is still to be connected. False for peers outside the world, and for a peer
  /// whose number the program has given to another channel.
  [[nodiscard]] virtual bool is_due(const group& members, std::uint32_t peer) const noexcept = 0;
  /// Connects the listed peers that are still to be connected, and puts their channels into the
  /// group once both ends are connected.
  /// \returns the result for each peer
  [[nodiscard]] virtual group_results connect(group& members, const peer_list& peers,
                                              const wait_limit& limit) noexcept = 0;
  /// Responds to connection requests that have arrived from peers; never blocks.
  virtual void serve(group& members) noexcept = 0;

 protected:
  ~member_connector() = default;
};

}  // namespace verbspp::detail
