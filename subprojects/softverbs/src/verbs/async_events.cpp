// SPDX-License-Identifier: Apache-2.0
// The entry points that read asynchronous events and completion events. Acknowledging events
// changes only the public part of an object, so libibverbs' own functions are sufficient for that.
#include "faults/faults.hpp"
#include "machine/engine.hpp"
#include "queue_pair/queue_pair.hpp"
#include "queue_pair/receive_work_queue.hpp"
#include "queue_pair/shared_receive_queue.hpp"
#include "verbs/device_context.hpp"
#include "verbs/export.hpp"
#include "verbs/next_library.hpp"

#include <cerrno>
#include <mutex>

using namespace softverbs;

namespace {

/// True if an event of this type belongs to no object that could be destroyed before the event is
/// acknowledged.
bool is_of_device(ibv_event_type type) noexcept {
  return type == IBV_EVENT_PORT_ACTIVE || type == IBV_EVENT_PORT_ERR ||
         type == IBV_EVENT_DEVICE_FATAL;
}

}  // namespace

SOFTVERBS_EXPORT int ibv_get_async_event(ibv_context* verbs, ibv_async_event* event) {
  if (!is_soft(verbs)) return SOFTVERBS_NEXT(ibv_get_async_event)(verbs, event);
  SOFTVERBS_FAULT(ibv_get_async_event, nullptr);
  verbs = device_context::in_this_process(verbs);
  if (verbs == nullptr) return -1;
  device_context& device = device_context::of(verbs);
  for (;;) {
    if (!device.async_events().take_token()) return -1;
    const std::lock_guard held(device.engine().lock());
    if (!device.async_events().pop(*event)) continue;
    if (is_of_device(event->event_type)) return 0;
    if (event->event_type == IBV_EVENT_CQ_ERR)
      ++static_cast<completion_queue*>(event->element.cq)->async_events_reported;
    else if (event->event_type == IBV_EVENT_SRQ_LIMIT_REACHED)
      ++static_cast<shared_receive_queue*>(event->element.srq)->async_events_reported;
    else if (event->event_type == IBV_EVENT_WQ_FATAL)
      ++static_cast<receive_work_queue*>(event->element.wq)->async_events_reported;
    else if (event->element.qp->qp_type == IBV_QPT_XRC_RECV)
      ++static_cast<xrc_target*>(event->element.qp)->async_events_reported;
    else
      ++static_cast<queue_pair*>(event->element.qp)->async_events_reported;
    return 0;
  }
}

SOFTVERBS_EXPORT int ibv_get_cq_event(ibv_comp_channel* channel, ibv_cq** queue,
                                      void** user_context) {
  if (!is_soft(channel)) return SOFTVERBS_NEXT(ibv_get_cq_event)(channel, queue, user_context);
  SOFTVERBS_FAULT(ibv_get_cq_event, channel->context);
  // A forked child must not read from the inherited channel, because it would take its parent's
  // events.
  if (!device_context::of(channel->context).usable()) {
    errno = EIO;
    return -1;
  }
  auto* events = &static_cast<completion_channel*>(channel)->events;
  for (;;) {
    if (!events->take_token()) return -1;
    if (faults::is_broken(soft_device_of(channel->context)->number)) {
      // The kernel reports the same error for a device that was removed. The next waiting thread is
      // woken, so that its call fails as well.
      events->wake_next();
      errno = EIO;
      return -1;
    }
    const std::lock_guard held(device_context::of(channel->context).engine().lock());
    completion_queue* source = nullptr;
    if (!events->pop(source)) continue;
    ++source->completion_events_reported;
    *queue = source;
    *user_context = source->cq_context;
    return 0;
  }
}
