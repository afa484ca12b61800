// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "driver.hpp"
#include "fair_mutex.hpp"
#include "memory_region.hpp"
#include "multicast.hpp"
#include "transport.hpp"

#include <atomic>
#include <cstdint>
#include <deque>
#include <vector>

namespace softverbs {

class completion_queue;
class device_context;
class queue_pair;

/// Nanoseconds of the monotonic clock; 0 stands for never.
using nanoseconds = std::int64_t;
nanoseconds now() noexcept;

/// The hardware, so to say: one for the process, serving all of its devices.
///
/// Its lock protects everything but what says otherwise. User memory is touched
/// under it too, so that posting a request and polling its completion order the
/// program's accesses and the device's.
class engine {
 public:
  /// The process' own; a child of fork gets a new one.
  static engine& current();

  engine();
  engine(const engine&) = delete;
  engine& operator=(const engine&) = delete;

  /// Counts open devices: the first one starts the machinery, 0 or an errno; the
  /// last one stops it. Not under the lock.
  int attach();
  void detach() noexcept;

  fair_mutex lock;
  region_table regions;
  multicast_groups groups;
  transport wire;

  /// Gives the queue pair its number; 0 or an errno.
  int add(queue_pair& pair);
  void remove(const queue_pair& pair) noexcept;

  /// Has `pair` served by the next progress.
  void schedule(queue_pair& pair);

  /// Has `pair` told when the time has come. A queue pair has one deadline; it may
  /// come up late by as much as others delay it, never early.
  void set_deadline(queue_pair& pair, nanoseconds when);

  /// Does what there is to do, within limits. True if there is more.
  bool progress(bool thoroughly);

  /// Progress on behalf of a program that polls. Takes the lock itself, unless
  /// someone else has it, who then makes the progress.
  void drive() noexcept;
  /// Tells the engine's thread that something was posted, if nobody polls.
  void ring_doorbell() noexcept { thread_.wake_if_asleep(); }

  /// A program is about to sleep on a completion channel, or not any more.
  void sleeper_expected() noexcept;
  void sleeper_gone() noexcept { --sleepers_; }
  bool has_sleepers() const noexcept { return sleepers_ > 0; }

  /// Has the next progress made then, or before.
  void wake_at(nanoseconds when);
  /// Has the completions that `queue` holds back given out when they are due.
  void release_later(completion_queue& queue, nanoseconds due);
  void forget(const completion_queue& queue) noexcept { std::erase(holding_, &queue); }

  /// The open devices.
  std::vector<device_context*> contexts;

  /// When the next deadline is, 0 if there is none.
  nanoseconds next_deadline() const noexcept { return next_deadline_; }

 private:
  void check_deadlines();
  void deliver(const packet& incoming);
  void deliver_to_group(const packet& incoming);
  static void before_fork() noexcept;
  static void after_fork_in_parent() noexcept;
  static void after_fork_in_child() noexcept;
  static void at_exit() noexcept;

  std::vector<queue_pair*> pairs_;
  std::uint32_t next_index_ = 0;
  std::deque<queue_pair*> active_;
  std::vector<queue_pair*> timed_;
  std::vector<completion_queue*> holding_;
  nanoseconds next_deadline_;
  unsigned polls_in_vain_ = 0;
  int sleepers_ = 0;
  unsigned attached_ = 0;
  driver thread_;
  engine* predecessor_ = nullptr;
};

}  // namespace softverbs
