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

/// Who connects the members of a group at their first use: a world, which knows how to reach them.
///
/// Thread rule: as the group.
class member_connector {
 public:
  member_connector() noexcept = default;
  member_connector(const member_connector&) = delete;
  member_connector& operator=(const member_connector&) = delete;

  /// Whether that peer is still to be connected: none beyond those that it knows how to reach, nor
  /// one for which the program has put a channel of its own into the group before its first use.
  [[nodiscard]] virtual bool is_due(const group& members, std::uint32_t peer) const noexcept = 0;
  /// Puts those into the group that are still to be connected, once they are, at both ends.
  /// \returns of each peer what came of it
  [[nodiscard]] virtual group_results connect(group& members, const peer_list& peers,
                                              const wait_limit& limit) noexcept = 0;
  /// Answers those who connect to this end; doesn't wait for them.
  virtual void serve(group& members) noexcept = 0;

 protected:
  ~member_connector() = default;
};

}  // namespace verbspp::detail
