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

/// Has queue pairs served: when packets come in for them, when they have something to do, and when
/// their time has come.
class engine final : private progress_thread::work {
 public:
  explicit engine(softverbs::wire& wire);
  engine(const engine&) = delete;
  engine& operator=(const engine&) = delete;

  /// Protects all that the engine has, the lists of what is open, and the members of all objects of
  /// the device that don't say otherwise. Where several locks are held, they were taken in this
  /// order: the engine's, a queue pair's, a receive work queue's, that of a shared receive queue or
  /// completion queue.
  /// Posting and polling do without the engine's.
  fair_mutex& lock() noexcept override { return lock_; }

  /// Starts the thread that makes progress while nobody polls; 0 or an errno.
  int start() noexcept { return thread_.start(); }
  void stop() noexcept { thread_.stop(); }
  /// In a forked child, where there is no thread.
  void forget_thread() noexcept { thread_.forget(); }

  /// Gives the queue pair its number; 0 or an errno.
  int add(served& pair);
  /// It is no member of a group any more, either.
  void remove(served& pair) noexcept;

  /// By the lower part of its number; null if there is none.
  const served* find(std::uint32_t index) const noexcept {
    return index < pairs_.size() ? pairs_[index] : nullptr;
  }

  /// Of multicast groups; 0, also if it is a member already, or an errno.
  int join(served& pair, const ibv_gid& gid, std::uint16_t lid);
  int leave(const served& pair, const ibv_gid& gid, std::uint16_t lid) noexcept;
  bool is_member(const served& pair) const noexcept { return groups_.has(pair); }

  /// Of frames; 0 or an errno. The rule stays where it is until it is removed.
  int add(flow_rule& rule) noexcept;
  void remove(const flow_rule& rule) noexcept;
  bool has_rules(const served& pair) const noexcept { return rules_.has(pair); }

  /// Has `pair` served by the next progress.
  void schedule(served& pair) noexcept;
  /// The same without the lock, by whoever knows that the pair isn't being removed; and tells the
  /// engine's thread, if nobody polls.
  void ring(served& pair) noexcept;

  /// Has `who` told when the time has come, instead of the time before; 0 for never. It may come up
  /// late by as much as others delay it, never early.
  void set_deadline(timed& who, nanoseconds when);
  void forget(timed& who) noexcept;

  /// Does what there is to do, within limits. True if there is more.
  bool progress(bool thoroughly) override;

  /// With the lock held, makes progress until the device is idle, in at most `most_rounds` rounds:
  /// a peer may stop reading, or send without end.
  void settle(unsigned most_rounds = 64);

  /// Under the lock: does what there is to do now. From here on only `step` makes progress, in an
  /// order that the seed decides.
  void hold(std::uint64_t seed) noexcept;
  void go_on() noexcept;
  bool is_held() const noexcept { return held_.load(); }
  /// Under the lock: takes in one packet, or serves one queue pair, or, if there is neither, has
  /// the next deadline come, whatever the time is. False if there is none of these.
  bool step();

  /// Progress on behalf of a program that polls. Takes the lock itself, unless
  /// someone else has it, who then makes the progress.
  void drive() noexcept;
  /// Tells the engine's thread that there is something to do, if nobody polls.
  void ring_doorbell() noexcept { thread_.wake_if_asleep(); }

  /// A program is about to sleep on a completion channel, or not any more. Also without the lock.
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
  /// What has to be tried again later must not wait for the next one who makes progress.
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
  /// By the lower part of their numbers.
  std::vector<served*> pairs_;
  std::uint32_t next_index_ = 0;
  /// Those to be served, one after the other.
  served* first_active_ = nullptr;
  served* last_active_ = nullptr;
  std::size_t actives_ = 0;
  /// Those that `ring` was called for since the last progress; the last one comes first.
  std::atomic<served*> rung_{nullptr};
  std::vector<timed*> timed_;
  /// 0 if there is none.
  nanoseconds next_deadline_ = 0;
  unsigned polls_in_vain_ = 0;
  std::atomic<bool> held_{false};
  std::minstd_rand order_;
  std::atomic<int> sleepers_{0};
  progress_thread thread_;
};

}  // namespace softverbs
