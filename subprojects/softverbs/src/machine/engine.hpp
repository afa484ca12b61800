// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/clock.hpp"
#include "base/fair_mutex.hpp"
#include "machine/flow_rules.hpp"
#include "machine/multicast_groups.hpp"
#include "machine/progress_thread.hpp"
#include "machine/served.hpp"

#include <infiniband/verbs.h>

#include <atomic>
#include <cstdint>
#include <random>
#include <vector>

namespace softverbs {

struct packet;
class wire;

/// Serves queue pairs when packets arrive for them, when they have work, and when their deadlines
/// expire.
class engine final : private progress_thread::work {
 public:
  explicit engine(softverbs::wire& wire);
  engine(const engine&) = delete;
  engine& operator=(const engine&) = delete;

  /// Protects the engine, the lists of open objects, and all members of the device's objects unless
  /// their comments say otherwise. Locks are taken in this order: engine, queue pair, receive work
  /// queue, shared receive queue or completion queue. While `faults::any` is false, posting and
  /// polling don't wait for the engine's lock.
  fair_mutex& lock() noexcept override { return lock_; }

  /// Starts the thread that makes progress while no thread of the program polls. Returns 0 or an
  /// errno value.
  int start() noexcept { return thread_.start(); }
  void stop() noexcept { thread_.stop(); }
  /// Called in a forked child, in which the thread doesn't exist.
  void forget_thread() noexcept { thread_.forget(); }

  /// Assigns the queue pair its number. Returns 0 or an errno value.
  int add(served& pair);
  /// Removes the queue pair, and its memberships in multicast groups.
  void remove(served& pair) noexcept;

  /// Returns the queue pair whose number has `index` as its lower part, or null if there is none.
  const served* find(std::uint32_t index) const noexcept {
    return index < pairs_.size() ? pairs_[index] : nullptr;
  }

  /// Adds the queue pair to a multicast group, unless it is a member already. Returns 0 or an errno
  /// value.
  int join(served& pair, const ibv_gid& gid, std::uint16_t lid) noexcept;
  int leave(const served& pair, const ibv_gid& gid, std::uint16_t lid) noexcept;
  bool is_member(const served& pair) const noexcept { return groups_.has(pair); }

  /// Adds a rule that steers frames. Returns 0 or an errno value. The rule must stay at its address
  /// until it is removed.
  int add(flow_rule& rule) noexcept;
  void remove(const flow_rule& rule) noexcept;
  bool has_rules(const served& pair) const noexcept { return rules_.has(pair); }

  /// Makes the next `progress` serve `pair`.
  void schedule(served& pair) noexcept;
  /// Like `schedule`, but may be called without the lock. The queue pair must not be removed during
  /// the call. Also wakes the engine's thread, if it is asleep.
  void ring(served& pair) noexcept;

  /// Replaces the deadline of `who`. A deadline of 0 means never. `on_deadline` may be called late,
  /// depending on other work. Only `step` calls it early.
  void set_deadline(timed& who, nanoseconds when);
  void forget(timed& who) noexcept;

  /// Does the pending work, within limits. Unless `thoroughly` is true, may skip the system call
  /// that finds packets in sockets. Returns true if more work may be left.
  bool progress(bool thoroughly) override;

  /// Makes progress until the device is idle. Requires the lock. The number of rounds is limited,
  /// because a peer may stop reading, or send without end.
  void settle(unsigned most_rounds = 64);

  /// Does the pending work, and then holds the engine. Until `go_on` is called, only `step` makes
  /// progress, in an order that the seed determines. Requires the lock.
  void hold(std::uint64_t seed) noexcept;
  void go_on() noexcept;
  bool is_held() const noexcept { return held_.load(); }
  /// Processes one packet, or serves one queue pair. If there is nothing to process or serve, lets
  /// the next deadline expire immediately. Returns false if there is no deadline, either. Requires
  /// the lock.
  bool step();

  /// Makes progress on behalf of a program that polls. Takes the lock itself, but makes no progress
  /// if another thread holds the lock or waits for it.
  void drive() noexcept;
  /// Wakes the engine's thread if it is asleep.
  void ring_doorbell() noexcept { thread_.wake_if_asleep(); }

  /// The first function is called when the program requests an event for a completion queue,
  /// because a thread is probably about to wait for the event. The second one is called when the
  /// request has ended. Both may be called without the lock.
  void sleeper_expected() noexcept;
  void sleeper_gone() noexcept { sleepers_.fetch_sub(1); }

 private:
  bool has_sleepers() const noexcept override { return sleepers_.load() > 0; }
  bool was_rung() const noexcept override { return !held_.load() && rung_.load() != nullptr; }
  nanoseconds next_deadline() const noexcept override;
  bool may_sleep() noexcept override;
  bool has_arrived() noexcept override;
  int descriptor() const noexcept override;

  void take_off(served& pair) noexcept;
  /// Ensures that the engine's thread wakes up in time for the wire's next retry, even if no other
  /// thread makes progress.
  void keep_next_try() noexcept;
  void answer_ring() noexcept;
  void check_deadlines();
  bool meet_next_deadline();
  bool take_packet();
  void deliver(const packet& incoming);
  void deliver_to_group(const packet& incoming);
  void deliver_frame(const packet& incoming);
  void hear_what_is_wanted() noexcept;

  fair_mutex lock_;
  softverbs::wire& wire_;
  multicast_groups groups_;
  flow_rules rules_;
  /// Indexed by the lower part of the queue pair number.
  std::vector<served*> pairs_;
  std::uint32_t next_index_ = 0;
  /// The queue pairs to be served, in order.
  served* first_active_ = nullptr;
  served* last_active_ = nullptr;
  std::size_t actives_ = 0;
  /// The queue pairs for which `ring` was called, until `answer_ring` schedules them; the latest
  /// one first.
  std::atomic<served*> rung_{nullptr};
  std::vector<timed*> timed_;
  /// Not later than any deadline; 0 for never.
  nanoseconds next_deadline_ = 0;
  unsigned polls_in_vain_ = 0;
  /// The size of the data in the packets that the last call of `progress` has received.
  std::uint64_t received_bytes_ = 0;
  std::atomic<bool> held_{false};
  std::minstd_rand order_;
  std::atomic<int> sleepers_{0};
  progress_thread thread_;
};

}  // namespace softverbs
