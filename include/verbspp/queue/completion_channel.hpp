// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/detail/reference.hpp>
#include <verbspp/base/ownership.hpp>
#include <verbspp/base/result.hpp>
#include <verbspp/base/wait_limit.hpp>
#include <verbspp/device/context.hpp>
#include <verbspp/queue/completion_queue_with.hpp>

#include <infiniband/verbs.h>

#include <iosfwd>
#include <optional>

namespace verbspp {

/// Where completion queues report that there is something to poll.
///
/// An event is a hint, once per request for it: that completions came to a queue since. One channel
/// may serve several queues; the event says which. Whoever has one queue to wait for needs nothing
/// of this: see `completion_queue_with::wait`.
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

  /// Takes over, or borrows, a channel of this context that was made elsewhere. Its file descriptor
  /// is made non-blocking, and from now on nobody else may read its events: those of queues that
  /// were not created for, or adopted with, this channel are acknowledged and forgotten.
  /// \errors `invalid_input` for null, or one of another context; `resource_exhausted`
  [[nodiscard]] static result<completion_channel> from_native(const class context& parent,
                                                              ibv_comp_channel* native,
                                                              ownership whose) noexcept;
  /// Gives the channel away as it is, non-blocking: whoever takes it destroys it, before the
  /// context.
  /// \errors `busy` while there are other handles of it, or queues that report to it, and it stays
  /// as it is; `invalid_input` if it was moved from
  [[nodiscard]] result<ibv_comp_channel*> release() && noexcept;

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
      const wait_limit& until) const noexcept;

  /// For epoll and poll: readable while there are events. Nobody but the library may read it.
  [[nodiscard]] int file_descriptor() const noexcept;
  [[nodiscard]] const class context& context() const& noexcept VERBSPP_LIFETIMEBOUND;
  [[nodiscard]] class context context() && noexcept;
  [[nodiscard]] ibv_comp_channel* native_handle() const noexcept;
  friend bool operator==(const completion_channel&, const completion_channel&) noexcept = default;
  friend std::ostream& operator<<(std::ostream& out, const completion_channel& channel);

 private:
  template <completion_features Features>
  friend class completion_queue_with;
  friend struct detail::completion_queue_state;

  /// Where the queue reports.
  [[nodiscard]] static completion_channel of(const detail::completion_queue_state* queue) noexcept;
  explicit completion_channel(detail::reference<detail::completion_channel_state> state) noexcept;

  detail::reference<detail::completion_channel_state> state_;
};

}  // namespace verbspp
