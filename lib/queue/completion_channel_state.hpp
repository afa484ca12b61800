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
  return {error_kind::invalid_input, operation,
          "this completion channel was moved from, or came from a moved-from completion queue"};
}

/// Distributes the events of a channel to the threads that wait for them.
///
/// One waiting thread, the reader, sleeps on the file descriptor, with the lock released. The
/// others sleep on the condition variable, and do not read the descriptor until the reader wakes
/// up. The reader then wakes the others, and reads the event. Each thread checks whether its queue
/// has an event; the first thread that finds none becomes the next reader. An event wakes all
/// threads that wait for its queue, and remains pending until a thread starts to wait for that
/// queue, or takes the event separately. Threads that watch other file descriptors as well, or that
/// a stop request may wake, sleep on a `wake_signal` instead of the condition variable.
struct [[gnu::visibility("hidden")]] completion_channel_state : counted {
  completion_channel_state(context parent, ibv_comp_channel* made, ownership whose) noexcept
      : owner(std::move(parent)), native(made), destroyed_by(whose) {}
  completion_channel_state(const completion_channel_state&) = delete;
  completion_channel_state& operator=(const completion_channel_state&) = delete;
  ~completion_channel_state();

  /// Returns the queue of the next event that no caller has received yet; empty if the limit
  /// expires first.
  [[nodiscard]] result<reference<completion_queue_state>> take(const wait_limit& until) noexcept;

  /// Returns the number of events that the queue has had so far. The caller has to poll the queue
  /// afterwards, and that poll covers all of these events.
  [[nodiscard]] std::uint64_t settle(completion_queue_state& queue) noexcept;
  /// Performs `settle`, and also requests an event for the next completion unless one is due.
  [[nodiscard]] result<std::uint64_t> settle_asking(completion_queue_state& queue) noexcept;
  /// Sleeps until the queue has more than `events` events or `also.signal` is raised
  /// (`wait_end::completions`), until another object in `also` ends the wait, or until the limit
  /// expires.
  [[nodiscard]] result<wait_end> sleep(const completion_queue_state& queue, std::uint64_t events,
                                       const wait_limit& until, const also_watched& also) noexcept;

  /// Reads the available events, unless a thread sleeps on the descriptor. Events that are
  /// requested but never read would accumulate in the kernel.
  void collect() noexcept;

  /// From now on, makes an eventfd readable whenever a waiting thread has slept on the descriptor,
  /// since that thread may read an event that one of the program's event loops needs. A
  /// negative number means that there is no eventfd.
  void wake_loops_by(int event_descriptor) noexcept {
    const std::lock_guard held(lock_);
    woken_loops_ = event_descriptor;
  }

  /// Adds a queue that reports to this channel. Each event contains the pointer that was passed to
  /// libibverbs when its queue was created. If other code created the queue (`is_stranger`), the
  /// pointer belongs to that code; otherwise, it refers to the queue.
  void admit(completion_queue_state& queue, bool is_stranger) noexcept;
  /// Prepares the destruction of a queue. Without this call, the destruction would wait for events
  /// that were not acknowledged.
  void forget(completion_queue_state& queue) noexcept;
  /// Removes a queue that was destroyed, or that was borrowed or released.
  void dismiss(completion_queue_state& queue) noexcept;
  /// Notes that this channel was created elsewhere, and so may have queues that the library does
  /// not know. Called before the first use of the channel.
  void expect_strangers() noexcept { has_strangers_ = true; }

  context owner;
  ibv_comp_channel* native;
  ownership destroyed_by;

 private:
  /// Waits until a condition is true; events can make it true. Requires the lock, and holds it
  /// again on return.
  template <class Condition>
  [[nodiscard]] result<bool> wait(std::unique_lock<std::mutex>& held, const wait_limit& until,
                                  Condition condition) noexcept;
  /// Sleeps until the thread that is reading stops, or the limit expires. Requires the lock, and
  /// holds it again on return.
  [[nodiscard]] result<void> sleep_behind(std::unique_lock<std::mutex>& held,
                                          const wait_limit& until) noexcept;
  /// Sleeps once, on all watched objects. Returns an empty value if there may be events. Requires
  /// the lock, and holds it again on return.
  [[nodiscard]] result<std::optional<wait_end>> watch(std::unique_lock<std::mutex>& held,
                                                      const wait_limit& until,
                                                      const also_watched& also) noexcept;
  /// Called when the thread that slept on the descriptor has woken up. Wakes the others, one of
  /// which may take that thread's place. Requires the lock.
  void stop_reading() noexcept;
  /// Reads one event, if one is available. Requires the lock, and that no thread sleeps on the
  /// descriptor.
  [[nodiscard]] result<bool> read() noexcept;
  /// The queue that an event is for; null if the library does not know the queue. Requires the
  /// lock.
  [[nodiscard]] completion_queue_state* find(const ibv_cq* source, void* given) const noexcept;
  void append_pending(completion_queue_state& queue) noexcept;
  void remove_pending(completion_queue_state& queue) noexcept;

  std::mutex lock_;
  std::condition_variable changed_;
  wake_signal changed_for_watchers_;  ///< for threads that sleep on descriptors
  int woken_loops_ = -1;              ///< an eventfd; below 0 for none
  bool someone_reads_ = false;        ///< a thread sleeps on the descriptor
  /// True if the pointer in an event might not refer to one of the library's queues: other code
  /// created the channel or a queue, or the library has released a queue.
  bool has_strangers_ = false;
  completion_queue_state* all_ = nullptr;
  completion_queue_state* first_pending_ = nullptr;
  completion_queue_state* last_pending_ = nullptr;
};

}  // namespace verbspp::detail
#pragma GCC visibility pop
