// SPDX-License-Identifier: Apache-2.0
/// \file
/// Sleeping until work has completed: completion channels, and the completion queues that report to
/// one.
#pragma once

#include <verbspp/base/detail/reference.hpp>
#include <verbspp/base/result.hpp>
#include <verbspp/base/wait_limit.hpp>
#include <verbspp/device/context.hpp>
#include <verbspp/queue/completion_queue.hpp>
#include <verbspp/work/work_completion.hpp>

#include <infiniband/verbs.h>

#include <cstddef>
#include <iosfwd>
#include <optional>
#include <span>

namespace verbspp {

class waitable_completion_queue;

/// Which completions make an event; the values are those of `ibv_req_notify_cq`.
enum class notify_for : int {
  every_completion = 0,
  /// Receives whose sender asked for it (`solicited`), and every failure.
  solicited_only = 1,
};

/// Where completion queues report that there is something to poll.
///
/// An event is a hint, once per request for it: that completions came to a queue since. One channel
/// may serve several queues; the event says which. Whoever has one queue to wait for needs nothing
/// of this: see `waitable_completion_queue::wait`.
///
/// In an event loop of the program's own:
/// 1. Watch `file_descriptor()` for being readable, in epoll or poll.
/// 2. When it is, and before the first sleep: call `poll` until it gives no more queues.
/// 3. For each of these queues: `request_notification`, *then* poll completions until there are no
///    more. In this order, since what comes before the request makes no event.
///
/// A queue's `wait` reads the events of all queues of the channel, and keeps those of others for
/// `poll`; so a loop that called it goes back to step 2 before it sleeps again. Other threads
/// should not wait on a channel whose file descriptor a loop watches.
///
/// Events are acknowledged by the library, several at a time; so destroying a queue never waits for
/// one. A shared handle, cheap to copy; its queues keep it alive, and it keeps its context alive.
/// Thread-safe. Each event goes to one caller of `poll` or `wait`, and to all who are in the `wait`
/// of its queue.
///
/// A handle that was moved from is empty: its file descriptor is -1, its native handle null, and
/// what asks the device is refused (`invalid_input`). But nobody may ask it for its context: that
/// is an assertion.
class completion_channel {
 public:
  /// `ibv_create_comp_channel`. Its file descriptor is non-blocking.
  /// \errors `resource_exhausted`, above all for file descriptors; `driver`
  [[nodiscard]] static result<completion_channel> create(const class context& parent) noexcept;

  completion_channel(const completion_channel&) noexcept;
  completion_channel(completion_channel&&) noexcept;
  completion_channel& operator=(const completion_channel&) noexcept;
  completion_channel& operator=(completion_channel&&) noexcept;
  ~completion_channel();

  /// The queue of the next event, if one is there; never blocks (`ibv_get_cq_event`).
  /// \errors `driver` if the device is gone
  [[nodiscard]] result<std::optional<waitable_completion_queue>> poll() const noexcept;
  /// The queue of the next event; empty at the limit and not before. Signals do not end it.
  /// \errors `driver` if the device is gone
  [[nodiscard]] result<std::optional<waitable_completion_queue>> wait(
      wait_limit until) const noexcept;

  /// For epoll and poll: readable while there are events. Nobody but the library may read it.
  [[nodiscard]] int file_descriptor() const noexcept;
  [[nodiscard]] const class context& context() const& noexcept VERBSPP_LIFETIMEBOUND;
  [[nodiscard]] class context context() && noexcept;
  [[nodiscard]] ibv_comp_channel* native_handle() const noexcept;
  friend bool operator==(const completion_channel&, const completion_channel&) noexcept = default;
  friend std::ostream& operator<<(std::ostream& out, const completion_channel& channel);

 private:
  friend class waitable_completion_queue;
  explicit completion_channel(detail::reference<detail::completion_channel_state> state) noexcept;

  detail::reference<detail::completion_channel_state> state_;
};

/// A completion queue that can be slept on.
///
/// It is a completion queue like every other besides: give it to a queue pair builder, poll it.
class waitable_completion_queue : public completion_queue {
 public:
  /// Creates a queue for at least `capacity` completions, which reports to the channel.
  /// \errors as `completion_queue::create`
  [[nodiscard]] static result<waitable_completion_queue> create(
      const class completion_channel& channel, std::size_t capacity) noexcept;
  /// The same with a channel of its own.
  [[nodiscard]] static result<waitable_completion_queue> create(const class context& parent,
                                                                std::size_t capacity) noexcept;

  /// Takes the completions that are there, or sleeps until some come.
  ///
  /// No completion is slept through, however it falls between poll and request: the queue is polled
  /// again after the request. Several threads may wait for one queue, or for several queues of one
  /// channel; each completion goes to one of them. Does not allocate. With `solicited_only` it
  /// returns what is there, but sleeps through what was not solicited.
  ///
  /// \returns the slots that were filled, the first ones; none at the limit and not before. Signals
  /// do not end it.
  /// \errors `invalid_input` if there are no slots; `driver` if the queue is broken or the device
  /// is gone. A queue that breaks while it is slept on wakes nobody: the context's asynchronous
  /// events tell.
  [[nodiscard]] result<std::span<const work_completion>> wait(
      std::span<work_completion> slots VERBSPP_LIFETIMEBOUND, wait_limit until,
      notify_for which = notify_for::every_completion) const noexcept;

  /// Asks for one event of the next completion from now on (`ibv_req_notify_cq`): for what is there
  /// already there will be none, so poll after it. For event loops; `wait` does it itself.
  /// \errors `driver`
  [[nodiscard]] result<void> request_notification(
      notify_for which = notify_for::every_completion) const noexcept;

  /// Where it reports: the channel that it was created for, or its own.
  [[nodiscard]] class completion_channel completion_channel() const noexcept;

 private:
  friend class completion_channel;
  explicit waitable_completion_queue(
      detail::reference<detail::completion_queue_state> state) noexcept
      : completion_queue(std::move(state)) {}
};

}  // namespace verbspp
