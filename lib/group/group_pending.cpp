// SPDX-License-Identifier: Apache-2.0
#include <verbspp/group/group_pending.hpp>

#include <cerrno>
#include <new>

namespace verbspp {

namespace {

constexpr const char* posting = "post to several peers of a group";

}  // namespace

result<group_pending> group_pending::reserve(const peer_list& peers, std::uint32_t end) noexcept {
  for (const std::uint32_t peer : peers)
    if (peer >= end)
      return error::out_of_range(posting, "the number of a peer", peer,
                                 "it has to be below the group's size()");
  group_pending made;
  made.handles_ = detail::owned<pending<>[]>(new (std::nothrow) pending<>[peers.size()]);
  made.results_ = detail::owned<peer_result[]>(new (std::nothrow) peer_result[peers.size()]);
  if (!made.handles_ || !made.results_) return error::from_errno(ENOMEM, posting);
  for (const std::uint32_t peer : peers) made.results_.get()[made.size_++].peer = peer;
  return made;
}

std::optional<group_results> group_pending::poll() noexcept {
  for (; first_ < size_; ++first_) {
    pending<>& handle = handles_.get()[first_];
    if (!handle.has_request()) continue;
    auto done = handle.poll();
    if (!done) return std::nullopt;
    results_.get()[first_].result = *done;
  }
  return finish();
}

group_results group_pending::wait(const wait_limit& limit) noexcept {
  for (; first_ < size_; ++first_)
    if (pending<>& handle = handles_.get()[first_]; handle.has_request())
      results_.get()[first_].result = handle.wait(limit);
  return finish();
}

group_results group_pending::finish() noexcept {
  if (!results_)
    return error(error_kind::invalid_input, "results of several peers",
                 "this handle has no results: they were already taken, or it was moved from");
  handles_ = {};
  return {std::move(results_), std::exchange(size_, 0)};
}

}  // namespace verbspp
