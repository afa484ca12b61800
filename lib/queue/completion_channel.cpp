// SPDX-License-Identifier: Apache-2.0
#include "base/readable.hpp"
#include "device/async_events.hpp"
#include "device/usable.hpp"
#include "queue/completion_channel_state.hpp"
#include "queue/watched_descriptors.hpp"
#include <verbspp/base/destroy_failure.hpp>
#include <verbspp/base/object_trace.hpp>
#include <verbspp/queue/completion_channel.hpp>

#include <poll.h>

#include <array>
#include <cassert>
#include <cerrno>
#include <new>
#include <optional>
#include <ostream>
#include <string>
#include <utility>

namespace verbspp {

namespace detail {

namespace {

/// The number of events that are acknowledged together, because each acknowledgement takes a lock
/// in libibverbs, and may wake a thread.
constexpr unsigned acknowledged_together = 64;

}  // namespace

completion_channel_state::~completion_channel_state() {
  if (destroyed_by == ownership::taken)
    report_destroy(native, errno_of(ibv_destroy_comp_channel(native)), "ibv_destroy_comp_channel");
}

void completion_channel_state::append_pending(completion_queue_state& queue) noexcept {
  if (std::exchange(queue.events.pending, true)) return;
  queue.events.before = std::exchange(last_pending_, &queue);
  (queue.events.before != nullptr ? queue.events.before->events.after : first_pending_) = &queue;
}

void completion_channel_state::remove_pending(completion_queue_state& queue) noexcept {
  if (!std::exchange(queue.events.pending, false)) return;
  completion_queue_state* const before = std::exchange(queue.events.before, nullptr);
  completion_queue_state* const after = std::exchange(queue.events.after, nullptr);
  (before != nullptr ? before->events.after : first_pending_) = after;
  (after != nullptr ? after->events.before : last_pending_) = before;
}

completion_queue_state* completion_channel_state::find(const ibv_cq* source,
                                                       void* given) const noexcept {
  if (!has_strangers_) return static_cast<completion_queue_state*>(given);
  completion_queue_state* each = all_;
  while (each != nullptr && each->native != source) each = each->events.next;
  return each;
}

result<bool> completion_channel_state::read() noexcept {
  ibv_cq* source = nullptr;
  void* user_context = nullptr;
  VERBSPP_TRY(got, read_event([&] { return ibv_get_cq_event(native, &source, &user_context); },
                              "ibv_get_cq_event"));
  if (!got) return false;
  // The queue exists until the event is acknowledged; `forget` acknowledges the remaining events.
  completion_queue_state* const found = find(source, user_context);
  if (found == nullptr || found->events.closed) {
    ibv_ack_cq_events(source, 1);
    return true;
  }
  completion_queue_state& queue = *found;
  if (++queue.events.unacknowledged == acknowledged_together)
    ibv_ack_cq_events(source, std::exchange(queue.events.unacknowledged, 0));
  ++queue.events.count;
  queue.events.is_due = false;
  append_pending(queue);
  return true;
}

template <class Condition>
result<bool> completion_channel_state::wait(std::unique_lock<std::mutex>& held,
                                            const wait_limit& until, Condition condition) noexcept {
  for (;;) {
    if (condition()) return true;
    const bool in_time = !until.has_passed();
    if (someone_reads_) {
      // If this thread read the event itself, the thread that sleeps on the descriptor might not
      // wake up.
      if (!in_time) return false;
      if (until.has_callbacks())
        VERBSPP_TRYV(sleep_behind(held, until));
      else if (until.is_forever())
        changed_.wait(held);
      else
        changed_.wait_until(held, until.sleep_until());
      continue;
    }
    VERBSPP_TRY(got, read());
    if (got) continue;
    if (!in_time) return false;
    someone_reads_ = true;
    held.unlock();
    const result<bool> readable = wait_readable(native->fd, until, "completion channel");
    held.lock();
    stop_reading();
    VERBSPP_TRYV(readable);
  }
}

result<void> completion_channel_state::sleep_behind(std::unique_lock<std::mutex>& held,
                                                    const wait_limit& until) noexcept {
  VERBSPP_TRY(entered, changed_for_watchers_.enter());
  const int signal = changed_for_watchers_.descriptor();
  held.unlock();
  const result<bool> woken = wait_readable(signal, until, "completion channel");
  held.lock();
  changed_for_watchers_.leave(entered);
  VERBSPP_TRYV(woken);
  return success();
}

void completion_channel_state::stop_reading() noexcept {
  someone_reads_ = false;
  changed_.notify_all();
  changed_for_watchers_.wake_all();
  if (woken_loops_ >= 0) raise(woken_loops_);
}

result<std::optional<wait_end>> completion_channel_state::watch(std::unique_lock<std::mutex>& held,
                                                                const wait_limit& until,
                                                                const also_watched& also) noexcept {
  constexpr const char* operation = "wait for completions";
  async_events::sleep asleep;
  if (also.listener != nullptr) {
    VERBSPP_TRY(begun, async_events::of(*also.listener).begin_sleep(also.listener));
    if (begun.is_needless) return std::optional(wait_end::async_event);
    asleep = begun;
  }
  const auto end_sleep = [&] {
    if (also.listener != nullptr) async_events::of(*also.listener).end_sleep(asleep);
  };
  const bool reads = !std::exchange(someone_reads_, true);
  std::uint64_t entered = 0;
  if (!reads) {
    const result<std::uint64_t> begun = changed_for_watchers_.enter();
    if (!begun.has_value()) {
      end_sleep();
      return begun.assume_error();
    }
    entered = begun.assume_value();
  }
  const int events = reads ? native->fd : changed_for_watchers_.descriptor();
  std::array<pollfd, 6> watched{{{.fd = events, .events = POLLIN, .revents = 0},
                                 {.fd = asleep.device, .events = POLLIN, .revents = 0},
                                 {.fd = asleep.signal, .events = POLLIN, .revents = 0},
                                 entry_of(also.descriptor),
                                 entry_of(also.another),
                                 {.fd = also.signal, .events = POLLIN, .revents = 0}}};
  held.unlock();
  const result<bool> woken = wait_readable(watched, until);
  end_sleep();
  result<void> collected = success();
  if (watched[1].revents != 0) collected = async_events::of(*also.listener).collect();
  held.lock();
  if (reads)
    stop_reading();
  else
    changed_for_watchers_.leave(entered);

  VERBSPP_TRY(in_time, woken);
  if (also.listener != nullptr && also.listener->has_heard())
    return std::optional(wait_end::async_event);
  VERBSPP_TRYV(collected);
  VERBSPP_TRYV(check_alive(watched[1], "asynchronous events"));
  VERBSPP_TRYV(check_alive(watched[0], "completion channel"));
  for (const pollfd& seen : {watched[3], watched[4]}) {
    VERBSPP_TRY(is_over, ends_wait(seen, operation));
    if (is_over) return std::optional(wait_end::file_descriptor);
  }
  if (!in_time) return std::optional(wait_end::limit);
  if (watched[5].revents != 0) return std::optional(wait_end::completions);
  return std::optional<wait_end>();
}

result<reference<completion_queue_state>> completion_channel_state::take(
    const wait_limit& until) noexcept {
  reference<completion_queue_state> taken;
  std::unique_lock held(lock_);
  VERBSPP_TRYV(wait(held, until, [&]() noexcept {
    while (first_pending_ != nullptr && !taken) {
      completion_queue_state* const queue = first_pending_;
      remove_pending(*queue);
      taken = reference<completion_queue_state>::if_alive(queue);
    }
    return static_cast<bool>(taken);
  }));
  return taken;
}

std::uint64_t completion_channel_state::settle(completion_queue_state& queue) noexcept {
  const std::lock_guard held(lock_);
  remove_pending(queue);
  return queue.events.count;
}

result<std::uint64_t> completion_channel_state::settle_asking(
    completion_queue_state& queue) noexcept {
  const std::lock_guard held(lock_);
  remove_pending(queue);
  if (!queue.events.is_due) {
    // The event is requested under the lock, so that a thread that finds `is_due` set can rely on
    // the event.
    VERBSPP_TRYV(request_notification(queue.native, notify_for::every_completion));
    queue.events.is_due = true;
  }
  return queue.events.count;
}

result<wait_end> completion_channel_state::sleep(const completion_queue_state& queue,
                                                 std::uint64_t events, const wait_limit& until,
                                                 const also_watched& also) noexcept {
  std::unique_lock held(lock_);
  const auto has_more = [&]() noexcept { return queue.events.count != events; };
  if (also.descriptor.number < 0 && also.another.number < 0 && also.listener == nullptr) {
    VERBSPP_TRY(in_time, wait(held, until, has_more));
    return in_time ? wait_end::completions : wait_end::limit;
  }
  while (!has_more()) {
    // If an event has already arrived, the descriptor is readable, so the sleep ends immediately.
    VERBSPP_TRY(end, watch(held, until, also));
    if (end) return *end;
    if (!someone_reads_) VERBSPP_TRYV(read());
  }
  return wait_end::completions;
}

void completion_channel_state::collect() noexcept {
  const std::lock_guard held(lock_);
  // If reading fails, the next thread that waits gets the failure.
  for (bool more = !someone_reads_; more;) {
    const result<bool> got = read();
    more = got.has_value() && got.assume_value();
  }
}

void completion_channel_state::admit(completion_queue_state& queue, bool is_stranger) noexcept {
  const std::lock_guard held(lock_);
  has_strangers_ = has_strangers_ || is_stranger;
  queue.events.next = std::exchange(all_, &queue);
  if (queue.events.next != nullptr) queue.events.next->events.previous = &queue;
}

void completion_channel_state::forget(completion_queue_state& queue) noexcept {
  unsigned unacknowledged = 0;
  {
    const std::lock_guard held(lock_);
    queue.events.closed = true;
    remove_pending(queue);
    unacknowledged = std::exchange(queue.events.unacknowledged, 0);
  }
  if (unacknowledged != 0) ibv_ack_cq_events(queue.native, unacknowledged);
}

void completion_channel_state::dismiss(completion_queue_state& queue) noexcept {
  const std::lock_guard held(lock_);
  has_strangers_ = has_strangers_ || queue.destroyed_by == ownership::borrowed;
  completion_queue_state* const previous = std::exchange(queue.events.previous, nullptr);
  completion_queue_state* const next = std::exchange(queue.events.next, nullptr);
  (previous != nullptr ? previous->events.next : all_) = next;
  if (next != nullptr) next->events.previous = previous;
}

}  // namespace detail

completion_channel::completion_channel(
    detail::reference<detail::completion_channel_state> state) noexcept
    : state_(std::move(state)) {}
completion_channel::completion_channel(const completion_channel&) noexcept = default;
completion_channel::completion_channel(completion_channel&&) noexcept = default;
completion_channel& completion_channel::operator=(const completion_channel&) noexcept = default;
completion_channel& completion_channel::operator=(completion_channel&&) noexcept = default;
completion_channel::~completion_channel() = default;

result<completion_channel> completion_channel::create(const class context& parent) noexcept {
  constexpr const char* operation = "ibv_create_comp_channel";
  VERBSPP_TRYV(detail::check_usable(operation, parent));
  errno = 0;
  ibv_comp_channel* const created = ibv_create_comp_channel(parent.native_handle());
  if (created == nullptr) {
    const int errnum = errno;
    return error::from_errno(errnum, operation,
                             errnum == EMFILE
                                 ? "each completion channel needs a file descriptor: raise the "
                                   "limit (`ulimit -n`), let several completion queues share a "
                                   "completion channel, or let several channels share a hub"
                                 : nullptr);
  }
  if (const int errnum = detail::make_nonblocking(created->fd); errnum != 0) {
    ibv_destroy_comp_channel(created);
    return error::from_errno(errnum, "fcntl (completion channel)");
  }
  auto* const state =
      new (std::nothrow) detail::completion_channel_state(parent, created, ownership::taken);
  if (state == nullptr) {
    ibv_destroy_comp_channel(created);
    return error::from_errno(ENOMEM, operation);
  }
  detail::trace(operation, created);
  return completion_channel(detail::reference<detail::completion_channel_state>(state));
}

result<completion_channel> completion_channel::from_native(const class context& parent,
                                                           ibv_comp_channel* native,
                                                           ownership whose) noexcept {
  constexpr const char* operation = "completion_channel::from_native";
  VERBSPP_TRYV(detail::check_usable(operation, parent));
  if (native == nullptr) return error(error_kind::invalid_input, operation, "the channel is null");
  if (native->context != parent.native_handle())
    return error(error_kind::invalid_input, operation,
                 "the channel belongs to another context: pass the one from which it was created");
  if (const int errnum = detail::make_nonblocking(native->fd); errnum != 0)
    return error::from_errno(errnum, "fcntl (completion channel)");
  auto* const state = new (std::nothrow) detail::completion_channel_state(parent, native, whose);
  if (state == nullptr) return error::from_errno(ENOMEM, operation);
  state->expect_strangers();
  return completion_channel(detail::reference<detail::completion_channel_state>(state));
}

result<ibv_comp_channel*> completion_channel::release() && noexcept {
  constexpr const char* operation = "completion_channel::release";
  if (!state_) return detail::channel_moved_from(operation);
  if (!state_.is_only())
    return error(error_kind::busy, operation,
                 "other handles of the channel, or queues that report to it, still exist: destroy "
                 "them first");
  ibv_comp_channel* const native = state_->native;
  state_->destroyed_by = ownership::borrowed;
  state_ = {};
  return native;
}

completion_channel completion_channel::of(const detail::completion_queue_state* queue) noexcept {
  return completion_channel(
      queue != nullptr ? queue->channel : detail::reference<detail::completion_channel_state>());
}

result<std::optional<waitable_completion_queue>> completion_channel::poll() const noexcept {
  return wait(wait_limit::time_point::min());
}

result<std::optional<waitable_completion_queue>> completion_channel::wait(
    const wait_limit& until) const noexcept {
  if (!state_) return detail::channel_moved_from("ibv_get_cq_event");
  VERBSPP_TRY(taken, state_->take(until));
  if (!taken) return std::optional<waitable_completion_queue>();
  return std::optional(waitable_completion_queue(std::move(taken)));
}

int completion_channel::file_descriptor() const noexcept {
  return state_ ? state_->native->fd : -1;
}
const class context& completion_channel::context() const& noexcept {
  assert(state_ &&
         "this completion channel was moved from, or came from a moved-from completion queue");
  return state_->owner;
}
context completion_channel::context() && noexcept { return std::as_const(*this).context(); }
ibv_comp_channel* completion_channel::native_handle() const noexcept {
  return state_ ? state_->native : nullptr;
}

std::ostream& operator<<(std::ostream& out, const completion_channel& channel) {
  if (channel.native_handle() == nullptr) return out << "completion channel that was moved from";
  return out << "completion channel fd " << std::to_string(channel.file_descriptor()) << ", device "
             << channel.context().device_name();
}

}  // namespace verbspp
