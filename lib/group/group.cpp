// SPDX-License-Identifier: Apache-2.0
#include <verbspp/group/group.hpp>

#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <new>
#include <ostream>

namespace verbspp {

namespace {

constexpr const char* adding = "add a channel to a group";
/// The maximum time that a connection request from a peer waits while this end sleeps.
constexpr auto time_between_services = std::chrono::milliseconds(1);
constexpr const char* connecting = "connect peers of a group";
constexpr const char* polling = "poll a group";

}  // namespace

group& group::operator=(group&& other) noexcept {
  if (this == &other) return *this;
  stop();
  channels_ = std::move(other.channels_);
  numbers_ = std::move(other.numbers_);
  by_index_ = std::move(other.by_index_);
  size_ = std::exchange(other.size_, 0);
  connector_ = std::exchange(other.connector_, nullptr);
  hub_ = std::move(other.hub_);
  return *this;
}

result<group> group::create(const channel_hub& hub) noexcept {
  const std::uint32_t capacity = hub.capacity();
  if (capacity == 0)
    return error(error_kind::invalid_input, "group::create", "this hub was moved from");
  group made;
  made.hub_ = hub;
  made.channels_ = detail::owned<channel[]>(new (std::nothrow) channel[capacity]);
  made.numbers_ = detail::owned<std::uint32_t[]>(new (std::nothrow) std::uint32_t[capacity]);
  made.by_index_ = detail::owned<std::uint32_t[]>(new (std::nothrow) std::uint32_t[capacity]());
  if (!made.channels_ || !made.numbers_ || !made.by_index_) return no_memory("group::create");
  return made;
}

template <class Has>
peer_list group::collect_numbers(Has has) noexcept {
  std::uint32_t count = 0;
  for (std::uint32_t peer = 0; peer < size_; ++peer)
    if (has(peer)) numbers_.get()[count++] = peer;
  return std::span<const std::uint32_t>(numbers_.get(), count);
}

peer_list group::all() noexcept {
  return collect_numbers([this](std::uint32_t peer) {
    return channels_.get()[peer].state() != channel_state::empty || is_due(peer);
  });
}

peer_list group::connected() noexcept {
  return collect_numbers(
      [this](std::uint32_t peer) { return channels_.get()[peer].is_connected(); });
}

group_result<void> group::handshake(std::span<const endpoint> remotes) noexcept {
  if (remotes.size() < size_)
    return error::above_limit(
        "handshake of a group", "peers of the group", size_, remotes.size(),
        "the limit is the number of endpoints that were passed: pass one for "
        "each peer; the endpoints for peers that are not prepared are ignored");
  std::optional<std::uint32_t> first;
  error cause;
  std::uint32_t failed = 0;
  for (std::uint32_t peer = 0; peer < size_; ++peer) {
    channel& each = channels_.get()[peer];
    if (each.state() != channel_state::prepared) continue;
    const result<void> connected = each.handshake(remotes[peer]);
    if (connected.has_value() || failed++ != 0) continue;
    first = peer;
    cause = connected.assume_error();
  }
  if (first) return group_error(*first, cause, failed);
  return success();
}

bool group::is_any_due(const peer_list& peers) const noexcept {
  return connector_ != nullptr &&
         std::ranges::any_of(peers, [this](std::uint32_t peer) { return is_due(peer); });
}

detail::owned<bool[]> group::due_places(const peer_list& peers) const noexcept {
  detail::owned<bool[]> made(new (std::nothrow) bool[peers.size()]);
  if (made) std::ranges::transform(peers, made.get(), [this](auto peer) { return is_due(peer); });
  return made;
}

std::optional<transport_error> group::why_not_reached(const group_results& reached,
                                                      std::uint32_t place,
                                                      const wait_limit* limit) noexcept {
  if (place >= reached.size()) return transport_error(static_cast<error>(reached.error()));
  if (!reached[place].result.has_value()) return reached[place].result.assume_error();
  if (limit != nullptr && limit->has_passed()) return detail::channel_core::ended_before(*limit);
  return std::nullopt;
}

group_results group::connect(const peer_list& peers, const wait_limit& limit) noexcept {
  const auto count = static_cast<std::uint32_t>(peers.size());
  if (is_any_due(peers)) {
    const wait_limit until = detail::given(limit) != nullptr ? limit : wait_limit(usual_limit());
    auto begun = connector_->begin(*this, peers, until);
    if (!begun.has_value()) return begun.assume_error();
    while (!connector_->advance(*this, begun.assume_value(), until)) sched_yield();
    return begun.assume_value().take_results();
  }
  detail::owned<peer_result[]> told(new (std::nothrow) peer_result[count]);
  if (!told) return no_memory(connecting);
  for (std::uint32_t place = 0; place < count; ++place)
    told.get()[place] = {peers.begin()[place], state_of(peers.begin()[place])};
  return {std::move(told), count};
}

transport_result<completed_work> group::state_of(std::uint32_t peer) const noexcept {
  if (peer >= size_)
    return error::out_of_range(connecting, "the number of a peer", peer,
                               "it has to be below the group's size()");
  const channel& member = channels_.get()[peer];
  if (member.is_connected())
    return completed_work(detail::number_of(work_operation::send), 0, 0, 0);
  if (const auto failed = member.failure()) return failed->root();
  return error(
      error_kind::not_connected, connecting,
      "this peer is not connected: connect it with handshake(), or replace its channel with put(); "
      "in a world, call mend() on all ranks, after put() if the channel was removed");
}

result<void> group::check(const channel& member) const noexcept {
  if (is_empty())
    return error(error_kind::invalid_input, adding,
                 "this group is empty: create one with prepare_group or group::create");
  if (member.state() == channel_state::empty)
    return error(error_kind::invalid_input, adding,
                 "this channel is empty: pass a prepared or connected channel");
  if (member.native_completion_queue() != hub_->native_handle())
    return error(error_kind::invalid_input, adding,
                 "this channel does not use the group's hub: build it with .hub(group.hub())");
  return success();
}

result<std::uint32_t> group::add(channel&& member) noexcept {
  VERBSPP_TRYV(check(member));
  // There is a number for each channel that the hub can have, and `member` is one of these
  // channels. So a number is usually free. The other numbers may be reserved for peers that still
  // have to be connected, or taken by channels of another hub that the program has assigned to
  // members.
  for (std::uint32_t peer = 0; peer < hub_->capacity(); ++peer) {
    if (channels_.get()[peer].state() != channel_state::empty || is_due(peer)) continue;
    VERBSPP_TRYV(put(peer, std::move(member)));
    return peer;
  }
  return error(
      error_kind::resource_exhausted, adding,
      "all numbers of the group are in use, or reserved for peers that are not connected yet: "
      "create the hub for more channels (hub_options::channels or group_options::spare)");
}

result<void> group::put(std::uint32_t peer, channel&& member) noexcept {
  VERBSPP_TRYV(check(member));
  if (peer >= hub_->capacity())
    return error::above_limit(adding, "the number of a peer", peer, hub_->capacity() - 1,
                              "the number of a peer has to be below the number of channels that "
                              "the hub can have: use a lower one, or create the hub for more "
                              "channels (hub_options::channels or group_options::spare)");
  channels_.get()[peer] = std::move(member);
  size_ = std::max(size_, peer + 1);
  return success();
}

channel group::remove(std::uint32_t peer) noexcept {
  return peer < size_ ? std::move(channels_.get()[peer]) : channel();
}

std::optional<std::uint32_t> group::peer_of(channel_id id) noexcept {
  if (!hub_ || id.generation == 0 || id.index >= hub_->capacity()) return std::nullopt;
  const auto is_that = [&](const channel& each) {
    return each.state() != channel_state::empty && each.id() == id;
  };
  // The stored number may be outdated, because the program may assign channels to members directly.
  std::uint32_t& noted = by_index_.get()[id.index];
  if (noted < size_ && is_that(channels_.get()[noted])) return noted;
  const channel* const end = channels_.get() + size_;
  const channel* const found = std::find_if(channels_.get(), channels_.get() + size_, is_that);
  if (found == end) return std::nullopt;
  noted = static_cast<std::uint32_t>(found - channels_.get());
  return noted;
}

void group::take_news(std::span<arrival> arrived) noexcept {
  for (const arrival& each : arrived)
    if (!each.message)
      if (const auto peer = peer_of(each.source)) channels_.get()[*peer].poll();
}

error group::refusal_of_empty(const char* operation) noexcept {
  return {error_kind::invalid_input, operation,
          "this group is empty: create one with prepare_group or group::create"};
}

result<std::span<arrival>> group::poll(std::span<arrival> into) noexcept {
  if (is_empty()) return refusal_of_empty(polling);
  serve();
  VERBSPP_TRY(arrived, hub_->poll(into));
  take_news(arrived);
  return arrived;
}

result<void> group::poll() noexcept {
  if (is_empty()) return refusal_of_empty(polling);
  serve();
  return hub_->poll();
}

result<bool> group::request_notification() noexcept {
  if (is_empty()) return refusal_of_empty("request a notification of a group");
  return hub_->request_notification();
}

wait_limit::time_point group::deadline() const noexcept {
  if (is_empty()) return (wait_limit::time_point::max)();
  const wait_limit::time_point of_hub = hub_->deadline();
  if (connector_ == nullptr) return of_hub;
  return std::min(of_hub, std::chrono::steady_clock::now() + time_between_services);
}

result<std::span<arrival>> group::wait(std::span<arrival> into, const wait_limit& limit) noexcept {
  if (is_empty()) return refusal_of_empty("wait on a group");
  if (connector_ != nullptr) return wait_and_serve(into, limit);
  VERBSPP_TRY(arrived, hub_->wait(into, limit));
  take_news(arrived);
  return arrived;
}

result<std::span<arrival>> group::wait_and_serve(std::span<arrival> into,
                                                 const wait_limit& limit) noexcept {
  for (;;) {
    connector_->serve(*this);
    const bool is_last = limit.has_passed();
    const wait_limit slice =
        limit.no_later_than(std::chrono::steady_clock::now() + time_between_services);
    const auto arrived = hub_->wait(into, is_last ? limit : slice);
    if (arrived.has_value()) {
      take_news(arrived.assume_value());
      return arrived;
    }
    if (is_last || arrived.assume_error() != error_kind::timed_out) return arrived;
  }
}

std::chrono::nanoseconds group::usual_limit() const noexcept {
  const channel* const end = channels_.get() + size_;
  const channel* const first =
      std::find_if(static_cast<const channel*>(channels_.get()), end,
                   [](const channel& each) { return each.state() != channel_state::empty; });
  return first != end ? first->core().connection().settings().default_limit
                      : detail::channel_core::empty().connection().settings().default_limit;
}

error group::no_memory(const char* operation) noexcept {
  return error::from_errno(ENOMEM, operation);
}

std::ostream& operator<<(std::ostream& out, const group& g) {
  std::uint32_t connected = 0;
  std::uint32_t broken = 0;
  for (std::uint32_t peer = 0; peer < g.size_; ++peer) {
    connected += g[peer].is_connected() ? 1U : 0U;
    broken += g[peer].state() == channel_state::broken ? 1U : 0U;
  }
  return out << "group, numbers: " << g.size_ << ", connected: " << connected
             << ", broken: " << broken;
}

}  // namespace verbspp
