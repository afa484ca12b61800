// SPDX-License-Identifier: Apache-2.0
#include "machine/engine.hpp"

#include "wire/address.hpp"
#include "wire/wire.hpp"

#include <sched.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <utility>

namespace softverbs {
namespace {

constexpr unsigned packets_per_progress = 64;
constexpr unsigned polls_per_yield = 32;
constexpr unsigned most_rounds_before_hold = 1000;

}  // namespace

engine::engine(softverbs::wire& wire) : wire_(wire), thread_(*this) {
  pairs_.resize(std::size_t{wire::index_mask} + 1);
}

int engine::descriptor() const noexcept { return held_.load() ? -1 : wire_.descriptor(); }

nanoseconds engine::next_deadline() const noexcept {
  if (held_.load()) return 0;
  const nanoseconds other = wire_.next_try();
  return next_deadline_ == 0 || (other != 0 && other < next_deadline_) ? other : next_deadline_;
}

bool engine::may_sleep() noexcept { return held_.load() || !wire_.is_open() || wire_.sleep(); }
bool engine::has_arrived() noexcept { return !held_.load() && wire_.has_arrived(); }

int engine::add(served& pair) {
  // The numbers are assigned in a cycle, so that the number of a destroyed queue pair is not reused
  // soon.
  for (std::size_t tried = 0; tried < pairs_.size(); ++tried) {
    const std::uint32_t index = next_index_++ & wire::index_mask;
    if (pairs_[index] != nullptr) continue;
    pairs_[index] = &pair;
    pair.number_ = wire_.slot() << wire::index_bits | index;
    return 0;
  }
  // Queue pairs and receive work queues of all open devices share the numbers, so the numbers may
  // run out before any device reaches its own limits.
  static bool told = false;
  if (!std::exchange(told, true))
    std::fprintf(stderr,
                 "softverbs: all %zu queue pairs and receive work queues that a process can have "
                 "are in use; destroy some to create others\n",
                 pairs_.size());
  return ENOMEM;
}

void engine::remove(served& pair) noexcept {
  groups_.forget(pair);
  hear_what_is_wanted();
  pairs_[pair.number_ & wire::index_mask] = nullptr;
  answer_ring();
  if (pair.scheduled_) take_off(pair);
  forget(pair);
  keep_next_try();
}

void engine::keep_next_try() noexcept {
  if (const nanoseconds next = wire_.next_try()) thread_.wake_if_asleep_at(next);
}

int engine::join(served& pair, const ibv_gid& gid, std::uint16_t lid) noexcept {
  if (const int error = wire_.hear_multicasts(true)) return error;
  const int error = groups_.attach(pair, gid, lid);
  hear_what_is_wanted();
  return error;
}

int engine::leave(const served& pair, const ibv_gid& gid, std::uint16_t lid) noexcept {
  const int error = groups_.detach(pair, gid, lid);
  hear_what_is_wanted();
  return error;
}

void engine::hear_what_is_wanted() noexcept {
  if (groups_.empty() && rules_.empty()) wire_.hear_multicasts(false);
}

int engine::add(flow_rule& rule) noexcept {
  if (const int error = wire_.hear_multicasts(true)) return error;
  const int error = rules_.add(rule);
  hear_what_is_wanted();
  return error;
}

void engine::remove(const flow_rule& rule) noexcept {
  rules_.remove(rule);
  hear_what_is_wanted();
}

void engine::schedule(served& pair) noexcept {
  if (std::exchange(pair.scheduled_, true)) return;
  pair.next_active_ = nullptr;
  pair.previous_active_ = last_active_;
  (last_active_ == nullptr ? first_active_ : last_active_->next_active_) = &pair;
  last_active_ = &pair;
  ++actives_;
}

void engine::take_off(served& pair) noexcept {
  served* const before = pair.previous_active_;
  served* const after = pair.next_active_;
  (before == nullptr ? first_active_ : before->next_active_) = after;
  (after == nullptr ? last_active_ : after->previous_active_) = before;
  pair.scheduled_ = false;
  --actives_;
}

void engine::ring(served& pair) noexcept {
  if (!pair.rung_.exchange(true)) {
    served* first = rung_.load(std::memory_order_relaxed);
    do pair.next_rung_ = first;
    while (!rung_.compare_exchange_weak(first, &pair));
  }
  ring_doorbell();
}

void engine::answer_ring() noexcept {
  if (rung_.load(std::memory_order_relaxed) == nullptr) return;
  // Queue pairs are served in the order in which `ring` was called for them.
  served* in_order = nullptr;
  for (served* pair = rung_.exchange(nullptr); pair != nullptr;)
    in_order = std::exchange(pair, std::exchange(pair->next_rung_, in_order));
  while (in_order != nullptr) {
    served& pair = *in_order;
    in_order = pair.next_rung_;
    schedule(pair);
    // If a request is posted after this, `ring` adds the queue pair to the list again.
    pair.rung_.store(false);
  }
}

void engine::set_deadline(timed& who, nanoseconds when) {
  who.deadline_ = when;
  if (when == 0) return;  // `check_deadlines` removes the object from the list
  if (who.listed_at_ == timed::unlisted) {
    who.listed_at_ = timed_.size();
    timed_.push_back(&who);
  }
  if (next_deadline_ == 0 || when < next_deadline_) next_deadline_ = when;
  thread_.wake_if_asleep_at(when);
}

void engine::forget(timed& who) noexcept {
  who.deadline_ = 0;
  if (who.listed_at_ == timed::unlisted) return;
  timed* const last = timed_.back();
  timed_[who.listed_at_] = last;
  last->listed_at_ = who.listed_at_;
  who.listed_at_ = timed::unlisted;
  timed_.pop_back();
}

void engine::check_deadlines() {
  if (next_deadline_ == 0) return;
  const nanoseconds time = now();
  if (time < next_deadline_) return;
  // The list is emptied first, because `on_deadline` may set new deadlines, for its own object or
  // for others.
  std::vector<timed*> looked_at;
  looked_at.swap(timed_);
  next_deadline_ = 0;
  for (timed* who : looked_at) who->listed_at_ = timed::unlisted;
  for (timed* who : looked_at) {
    const nanoseconds deadline = std::exchange(who->deadline_, 0);
    if (deadline == 0) continue;
    if (deadline <= time)
      who->on_deadline(time);
    else
      set_deadline(*who, deadline);
  }
}

void engine::deliver(const packet& incoming) {
  const packet_header& header = incoming.header;
  if (header.kind == packet_kind::frame) return deliver_frame(incoming);
  if (header.target_qpn == multicast_qpn) return deliver_to_group(incoming);
  if (header.target_qpn >> wire::index_bits != wire_.slot()) return;
  served* pair = pairs_[header.target_qpn & wire::index_mask];
  if (pair != nullptr) pair->on_packet(incoming);
}

void engine::deliver_to_group(const packet& incoming) {
  const packet_header& header = incoming.header;
  if (header.kind != packet_kind::datagram) return;
  ibv_grh network;
  std::memcpy(&network, incoming.payload, sizeof(network));
  const auto path = read_header(network);
  if (!path) return;
  if (const auto* group = groups_.find(path->target, static_cast<std::uint16_t>(header.address)))
    for (served* member : group->members) member->on_packet(incoming);
}

void engine::deliver_frame(const packet& incoming) {
  // The frame is copied, because the sender could change it between two reads.
  std::array<std::byte, limits::frame_bytes> bytes;
  std::memcpy(bytes.data(), incoming.payload, incoming.header.payload);
  packet own{incoming.header, bytes.data()};
  // Raw packet queue pairs use only this flag.
  own.header.flags &= packet_flag::solicited;
  const frame_headers headers = read_frame({bytes.data(), own.header.payload});
  const auto* group = groups_.find(gid_of_mac(headers.ethernet.dst_mac), 0);
  static const std::vector<served*> nobody_else;
  for (const auto& [pair, tag] : rules_.steer(
           headers, group == nullptr ? nobody_else : group->members, own.header.source_qpn)) {
    own.header.key = tag;
    pair->on_packet(own);
  }
}

void engine::settle(unsigned most_rounds) {
  for (unsigned round = 0; round < most_rounds && progress(true); ++round) {
  }
}

void engine::hold(std::uint64_t seed) noexcept {
  // Work that is already pending, for example after a change of state, is done now and not by
  // `step`.
  settle(most_rounds_before_hold);
  order_.seed(static_cast<std::minstd_rand::result_type>(seed));
  held_ = true;
}

void engine::go_on() noexcept {
  held_ = false;
  thread_.wake_if_asleep();
}

bool engine::take_packet() {
  // A packet may become visible only after several polls of a connection.
  constexpr int looks = 16;
  for (int look = 0; wire_.is_open() && look < looks; ++look) {
    if (const packet* incoming = wire_.next()) {
      deliver(*incoming);
      return true;
    }
    wire_.look(true);
  }
  return false;
}

bool engine::meet_next_deadline() {
  timed* first = nullptr;
  for (timed* each : timed_)
    if (each->deadline_ != 0 && (first == nullptr || each->deadline_ < first->deadline_))
      first = each;
  if (first == nullptr) return false;
  const nanoseconds time = std::max(now(), std::exchange(first->deadline_, 0));
  first->on_deadline(time);
  return true;
}

bool engine::step() {
  answer_ring();
  for (const std::uint32_t qpn : wire_.writable_again())
    if (served* pair = pairs_[qpn & wire::index_mask]) schedule(*pair);
  wire_.writable_again().clear();
  // Chooses at random whether to serve one of the active queue pairs or to receive a packet.
  const std::size_t turn = order_() % (actives_ + 1);
  if (turn == actives_ && take_packet()) return true;
  if (actives_ == 0) return meet_next_deadline();
  served* chosen = first_active_;
  for (std::size_t at = turn % actives_; at > 0; --at) chosen = chosen->next_active_;
  take_off(*chosen);
  if (chosen->serve()) schedule(*chosen);
  return true;
}

bool engine::progress(bool thoroughly) {
  received_bytes_ = 0;
  if (held_.load()) return false;
  // The wire is closed while the program exits, but requests can still be flushed.
  if (wire_.is_open()) wire_.look(thoroughly);
  unsigned packets = 0;
  while (packets < packets_per_progress) {
    const packet* incoming = wire_.next();
    if (incoming == nullptr) break;
    ++packets;
    received_bytes_ += incoming->header.payload;
    deliver(*incoming);
  }
  check_deadlines();
  answer_ring();
  for (const std::uint32_t qpn : wire_.writable_again())
    if (served* pair = pairs_[qpn & wire::index_mask]) schedule(*pair);
  wire_.writable_again().clear();
  // Queue pairs that become active during this loop are served by the next call.
  for (std::size_t count = actives_; count > 0; --count) {
    served& pair = *first_active_;
    take_off(pair);
    if (pair.serve()) schedule(pair);
  }
  keep_next_try();
  return packets > 0 || actives_ > 0;
}

void engine::drive() noexcept {
  thread_.polled();
  if (!lock_.try_lock()) return;
  bool in_vain = false;
  {
    const std::lock_guard held(lock_, std::adopt_lock);
    if (!progress(false)) in_vain = ++polls_in_vain_ % polls_per_yield == 0;
    thread_.polled_long(received_bytes_);
    // The program might not poll again for a while, so the engine's thread does the rest.
    if (actives_ > 0 || wire_.is_watched()) thread_.wake_if_asleep();
  }
  // If there are fewer processors than polling programs, the peer may be waiting for this
  // processor.
  if (in_vain) ::sched_yield();
}

void engine::sleeper_expected() noexcept {
  if (sleepers_.fetch_add(1) == 0) thread_.wake_if_on_standby();
}

}  // namespace softverbs
