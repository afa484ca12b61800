// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/clock.hpp"
#include "base/fair_mutex.hpp"
#include "machine/multicast_groups.hpp"
#include "machine/progress_thread.hpp"
#include "machine/served.hpp"

#include <infiniband/verbs.h>

#include <cstdint>
#include <deque>
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

  /// Protects all objects of the device but for what says otherwise. User memory is touched under
  /// it, too, so that posting a request and polling its completion order the program's accesses and
  /// the device's.
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

  /// Of multicast groups; 0, also if it is a member already, or an errno.
  int join(served& pair, const ibv_gid& gid, std::uint16_t lid);
  int leave(const served& pair, const ibv_gid& gid, std::uint16_t lid) noexcept;
  bool is_member(const served& pair) const noexcept { return groups_.has(pair); }

  /// Has `pair` served by the next progress.
  void schedule(served& pair);

  /// Has `who` told when the time has come, instead of the time before; 0 for never. It may come up
  /// late by as much as others delay it, never early.
  void set_deadline(timed& who, nanoseconds when);
  void forget(const timed& who) noexcept { std::erase(timed_, &who); }

  /// Does what there is to do, within limits. True if there is more.
  bool progress(bool thoroughly) override;

  /// Progress on behalf of a program that polls. Takes the lock itself, unless
  /// someone else has it, who then makes the progress.
  void drive() noexcept;
  /// Tells the engine's thread that something was posted, if nobody polls.
  void ring_doorbell() noexcept { thread_.wake_if_asleep(); }

  /// A program is about to sleep on a completion channel, or not any more.
  void sleeper_expected() noexcept;
  void sleeper_gone() noexcept { --sleepers_; }

 private:
  bool has_sleepers() const noexcept override { return sleepers_ > 0; }
  nanoseconds next_deadline() const noexcept override { return next_deadline_; }
  int descriptor() const noexcept override;

  void check_deadlines();
  void deliver(const packet& incoming);
  void deliver_to_group(const packet& incoming);

  fair_mutex lock_;
  softverbs::wire& wire_;
  multicast_groups groups_;
  /// By the lower part of their numbers.
  std::vector<served*> pairs_;
  std::uint32_t next_index_ = 0;
  std::deque<served*> active_;
  std::vector<timed*> timed_;
  /// 0 if there is none.
  nanoseconds next_deadline_ = 0;
  unsigned polls_in_vain_ = 0;
  int sleepers_ = 0;
  progress_thread thread_;
};

}  // namespace softverbs
