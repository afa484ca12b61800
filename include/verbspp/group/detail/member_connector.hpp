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

/// Connects the members of a group at their first use. Implemented by a world, which knows how to
/// reach them.
///
/// Thread rule: like the group.
class member_connector {
 public:
  member_connector() noexcept = default;
  member_connector(const member_connector&) = delete;
  member_connector& operator=(const member_connector&) = delete;

  /// True if that peer is still to be connected. False for peers that it does not know how to
  /// reach, and for those at whose number the program has put a channel of its own before the first
  /// use.
  [[nodiscard]] virtual bool is_due(const group& members, std::uint32_t peer) const noexcept = 0;
  /// Connects those of the peers that are still to be connected, and puts them into the group once
  /// they are connected at both ends.
  /// \returns the result for each peer
  [[nodiscard]] virtual group_results connect(group& members, const peer_list& peers,
                                              const wait_limit& limit) noexcept = 0;
  /// Answers connection requests to this end; doesn't wait for any.
  virtual void serve(group& members) noexcept = 0;

 protected:
  ~member_connector() = default;
};

}  // namespace verbspp::detail
