// SPDX-License-Identifier: Apache-2.0
#include <verbspp/group/group.hpp>
#include <verbspp/group/group_scope.hpp>

#include <cerrno>

namespace verbspp {

std::optional<group_error> group_scope::failure(bool is_manual) noexcept {
  std::optional<std::uint32_t> first;
  transport_error cause;
  std::uint32_t failed = 0;
  for (std::uint32_t peer = 0; peer < size_; ++peer) {
    if (!scopes_[peer]) continue;
    const std::optional<scope_error> left = scopes_[peer]->failure(is_manual);
    if (!left || failed++ != 0) continue;
    first = peer;
    cause = *left;
  }
  if (!first) return std::nullopt;
  return group_error(*first, cause, failed);
}

detail::owned<bool[]> group_scope::due_places(const peer_list& peers) const noexcept {
  if (connects_ == nullptr || !connects_->is_any_due(peers)) return {};
  return connects_->due_places(peers);
}

group_results group_scope::connect(const peer_list& peers) noexcept {
  return connects_->connect(peers, limit_);
}

std::optional<transport_error> group_scope::why_not_reached(const group_results& reached,
                                                            std::uint32_t place) const noexcept {
  return group::why_not_reached(reached, place, &limit_);
}

bool group_scope::is_reached(std::uint32_t peer) noexcept {
  if (connects_->is_due(peer)) static_cast<void>(connect(std::span(&peer, 1)));
  return !connects_->is_due(peer);
}

channel_scope& group_scope::refusing() noexcept {
  if (!refusing_) refusing_.emplace(detail::channel_core::empty(), limit_);
  return *refusing_;
}

error group_scope::no_such_peer(std::uint32_t peer) const noexcept {
  return error::out_of_range(
      "post in a scope of a group", "the number of a peer", peer,
      "it has to be below the size() that the group had when the scope began");
}

error group_scope::no_memory() noexcept {
  return error::from_errno(ENOMEM, "post in a scope of a group");
}

}  // namespace verbspp
