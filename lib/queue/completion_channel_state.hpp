// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/readable.hpp"
#include "base/wake_signal.hpp"
#include <verbspp/base/detail/reference.hpp>
#include <verbspp/base/ownership.hpp>
#include <verbspp/base/result.hpp>
#include <verbspp/base/wait_limit.hpp>
#include <verbspp/device/context.hpp>
#include <verbspp/queue/completion_queue.hpp>

#include <infiniband/verbs.h>

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>

#pragma GCC visibility push(hidden)
namespace verbspp::detail {

[[nodiscard]] inline error channel_moved_from(const char* operation) noexcept {
  return {error_kind::invalid_input, operation, "this completion channel was moved from"};
}

/// Hands the events of a channel out to whoever waits for them.
///
/// One of the threads that wait sleeps on the file descriptor, with the lock released; the others
/// sleep on the condition until it wakes up, and nobody else reads the descriptor meanwhile. When
/// it does, it reads and all of them look whether it was for them; one takes its place. An event
/// wakes all who wait for its queue, and stays pending until somebody polls that queue or takes the
/// event by itself. Those who watch other file descriptors as well sleep on a signal instead of the
/// condition.
struct [[gnu::visibility("hidden")]] completion_channel_state : counted {
  completion_channel_state(context parent, ibv_comp_channel* made, ownership whose) noexcept
      : owner(std::move(parent)), native(made), destroyed_by(whose) {}
  completion_channel_state(const completion_channel_state&) = delete;
  completion_channel_state& operator=(const completion_channel_state&) = delete;
  ~completion_channel_state();

  /// The queue of an event that nobody has been given; empty at the limit.
  [[nodiscard]] result<reference<completion_queue_state>> take(const wait_limit& until) noexcept;

  /// The number of the queue's events so far, which is about to be polled for all of them.
  [[nodiscard]] std::uint64_t settle(completion_queue_state& queue) noexcept;
  /// Sleeps until the queue has had more events than that (`completions`), or as `also` says.
  [[nodiscard]] result<wait_end> sleep(const completion_queue_state& queue, std::uint64_t events,
                                       const wait_limit& until, const also_watched& also) noexcept;

  /// Reads the events that are there, unless somebody sleeps until they are: what is asked for and
  /// never read piles up in the kernel.
  void collect() noexcept;

  /// For a queue that reports here from now on. Events find one that the library made by what it
  /// gave the verbs along; of others that is their maker's.
  void admit(completion_queue_state& queue, bool is_stranger) noexcept;
  /// For a queue that is about to be destroyed, which would wait for unacknowledged events.
  void forget(completion_queue_state& queue) noexcept;
  /// For one that is gone, or is somebody else's now.
  void dismiss(completion_queue_state& queue) noexcept;
  /// The channel was made elsewhere: it may have queues that the library does not know. Before
  /// anybody uses it.
  void expect_strangers() noexcept { has_strangers_ = true; }

  context owner;
  ibv_comp_channel* native;
  ownership destroyed_by;

 private:
  /// Waits for a condition that events make true; needs the lock, and has it again afterwards.
  template <class Condition>
  [[nodiscard]] result<bool> wait(std::unique_lock<std::mutex>& held, const wait_limit& until,
                                  Condition condition) noexcept;
  /// Sleeps once, on all that is watched; empty if events may have come. Needs the lock, and that
  /// there are no events to read, and has it again afterwards.
  [[nodiscard]] result<std::optional<wait_end>> watch(std::unique_lock<std::mutex>& held,
                                                      const wait_limit& until,
                                                      const also_watched& also) noexcept;
  /// Nobody sleeps on the descriptor any more; wakes those who could. Needs the lock.
  void stop_reading() noexcept;
  /// Reads one event, if there is one; needs the lock, and that nobody sleeps on the descriptor.
  [[nodiscard]] result<bool> read() noexcept;
  /// Whose event it is; null for a queue that the library does not know. Needs the lock.
  [[nodiscard]] completion_queue_state* find(const ibv_cq* source, void* given) const noexcept;
  void append_pending(completion_queue_state& queue) noexcept;
  void remove_pending(completion_queue_state& queue) noexcept;

  std::mutex lock_;
  std::condition_variable changed_;
  wake_signal changed_for_watchers_;  ///< the same
  bool someone_reads_ = false;        ///< and sleeps on the descriptor
  /// There may be queues that were not made for this channel by the library.
  bool has_strangers_ = false;
  completion_queue_state* all_ = nullptr;
  completion_queue_state* first_pending_ = nullptr;
  completion_queue_state* last_pending_ = nullptr;
};

}  // namespace verbspp::detail
#pragma GCC visibility pop
