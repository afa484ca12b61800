// SPDX-License-Identifier: Apache-2.0
#include "engine.hpp"

#include "faults.hpp"
#include "queue_pair.hpp"

#include <pthread.h>
#include <sched.h>
#include <time.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <utility>

namespace softverbs {
namespace {

constexpr unsigned packets_per_progress = 64;
constexpr unsigned polls_per_yield = 32;

/// The process' engine. Never freed: threads of the program may still call verbs
/// while it exits.
std::atomic<engine*> the_engine{nullptr};

/// What a child of fork inherited; kept, because open contexts refer to it.
engine* abandoned = nullptr;

/// Held while devices are opened and closed; never together with an engine's lock
/// but in this order.
std::mutex lifecycle;

}  // namespace

nanoseconds now() noexcept {
  timespec time{};
  ::clock_gettime(CLOCK_MONOTONIC, &time);
  return nanoseconds{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

engine::engine() : next_deadline_(faults::next_time()), thread_(*this) {
  pairs_.resize(std::size_t{transport::index_mask} + 1);
}

engine& engine::current() {
  if (engine* existing = the_engine.load(std::memory_order_acquire)) return *existing;
  const std::lock_guard held(lifecycle);
  if (engine* existing = the_engine.load(std::memory_order_acquire)) return *existing;
  static const int registered = [] {
    std::atexit(&engine::at_exit);
    return ::pthread_atfork(&engine::before_fork, &engine::after_fork_in_parent,
                            &engine::after_fork_in_child);
  }();
  static_cast<void>(registered);
  auto* created = new engine;
  created->predecessor_ = abandoned;
  the_engine.store(created, std::memory_order_release);
  return *created;
}

void engine::before_fork() noexcept {
  lifecycle.lock();
  if (engine* existing = the_engine.load(std::memory_order_acquire)) existing->lock.lock();
}

void engine::after_fork_in_parent() noexcept {
  if (engine* existing = the_engine.load(std::memory_order_acquire)) existing->lock.unlock();
  lifecycle.unlock();
}

void engine::after_fork_in_child() noexcept {
  // The parent's sockets must not live on here: its peers would take it for alive
  // when it is dead. Its objects stay as they are, without use.
  if (engine* inherited = the_engine.load(std::memory_order_acquire)) {
    inherited->thread_.forget();
    inherited->wire.abandon();
    abandoned = inherited;
    the_engine.store(nullptr, std::memory_order_release);
    inherited->lock.unlock();
  }
  lifecycle.unlock();
}

void engine::at_exit() noexcept {
  const std::lock_guard held(lifecycle);
  engine* existing = the_engine.load(std::memory_order_acquire);
  if (existing == nullptr) return;
  existing->thread_.stop();
  const std::lock_guard quiet(existing->lock);
  existing->wire.close();
}

int engine::attach() {
  const std::lock_guard held(lifecycle);
  if (attached_ == 0) {
    const std::lock_guard quiet(lock);
    if (const int error = wire.open()) return error;
    if (const int error = thread_.start()) {
      wire.close();
      return error;
    }
  }
  ++attached_;
  return 0;
}

void engine::detach() noexcept {
  const std::lock_guard held(lifecycle);
  if (--attached_ != 0) return;
  thread_.stop();
  const std::lock_guard quiet(lock);
  wire.close();
}

int engine::add(queue_pair& pair) {
  // Numbers go round, so that a destroyed queue pair's doesn't come back soon.
  for (std::size_t tried = 0; tried < pairs_.size(); ++tried) {
    const std::uint32_t index = next_index_++ & transport::index_mask;
    if (pairs_[index] != nullptr) continue;
    pairs_[index] = &pair;
    pair.qp_num = wire.slot() << transport::index_bits | index;
    pair.handle = pair.qp_num;
    return 0;
  }
  return ENOMEM;
}

void engine::remove(const queue_pair& pair) noexcept {
  regions.forget(pair);
  pairs_[pair.qp_num & transport::index_mask] = nullptr;
  std::erase(active_, &pair);
  std::erase(timed_, &pair);
}

void engine::schedule(queue_pair& pair) {
  if (std::exchange(pair.scheduled, true)) return;
  active_.push_back(&pair);
}

void engine::set_deadline(queue_pair& pair, nanoseconds when) {
  pair.deadline = when;
  if (when == 0) return;  // taken off the list when it is next looked through
  if (!std::exchange(pair.timed, true)) timed_.push_back(&pair);
  wake_at(when);
}

void engine::wake_at(nanoseconds when) {
  if (next_deadline_ == 0 || when < next_deadline_) next_deadline_ = when;
  thread_.wake_if_asleep_at(when);
}

void engine::release_later(completion_queue& queue, nanoseconds due) {
  if (std::find(holding_.begin(), holding_.end(), &queue) == holding_.end())
    holding_.push_back(&queue);
  wake_at(due);
}

void engine::check_deadlines() {
  if (next_deadline_ == 0) return;
  const nanoseconds time = now();
  if (time < next_deadline_) return;
  // Serving one may set it anew, or another one.
  std::vector<queue_pair*> looked_at;
  looked_at.swap(timed_);
  next_deadline_ = 0;
  for (queue_pair* pair : looked_at) {
    pair->timed = false;
    const nanoseconds deadline = pair->deadline;
    if (deadline == 0) continue;
    pair->deadline = 0;
    if (deadline <= time)
      pair->on_deadline(time);
    else
      set_deadline(*pair, deadline);
  }
  if (const nanoseconds next = faults::on_time(time)) wake_at(next);
  std::vector<completion_queue*> holding;
  holding.swap(holding_);
  for (completion_queue* queue : holding) queue->release_due(time);
}

void engine::deliver(const packet& incoming) {
  const packet_header& header = incoming.header;
  if (header.target_qpn == multicast_qpn) return deliver_to_group(incoming);
  if (header.target_qpn >> transport::index_bits != wire.slot()) return;
  queue_pair* pair = pairs_[header.target_qpn & transport::index_mask];
  if (pair != nullptr) pair->on_packet(incoming);
}

void engine::deliver_to_group(const packet& incoming) {
  const packet_header& header = incoming.header;
  if (header.kind != packet_kind::datagram) return;
  ibv_grh network;
  std::memcpy(&network, incoming.payload, sizeof(network));
  const auto path = read_header(network);
  if (!path) return;
  if (const auto* group = groups.find(path->target, static_cast<std::uint16_t>(header.address)))
    for (queue_pair* member : group->members) member->on_packet(incoming);
}

bool engine::progress(bool thoroughly) {
  // While the program exits there is no wire any more, but requests can still be
  // flushed.
  if (wire.is_open()) wire.look(thoroughly);
  unsigned packets = 0;
  while (packets < packets_per_progress) {
    const packet* incoming = wire.next();
    if (incoming == nullptr) break;
    ++packets;
    deliver(*incoming);
  }
  check_deadlines();
  for (const std::uint32_t qpn : wire.writable_again())
    if (queue_pair* pair = pairs_[qpn & transport::index_mask]) schedule(*pair);
  wire.writable_again().clear();
  // What becomes active meanwhile has to wait for the next time.
  for (std::size_t count = active_.size(); count > 0; --count) {
    queue_pair& pair = *active_.front();
    active_.pop_front();
    pair.scheduled = false;
    if (pair.serve()) schedule(pair);
  }
  return packets > 0 || !active_.empty();
}

void engine::drive() noexcept {
  thread_.polled();
  if (!lock.try_lock()) return;
  bool in_vain = false;
  {
    const std::lock_guard held(lock, std::adopt_lock);
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
