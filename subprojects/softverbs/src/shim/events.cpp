// SPDX-License-Identifier: Apache-2.0
// Completion channels and asynchronous events, both the device's and those raised by this library.
#include "faults/failing_verbs.hpp"
#include "shim/shim.hpp"
#include "verbs/export.hpp"
#include "verbs/next_library.hpp"

#include <algorithm>
#include <cerrno>
#include <new>

namespace softverbs::shim {
namespace {

/// Returns the time at which the program must get an event for this queue, because a completion
/// that is held back becomes due; 0 for never.
nanoseconds next_time(const queue_record& queue) noexcept {
  if (!queue.armed) return 0;
  const auto next = queue.waiting.upper_bound(queue.armed_at);
  return next == queue.waiting.end() ? 0 : next->first;
}

/// Returns a queue for which an event is due, and counts the event; null if there is none.
queue_record* raise_due(channel_record& channel) noexcept {
  const nanoseconds time = now();
  for (queue_record* each : channel.queues) {
    const nanoseconds next = next_time(*each);
    if (next == 0 || next > time) continue;
    each->armed = false;
    ++each->events_raised;
    set_alarm(channel);
    return each;
  }
  set_alarm(channel);
  return nullptr;
}

/// True if the device's event must be reported. If all completions of the queue are held back, this
/// function arms the queue again and returns false, and the program gets an event later.
bool is_told(queue_record& queue) {
  // The completions of an extended queue (`ibv_start_poll`) cannot be taken here, because a thread
  // may be in the middle of reading them. The same is true if this thread is reading the queue. In
  // both cases, the event is always reported.
  if (queue.theirs || queue.reading.is_own()) return true;
  const session_guard reading(&queue.reading);
  const auto is_held_back = [&] {
    const std::lock_guard held(all().lock);
    if (queue.waiting.empty() || queue.waiting.begin()->first <= now()) return false;
    queue.armed = true;
    queue.armed_at = now();
    if (queue.channel != nullptr) set_alarm(*queue.channel);
    return true;
  };
  take_in(queue, nullptr);
  if (!is_held_back()) return true;
  queue.opened->theirs.ops.req_notify_cq(queue.queue, 0);
  // Completions that arrived before the queue was armed raise no event, so they are taken now.
  take_in(queue, nullptr);
  return !is_held_back();
}

/// Reads one of the device's events, without waiting. Returns -1 with EAGAIN if there is none, or
/// if the program must get the event later.
int take_event(channel_record& channel, ibv_cq** queue, void** user_context) {
  if (SOFTVERBS_NEXT(ibv_get_cq_event)(channel.theirs, queue, user_context) != 0) return -1;
  queue_record* const record = is_idle() ? nullptr : all().queues.find(*queue);
  if (record == nullptr) return 0;
  if (is_told(*record)) {
    const std::lock_guard held(all().lock);
    record->armed = false;
    set_alarm(channel);
    return 0;
  }
  ibv_ack_cq_events(*queue, 1);
  errno = EAGAIN;
  return -1;
}

}  // namespace

void set_alarm(channel_record& channel) noexcept {
  nanoseconds first = 0;
  for (const queue_record* each : channel.queues)
    if (const nanoseconds next = next_time(*each); next != 0 && (first == 0 || next < first))
      first = next;
  channel.events.ring_at(first);
}

ibv_comp_channel* theirs(ibv_comp_channel* channel) noexcept {
  if (channel == nullptr) return nullptr;
  const channel_record* known = all().channels.find(channel);
  return known == nullptr ? channel : known->theirs;
}

}  // namespace softverbs::shim

using namespace softverbs;
using namespace softverbs::shim;

SOFTVERBS_EXPORT ibv_comp_channel* ibv_create_comp_channel(ibv_context* verbs) {
  SHIM_FAULT(ibv_create_comp_channel, verbs);
  ibv_comp_channel* const made = SOFTVERBS_NEXT(ibv_create_comp_channel)(verbs);
  context_record* const opened = all().contexts.find(verbs);
  if (made == nullptr || opened == nullptr) return made;
  int error = ENOMEM;
  try {
    auto channel = std::make_unique<channel_record>();
    channel->context = verbs;
    channel->theirs = made;
    channel->opened = opened;
    const std::lock_guard held(all().lock);
    if (channel->events.open(made->fd, all().clock.get())) {
      channel->fd = channel->events.get();
      channel->events.ring(opened->device->broken);
      // Room in the table is reserved first, so that nothing throws once `open_channels` contains
      // the record.
      all().channels.reserve(2);
      all().open_channels.push_back(channel.get());
      all().channels.insert(made, *channel);
      all().channels.insert(channel.get(), *channel);
      return channel.release();
    }
    error = errno;
  } catch (const std::bad_alloc&) {
    error = ENOMEM;
  }
  SOFTVERBS_NEXT(ibv_destroy_comp_channel)(made);
  errno = error;
  return nullptr;
}

SOFTVERBS_EXPORT int ibv_destroy_comp_channel(ibv_comp_channel* channel) {
  SHIM_FAULT(ibv_destroy_comp_channel, channel->context);
  channel_record* const record = all().channels.find(channel);
  if (record == nullptr) return SOFTVERBS_NEXT(ibv_destroy_comp_channel)(channel);
  ibv_comp_channel* const made = record->theirs;
  {
    const std::lock_guard held(all().lock);
    all().channels.erase(made);
    all().channels.erase(record);
    std::erase(all().open_channels, record);
  }
  const int error = SOFTVERBS_NEXT(ibv_destroy_comp_channel)(made);
  const std::lock_guard held(all().lock);
  if (error == 0) {
    delete record;
    return 0;
  }
  all().open_channels.push_back(record);
  all().channels.insert(made, *record);
  all().channels.insert(record, *record);
  return error;
}

SOFTVERBS_EXPORT int ibv_get_cq_event(ibv_comp_channel* channel, ibv_cq** queue,
                                      void** user_context) {
  SHIM_FAULT(ibv_get_cq_event, channel->context);
  channel_record* const record = all().channels.find(channel);
  if (record == nullptr) return SOFTVERBS_NEXT(ibv_get_cq_event)(channel, queue, user_context);
  for (;;) {
    {
      const std::lock_guard held(all().lock);
      keep_time();
      if (record->opened->device->broken) {
        // The kernel reports the same error for a device that was removed.
        errno = EIO;
        return -1;
      }
      if (const queue_record* due = raise_due(*record)) {
        *queue = due->queue;
        *user_context = due->queue->cq_context;
        return 0;
      }
    }
    if (record->events.device_is_readable()) {
      if (take_event(*record, queue, user_context) == 0) return 0;
      if (errno != EAGAIN && errno != EWOULDBLOCK) return -1;
      continue;
    }
    if (!record->events.wait()) return -1;
  }
}

SOFTVERBS_EXPORT int ibv_get_async_event(ibv_context* verbs, ibv_async_event* event) {
  SHIM_FAULT(ibv_get_async_event, nullptr);
  context_record* const opened = all().contexts.find(verbs);
  if (opened == nullptr) return SOFTVERBS_NEXT(ibv_get_async_event)(verbs, event);
  for (;;) {
    {
      const std::lock_guard held(all().lock);
      keep_time();
      if (!opened->raised.empty()) {
        *event = opened->raised.front();
        opened->raised.pop_front();
        opened->events.ring(!opened->raised.empty());
        return 0;
      }
    }
    if (opened->events.device_is_readable()) {
      const own_descriptor shown(verbs);
      if (SOFTVERBS_NEXT(ibv_get_async_event)(verbs, event) == 0) return 0;
      if (errno != EAGAIN && errno != EWOULDBLOCK) return -1;
      continue;
    }
    if (!opened->events.wait()) return -1;
  }
}
