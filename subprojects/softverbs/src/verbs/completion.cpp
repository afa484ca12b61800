// SPDX-License-Identifier: Apache-2.0
// The entry points for completion queues and channels.
#include "completion/completion_queue.hpp"
#include "faults/faults.hpp"
#include "machine/engine.hpp"
#include "memory/protection_domain.hpp"
#include "verbs/acknowledgement.hpp"
#include "verbs/device_context.hpp"
#include "verbs/export.hpp"
#include "verbs/extended_polling.hpp"
#include "verbs/inline_calls.hpp"
#include "verbs/nesting.hpp"
#include "verbs/next_library.hpp"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <mutex>
#include <new>

using namespace softverbs;

namespace {

bool is_too_long(const ibv_context* verbs, int entries) noexcept {
  return entries > static_cast<int>(soft_device_of(verbs)->most().completion_entries);
}

/// Rounds a requested number of entries up, as devices do. The number must not exceed the device's
/// limit.
std::uint32_t granted(const ibv_context* verbs, int entries) noexcept {
  return std::min(std::bit_ceil(static_cast<std::uint32_t>(entries) + 1) - 1,
                  soft_device_of(verbs)->most().completion_entries);
}

/// Creates a completion queue. Returns null with errno set on failure.
completion_queue* create(ibv_context* verbs, int entries, void* user_context,
                         ibv_comp_channel* channel, int vector,
                         const completion_queue_options& options) {
  device_context& device = device_context::of(verbs);
  int error = 0;
  if (!device.usable())
    error = EIO;
  else if (entries < 1 || is_too_long(verbs, entries) || vector < 0 ||
           vector >= limits::completion_vectors ||
           (channel != nullptr && channel->context != verbs))
    error = EINVAL;
  if (error != 0) {
    errno = error;
    return nullptr;
  }
  try {
    auto queue = std::make_unique<completion_queue>(device, granted(verbs, entries),
                                                    static_cast<completion_channel*>(channel),
                                                    user_context, options);
    const std::lock_guard held(device.engine().lock());
    if (device.completion_queues.size() >= device.device().most().completion_queues) {
      errno = ENOMEM;
      return nullptr;
    }
    device.completion_queues.insert(queue.get());
    if (channel != nullptr) ++channel->refcnt;
    if (options.domain != nullptr) ++options.domain->children;
    return queue.release();
  } catch (const std::bad_alloc&) {
    errno = ENOMEM;
    return nullptr;
  }
}

bool is_parent_domain_of(const ibv_context* verbs, const protection_domain* domain) noexcept {
  return domain != nullptr && domain->context == verbs && domain->is_parent_domain();
}

}  // namespace

SOFTVERBS_EXPORT ibv_comp_channel* ibv_create_comp_channel(ibv_context* verbs) {
  if (!is_soft(verbs)) return SOFTVERBS_NEXT(ibv_create_comp_channel)(verbs);
  SOFTVERBS_FAULT(ibv_create_comp_channel, verbs);
  verbs = device_context::in_this_process(verbs);
  if (verbs == nullptr) return nullptr;
  device_context& device = device_context::of(verbs);
  if (!device.usable()) {
    errno = EIO;
    return nullptr;
  }
  try {
    auto channel = std::make_unique<completion_channel>();
    if (!channel->events.open()) return nullptr;
    channel->context = verbs;
    channel->fd = channel->events.descriptor();
    channel->refcnt = 0;
    const std::lock_guard held(device.engine().lock());
    device.channels.insert(channel.get());
    return channel.release();
  } catch (const std::bad_alloc&) {
    errno = ENOMEM;
    return nullptr;
  }
}

SOFTVERBS_EXPORT int ibv_destroy_comp_channel(ibv_comp_channel* channel) {
  if (!is_soft(channel)) return SOFTVERBS_NEXT(ibv_destroy_comp_channel)(channel);
  SOFTVERBS_FAULT(ibv_destroy_comp_channel, channel->context);
  device_context& device = device_context::of(channel->context);
  if (!device.usable()) return EIO;
  const std::lock_guard held(device.engine().lock());
  if (channel->refcnt != 0) return EBUSY;
  auto* ours = static_cast<completion_channel*>(channel);
  device.channels.erase(ours);
  delete ours;
  return 0;
}

SOFTVERBS_EXPORT ibv_cq* ibv_create_cq(ibv_context* verbs, int entries, void* user_context,
                                       ibv_comp_channel* channel, int vector) {
  if (!is_soft(verbs))
    return SOFTVERBS_NEXT(ibv_create_cq)(verbs, entries, user_context, channel, vector);
  SOFTVERBS_FAULT(ibv_create_cq, verbs);
  verbs = device_context::in_this_process(verbs);
  if (verbs == nullptr) return nullptr;
  return create(verbs, entries, user_context, channel, vector, {});
}

ibv_cq_ex* inline_calls::create_cq_ex(ibv_context* verbs, ibv_cq_init_attr_ex* attributes) {
  SOFTVERBS_FAULT(ibv_create_cq_ex, verbs);
  verbs = device_context::in_this_process(verbs);
  if (verbs == nullptr) return nullptr;
  constexpr std::uint64_t fields = std::uint64_t{IBV_WC_STANDARD_FLAGS} | IBV_WC_EX_WITH_FLOW_TAG |
                                   IBV_WC_EX_WITH_COMPLETION_TIMESTAMP |
                                   IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK;
  constexpr std::uint32_t flags =
      IBV_CREATE_CQ_ATTR_SINGLE_THREADED | IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN;
  constexpr std::uint32_t known = IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD;
  const auto given = [&](std::uint32_t attribute) {
    return (attributes->comp_mask & attribute) != 0;
  };
  const std::uint32_t asked = given(IBV_CQ_INIT_ATTR_MASK_FLAGS) ? attributes->flags : 0;
  auto* domain = static_cast<protection_domain*>(
      given(IBV_CQ_INIT_ATTR_MASK_PD) ? attributes->parent_domain : nullptr);
  if ((attributes->comp_mask & ~known) != 0 ||
      (given(IBV_CQ_INIT_ATTR_MASK_PD) && !is_parent_domain_of(verbs, domain)) ||
      (asked & ~flags) != 0 || attributes->cqe > soft_device_of(verbs)->most().completion_entries ||
      attributes->comp_vector >= static_cast<std::uint32_t>(limits::completion_vectors)) {
    errno = EINVAL;
    return nullptr;
  }
  if ((attributes->wc_flags & ~fields) != 0) {
    errno = EOPNOTSUPP;
    return nullptr;
  }
  completion_queue* queue =
      create(verbs, static_cast<int>(attributes->cqe), attributes->cq_context, attributes->channel,
             static_cast<int>(attributes->comp_vector),
             {.one_by_one = true,
              .fields = attributes->wc_flags,
              .single_threaded = (asked & IBV_CREATE_CQ_ATTR_SINGLE_THREADED) != 0 ||
                                 (domain != nullptr && domain->thread != nullptr),
              .ignores_overrun = (asked & IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN) != 0,
              .domain = domain});
  if (queue == nullptr) return nullptr;
  make_readable_one_by_one(*queue, attributes->wc_flags);
  return queue->extended();
}

SOFTVERBS_EXPORT int ibv_resize_cq(ibv_cq* queue, int entries) {
  if (!is_soft(queue)) return SOFTVERBS_NEXT(ibv_resize_cq)(queue, entries);
  SOFTVERBS_FAULT(ibv_resize_cq, queue->context);
  device_context& device = device_context::of(queue->context);
  if (!device.usable()) return EIO;
  if (entries < 1 || is_too_long(queue->context, entries)) return EINVAL;
  if (static_cast<completion_queue*>(queue)->is_being_read_here()) return refuse_nested_poll();
  try {
    auto* ours = static_cast<completion_queue*>(queue);
    const std::uint32_t capacity = granted(queue->context, entries);
    // This variable will hold the old entries. It is declared before the lock is taken, so that the
    // old entries are freed without the lock.
    auto places = ours->places(capacity);
    const std::lock_guard held(device.engine().lock());
    // On a network card, earlier requests would have completed by now, so their completions would
    // be in the queue.
    device.engine().settle();
    return ours->resize(places, capacity);
  } catch (const std::bad_alloc&) {
    return ENOMEM;
  }
}

SOFTVERBS_EXPORT int ibv_destroy_cq(ibv_cq* queue) {
  if (!is_soft(queue)) return SOFTVERBS_NEXT(ibv_destroy_cq)(queue);
  SOFTVERBS_FAULT(ibv_destroy_cq, queue->context);
  device_context& device = device_context::of(queue->context);
  if (!device.usable()) return EIO;
  auto* ours = static_cast<completion_queue*>(queue);
  unsigned completion_events = 0;
  unsigned async_events = 0;
  {
    const std::lock_guard held(device.engine().lock());
    if (ours->queue_pairs != 0) return EBUSY;
    device.completion_queues.erase(ours);
    ours->detach();
    completion_events = ours->completion_events_reported;
    async_events = ours->async_events_reported;
  }
  wait_until_acknowledged(*ours, [&] {
    return ours->comp_events_completed == completion_events &&
           ours->async_events_completed == async_events;
  });
  protection_domain* const domain = ours->options().domain;
  delete ours;
  if (domain != nullptr) {
    const std::lock_guard held(device.engine().lock());
    --domain->children;
  }
  return 0;
}

int inline_calls::poll_cq(ibv_cq* queue, int wanted, ibv_wc* out) {
  SOFTVERBS_FAULT(ibv_poll_cq, queue->context);
  auto* ours = static_cast<completion_queue*>(queue);
  const session_guard reading(ours->reading());
  if (reading.refused()) return -refuse_nested_poll();
  if (!ours->usable()) return -EIO;
  if (ours->empty()) ours->engine().drive();
  if (ours->empty() && !ours->is_broken()) return 0;
  return ours->poll(wanted, out);
}

int inline_calls::req_notify_cq(ibv_cq* queue, int solicited_only) {
  SOFTVERBS_FAULT(ibv_req_notify_cq, queue->context);
  auto* ours = static_cast<completion_queue*>(queue);
  if (!ours->usable()) return EIO;
  ours->request_notification(solicited_only != 0);
  return 0;
}
