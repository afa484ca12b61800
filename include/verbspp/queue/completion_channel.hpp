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

/// The channel through which completion queues report that there are completions to poll.
///
/// An event is a hint that completions have arrived in a queue since a notification was requested.
/// Each requested notification causes at most one event. One channel can serve several queues, and
/// the event identifies its queue. A program that waits for a single queue does not need this
/// class: see `completion_queue_with::wait`.
///
/// In the program's own event loop:
/// 1. Watch whether `file_descriptor()` is readable, with epoll or poll.
/// 2. When it is readable, and before the first sleep: call `poll` until it returns no more queues.
/// 3. For each of these queues and, before the first sleep, for every queue: call
///    `request_notification`, *then* poll completions until there are no more. The order matters:
///    completions that arrived before the request cause no event.
///
/// A queue's `wait` reads the events of all queues of the channel, and keeps those for other queues
/// until `poll` returns them, or their queues' own waits begin. A loop that has called `wait` must
/// therefore return to step 2 before it sleeps again. Other threads should not wait on a channel
/// whose file descriptor a loop watches.
///
/// The library acknowledges several events at a time. Before it destroys a queue, it acknowledges
/// the remaining ones, so that destroying a queue never waits for an acknowledgement. A shared
/// handle, which is cheap to copy. The channel's queues keep it alive, and it keeps its context
/// alive. Thread-safe: an event is returned to at most one caller of `poll` or `wait`, and wakes
/// all threads in the `wait` of its queue.
///
/// A moved-from handle is empty: its file descriptor is -1, its native handle is null, and calls
/// that need the device return `invalid_input`. Calling its `context` is an error, for which debug
/// builds have an assertion.
class completion_channel {
 public:
  /// Creates a channel (`ibv_create_comp_channel`), whose file descriptor is non-blocking.
  /// \errors `resource_exhausted`, mainly if no file descriptor is left; `driver`
  [[nodiscard]] static result<completion_channel> create(const class context& parent) noexcept;

  /// Takes over or borrows a channel of this context that was created elsewhere. Its file
  /// descriptor is made non-blocking, and from then on only the library may read its events. Events
  /// for queues that were neither created for this channel nor adopted with it are acknowledged and
  /// dropped.
  /// \errors `invalid_input` for null, or for a channel of another context; `resource_exhausted`;
  /// `driver` if the channel's file descriptor is not open
  [[nodiscard]] static result<completion_channel> from_native(const class context& parent,
                                                              ibv_comp_channel* native,
                                                              ownership whose) noexcept;
  /// Releases the channel to the caller, which must destroy it before the context is closed. Its
  /// file descriptor remains non-blocking.
  /// \errors `busy` if there are other handles to the channel, or queues that report to it; this
  /// handle then keeps the channel. `invalid_input` if this handle was moved from
  [[nodiscard]] result<ibv_comp_channel*> release() && noexcept;

  completion_channel(const completion_channel&) noexcept;
  completion_channel(completion_channel&&) noexcept;
  completion_channel& operator=(const completion_channel&) noexcept;
  completion_channel& operator=(completion_channel&&) noexcept;
  ~completion_channel();

  /// Returns the queue for which the next event was reported, if an event is available; never
  /// blocks (`ibv_get_cq_event`).
  /// \errors `driver` if the device no longer exists
  [[nodiscard]] result<std::optional<waitable_completion_queue>> poll() const noexcept;
  /// Waits for the next event and returns its queue. The result is empty only if the limit has
  /// expired or a stop was requested. Signals do not end the wait.
  /// \errors `driver` if the device no longer exists; `resource_exhausted` if no file descriptor is
  /// left (only with a stop token)
  [[nodiscard]] result<std::optional<waitable_completion_queue>> wait(
      const wait_limit& until) const noexcept;

  /// A file descriptor for epoll and poll, which is readable while events are available. Only the
  /// library may read it.
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

  /// The channel that the queue reports to.
  [[nodiscard]] static completion_channel of(const detail::completion_queue_state* queue) noexcept;
  explicit completion_channel(detail::reference<detail::completion_channel_state> state) noexcept;

  detail::reference<detail::completion_channel_state> state_;
};

}  // namespace verbspp
