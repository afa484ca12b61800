// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <vector>

namespace softverbs {

class served;

/// The multicast groups that queue pairs of this process have joined, and their members.
class multicast_groups {
 public:
  struct group {
    ibv_gid gid;
    std::uint16_t lid;  ///< InfiniBand only
    std::vector<served*> members;
  };

  /// Adds the queue pair to a group, unless it is a member already. Returns 0 or an errno value.
  int attach(served& pair, const ibv_gid& gid, std::uint16_t lid) noexcept;
  int detach(const served& pair, const ibv_gid& gid, std::uint16_t lid) noexcept;
  void forget(const served& pair) noexcept;

  bool has(const served& pair) const noexcept;
  bool empty() const noexcept { return groups_.empty(); }
  /// Returns the group, or null if it has no members.
  const group* find(const ibv_gid& gid, std::uint16_t lid) const noexcept;

 private:
  std::vector<group> groups_;
};

}  // namespace softverbs
