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

  /// True if this peer still has to be connected. False for numbers outside the world, and for
  /// numbers to which the program has assigned a channel of its own.
  [[nodiscard]] virtual bool is_due(const group& members, std::uint32_t peer) const noexcept = 0;
  /// Connects those of the listed peers that still have to be connected, and puts their channels
  /// into the group.
  /// \returns the result for each of the listed peers
  [[nodiscard]] virtual group_results connect(group& members, const peer_list& peers,
                                              const wait_limit& limit) noexcept = 0;
  /// Responds to connection requests that have arrived from peers. Does not wait for requests, but
  /// may wait up to 200 ms for the data of a new peer.
  virtual void serve(group& members) noexcept = 0;

 protected:
  ~member_connector() = default;
};

}  // namespace verbspp::detail
