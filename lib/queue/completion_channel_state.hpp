// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/readable.hpp"
#include <verbspp/base/detail/reference.hpp>
#include <verbspp/base/result.hpp>
#include <verbspp/base/wait_limit.hpp>
#include <verbspp/device/context.hpp>
#include <verbspp/queue/completion_queue.hpp>

#include <infiniband/verbs.h>

#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace verbspp::detail {

/// Hands the events of a channel out to whoever waits for them.
///
/// One of the threads that wait sleeps on the file descriptor, with the lock released; the others
/// sleep on the condition until it wakes up, and nobody else reads the descriptor meanwhile. When
/// it does, it reads and all of them look whether it was for them; one takes its place. An event
/// wakes all who wait for its queue, and stays pending until somebody polls that queue or takes the
/// event by itself.
struct completion_channel_state : counted {
  completion_channel_state(context parent, ibv_comp_channel* created) noexcept
      : owner(std::move(parent)), native(created) {}
  completion_channel_state(const completion_channel_state&) = delete;
  completion_channel_state& operator=(const completion_channel_state&) = delete;
  ~completion_channel_state();

  /// The queue of an event that nobody has been given; empty at the limit.
  [[nodiscard]] result<reference<completion_queue_state>> take(wait_limit until) noexcept;

  /// The number of the queue's events so far, which is about to be polled for all of them.
  [[nodiscard]] std::uint64_t settle(completion_queue_state& queue) noexcept;
  /// Sleeps until the queue has had more events than that; false at the limit.
  [[nodiscard]] result<bool> sleep(const completion_queue_state& queue, std::uint64_t events,
                                   wait_limit until) noexcept;

  /// Reads the events that are there, unless somebody sleeps until they are: what is asked for and
  /// never read piles up in the kernel.
  void collect() noexcept;

  /// For a queue that is about to be destroyed, which would wait for unacknowledged events.
  void forget(completion_queue_state& queue) noexcept;

  context owner;
  ibv_comp_channel* native;

 private:
  /// Waits for a condition that events make true; needs the lock, and has it again afterwards.
  template <class Condition>
  [[nodiscard]] result<bool> wait(std::unique_lock<std::mutex>& held, wait_limit until,
                                  Condition condition) noexcept;
  /// Reads one event, if there is one; needs the lock, and that nobody sleeps on the descriptor.
  [[nodiscard]] result<bool> read() noexcept;
  void append_pending(completion_queue_state& queue) noexcept;
  void remove_pending(completion_queue_state& queue) noexcept;

  std::mutex lock_;
  std::condition_variable changed_;
  bool someone_reads_ = false;  ///< and sleeps on the descriptor
  completion_queue_state* first_pending_ = nullptr;
  completion_queue_state* last_pending_ = nullptr;
};

}  // namespace verbspp::detail
