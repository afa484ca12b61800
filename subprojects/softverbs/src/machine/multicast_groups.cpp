// SPDX-License-Identifier: Apache-2.0
#include "machine/multicast_groups.hpp"

#include "device/device.hpp"

#include <algorithm>
#include <cerrno>
#include <new>

namespace softverbs {
namespace {

bool is_in(const multicast_groups::group& group, const served& pair) noexcept {
  return std::ranges::find(group.members, &pair) != group.members.end();
}

}  // namespace

const multicast_groups::group* multicast_groups::find(const ibv_gid& gid,
                                                      std::uint16_t lid) const noexcept {
  const auto found = std::ranges::find_if(
      groups_, [&](const group& each) { return same(each.gid, gid) && each.lid == lid; });
  return found == groups_.end() ? nullptr : &*found;
}

bool multicast_groups::has(const served& pair) const noexcept {
  return std::ranges::any_of(groups_, [&](const group& each) { return is_in(each, pair); });
}

int multicast_groups::attach(served& pair, const ibv_gid& gid, std::uint16_t lid) noexcept try {
  auto* place = const_cast<group*>(find(gid, lid));
  if (place == nullptr) {
    if (groups_.size() >= static_cast<std::size_t>(limits::multicast_groups)) return ENOMEM;
    groups_.push_back({gid, lid, {&pair}});
    return 0;
  }
  if (is_in(*place, pair)) return 0;
  if (place->members.size() >= static_cast<std::size_t>(limits::multicast_members)) return ENOMEM;
  place->members.push_back(&pair);
  return 0;
} catch (const std::bad_alloc&) {
  return ENOMEM;
}

int multicast_groups::detach(const served& pair, const ibv_gid& gid, std::uint16_t lid) noexcept {
  auto* place = const_cast<group*>(find(gid, lid));
  if (place == nullptr || std::erase(place->members, &pair) == 0) return EINVAL;
  std::erase_if(groups_, [](const group& each) { return each.members.empty(); });
  return 0;
}

void multicast_groups::forget(const served& pair) noexcept {
  for (group& each : groups_) std::erase(each.members, &pair);
  std::erase_if(groups_, [](const group& each) { return each.members.empty(); });
}

}  // namespace softverbs
