// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <vector>

namespace softverbs {

class served;

/// Which of this process' queue pairs are members of which multicast groups.
class multicast_groups {
 public:
  struct group {
    ibv_gid gid;
    std::uint16_t lid;  ///< InfiniBand only
    std::vector<served*> members;
  };

  /// 0, also if it is a member already, or an errno.
  int attach(served& pair, const ibv_gid& gid, std::uint16_t lid);
  int detach(const served& pair, const ibv_gid& gid, std::uint16_t lid) noexcept;
  void forget(const served& pair) noexcept;

  bool has(const served& pair) const noexcept;
  bool empty() const noexcept { return groups_.empty(); }
  /// Null if there is none with members.
  const group* find(const ibv_gid& gid, std::uint16_t lid) const noexcept;

 private:
  std::vector<group> groups_;
};

}  // namespace softverbs
