// SPDX-License-Identifier: Apache-2.0
#include "machine/engine.hpp"

#include "wire/address.hpp"
#include "wire/wire.hpp"

#include <sched.h>

#include <cerrno>
#include <cstring>
#include <mutex>
#include <utility>

namespace softverbs {
namespace {

constexpr unsigned packets_per_progress = 64;
constexpr unsigned polls_per_yield = 32;

}  // namespace

engine::engine(softverbs::wire& wire) : wire_(wire), thread_(*this) {
  pairs_.resize(std::size_t{wire::index_mask} + 1);
}

int engine::descriptor() const noexcept { return wire_.descriptor(); }

int engine::add(served& pair) {
  // Numbers go round, so that a destroyed queue pair's doesn't come back soon.
  for (std::size_t tried = 0; tried < pairs_.size(); ++tried) {
    const std::uint32_t index = next_index_++ & wire::index_mask;
    if (pairs_[index] != nullptr) continue;
    pairs_[index] = &pair;
    pair.number_ = wire_.slot() << wire::index_bits | index;
    return 0;
  }
  return ENOMEM;
}

void engine::remove(served& pair) noexcept {
  groups_.forget(pair);
  if (groups_.empty()) wire_.hear_multicasts(false);
  pairs_[pair.number_ & wire::index_mask] = nullptr;
  std::erase(active_, &pair);
  forget(pair);
}

int engine::join(served& pair, const ibv_gid& gid, std::uint16_t lid) {
  if (const int error = wire_.hear_multicasts(true)) return error;
  return groups_.attach(pair, gid, lid);
}

int engine::leave(const served& pair, const ibv_gid& gid, std::uint16_t lid) noexcept {
  const int error = groups_.detach(pair, gid, lid);
  if (groups_.empty()) wire_.hear_multicasts(false);
  return error;
}

void engine::schedule(served& pair) {
  if (std::exchange(pair.scheduled_, true)) return;
  active_.push_back(&pair);
}

void engine::set_deadline(timed& who, nanoseconds when) {
  who.deadline_ = when;
  if (when == 0) return;  // taken off the list when it is next looked through
  if (!std::exchange(who.listed_, true)) timed_.push_back(&who);
  if (next_deadline_ == 0 || when < next_deadline_) next_deadline_ = when;
  thread_.wake_if_asleep_at(when);
}

void engine::check_deadlines() {
  if (next_deadline_ == 0) return;
  const nanoseconds time = now();
  if (time < next_deadline_) return;
  // Telling one may set it anew, or another one.
  std::vector<timed*> looked_at;
  looked_at.swap(timed_);
  next_deadline_ = 0;
  for (timed* who : looked_at) {
    who->listed_ = false;
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

bool engine::progress(bool thoroughly) {
  // While the program exits there is no wire any more, but requests can still be
  // flushed.
  if (wire_.is_open()) wire_.look(thoroughly);
  unsigned packets = 0;
  while (packets < packets_per_progress) {
    const packet* incoming = wire_.next();
    if (incoming == nullptr) break;
    ++packets;
    deliver(*incoming);
  }
  check_deadlines();
  for (const std::uint32_t qpn : wire_.writable_again())
    if (served* pair = pairs_[qpn & wire::index_mask]) schedule(*pair);
  wire_.writable_again().clear();
  // What becomes active meanwhile has to wait for the next time.
  for (std::size_t count = active_.size(); count > 0; --count) {
    served& pair = *active_.front();
    active_.pop_front();
    pair.scheduled_ = false;
    if (pair.serve()) schedule(pair);
  }
  return packets > 0 || !active_.empty();
}

void engine::drive() noexcept {
  thread_.polled();
  if (!lock_.try_lock()) return;
  bool in_vain = false;
  {
    const std::lock_guard held(lock_, std::adopt_lock);
    if (!progress(false)) in_vain = ++polls_in_vain_ % polls_per_yield == 0;
    // This may have been the program's last poll for a while.
    if (!active_.empty()) thread_.wake_if_asleep();
  }
  // Where processors are fewer than programs that poll, the peer may wait for this one's.
  if (in_vain) ::sched_yield();
}

void engine::sleeper_expected() noexcept {
  if (++sleepers_ == 1) thread_.wake_if_on_standby();
}

}  // namespace softverbs
