// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/readable.hpp"
#include "device/async_events.hpp"
#include "queue/completion_channel_state.hpp"
#include "wait/event_set.hpp"
#include "wait/waiting.hpp"
#include <verbspp/base/result.hpp>
#include <verbspp/device/detail/async_listener.hpp>
#include <verbspp/queue/completion_queue.hpp>
#include <verbspp/queue/completion_queue_with.hpp>

#include <sys/epoll.h>

#include <cerrno>
#include <cstdint>
#include <utility>

#pragma GCC visibility push(hidden)

namespace verbspp::detail {

/// The events for which the program's event loop waits on behalf of the owner of this object, which
/// is a channel or a hub. They are the completions of a queue, the asynchronous events of its
/// device, the events of one descriptor that the owner adds, and calls of `wake`.
class [[gnu::visibility("hidden")]] loop_events : public event_set {
 public:
  /// \param operation the name of the owner's operation in error messages
  explicit loop_events(const char* operation) noexcept : operation_(operation) {}

  /// Creates the epoll descriptor, and adds the descriptors of the queue and the device to it,
  /// unless that was done before. Does not add the descriptor of a device whose events can't be
  /// read without blocking.
  /// \pre the queue is waitable
  /// \errors `resource_exhausted`
  [[nodiscard]] result<void> open(const completion_queue& queue,
                                  async_listener& listener) noexcept {
    if (!is_open()) VERBSPP_TRYV(event_set::open(operation_));
    completion_queue_state& state = *completion_queue_access::state_of(queue);
    if (!has_device_) {
      const int device = async_events::of(state.owner).device_descriptor();
      if (device >= 0) VERBSPP_TRYV(add_tagged(device, EPOLLIN, of_device));
      listener.wake_by(signal());
      has_device_ = true;
    }
    if (!has_queue_) VERBSPP_TRYV(add_tagged(state.channel->native->fd, EPOLLIN, of_queue));
    has_queue_ = true;
    return success();
  }
  /// To be called when the owner has replaced its queue: makes the next `open` add the new queue's
  /// descriptor.
  void forget_queue() noexcept { has_queue_ = false; }

  /// Adds the owner's descriptor. `take` returns true when that descriptor is ready.
  [[nodiscard]] result<void> add_own(int descriptor, std::uint32_t events) noexcept {
    return add_tagged(descriptor, events, of_owner);
  }

  /// Reads the events that have made the descriptor readable, except those of the owner's
  /// descriptor.
  /// \returns true if the owner's descriptor is ready
  /// \errors `driver` if the device no longer exists
  [[nodiscard]] result<bool> take(const completion_queue& queue) noexcept {
    completion_queue_state& state = *completion_queue_access::state_of(queue);
    bool owner_is_ready = false;
    result<void> taken = success();
    event_set::take([&](std::uint64_t tag, std::uint32_t events) {
      if (tag == of_owner)
        owner_is_ready = true;
      else if ((events & EPOLLIN) == 0)
        taken = error::from_errno(EIO, operation_, device_is_gone);
      else if (tag == of_queue)
        state.stay_awake();
      else if (const auto read = async_events::of(state.owner).collect(); !read.has_value())
        taken = read;
    });
    VERBSPP_TRYV(taken);
    return owner_is_ready;
  }

 private:
  static constexpr std::uint64_t of_queue = 1, of_device = 2, of_owner = 3;

  [[nodiscard]] result<void> add_tagged(int descriptor, std::uint32_t events,
                                        std::uint64_t tag) noexcept {
    const int errnum = add(descriptor, events, tag);
    if (errnum == 0 || errnum == EEXIST) return success();
    return error::from_errno(errnum, operation_);
  }

  const char* operation_;
  bool has_device_ = false;
  bool has_queue_ = false;
};

}  // namespace verbspp::detail

#pragma GCC visibility pop
