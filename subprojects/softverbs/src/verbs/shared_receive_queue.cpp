// SPDX-License-Identifier: Apache-2.0
// The entry points for shared receive queues.
#include "queue_pair/shared_receive_queue.hpp"

#include "faults/faults.hpp"
#include "machine/engine.hpp"
#include "queue_pair/queue_pair.hpp"
#include "queue_pair/xrc_parting.hpp"
#include "verbs/acknowledgement.hpp"
#include "verbs/device_context.hpp"
#include "verbs/export.hpp"
#include "verbs/inline_calls.hpp"
#include "verbs/next_library.hpp"

#include <cerrno>
#include <memory>
#include <mutex>
#include <new>

using namespace softverbs;

namespace {

/// Adds an XRC queue to its domain. Returns 0 or an errno value. Requires the engine's lock.
int enter_domain(shared_receive_queue& queue, const xrc_part& xrc) {
  if (xrc.domain == nullptr) return 0;
  softverbs::machine& machine = device_context::of(queue.context).machine();
  queue.xrc = xrc;
  queue.xrc.number =
      machine.xrc_domains.add(*xrc.domain->domain, queue, machine.wire.slot() << wire::index_bits);
  if (queue.xrc.number == 0) return ENOMEM;
  ++xrc.domain->children;
  ++xrc.completions->queue_pairs;
  return 0;
}

/// Creates a queue, which is an XRC queue if `xrc` has a domain. Returns null with errno set on
/// failure.
ibv_srq* create_queue(ibv_pd* domain, ibv_srq_init_attr* attributes, const xrc_part& xrc) {
  device_context& device = device_context::of(domain->context);
  int error = device.usable()
                  ? receive_queue::grant_shared(device.device().most(), attributes->attr.max_wr,
                                                attributes->attr.max_sge)
                  : EIO;
  if (error == 0) try {
      auto& owner = *static_cast<protection_domain*>(domain);
      auto queue = std::make_unique<shared_receive_queue>(device, owner, attributes->attr,
                                                          attributes->srq_context);
      const std::lock_guard held(device.engine().lock());
      if (owner.of->destroyed) {
        error = EINVAL;
      } else if (device.shared_receive_queues.size() <
                 device.device().most().shared_receive_queues) {
        device.shared_receive_queues.insert(queue.get());
        try {
          error = enter_domain(*queue, xrc);
        } catch (...) {
          device.shared_receive_queues.erase(queue.get());
          throw;
        }
        if (error == 0) ++owner.children;
        if (error == 0) return queue.release();
        device.shared_receive_queues.erase(queue.get());
      } else {
        error = ENOMEM;
      }
    } catch (const std::bad_alloc&) {
      error = ENOMEM;
    }
  errno = error;
  return nullptr;
}

ibv_srq* create_of_xrc(ibv_context* verbs, ibv_srq_init_attr_ex& attributes) {
  constexpr std::uint32_t needed =
      IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
  const auto is_of_device = [&](const auto* object) {
    return object != nullptr && object->context == verbs;
  };
  if ((attributes.comp_mask & needed) != needed || !is_of_device(attributes.pd) ||
      !is_of_device(attributes.xrcd) || !is_of_device(attributes.cq)) {
    errno = EINVAL;
    return nullptr;
  }
  // The extended structure begins with the members of the plain one.
  return create_queue(
      attributes.pd, reinterpret_cast<ibv_srq_init_attr*>(&attributes),
      {static_cast<xrc_opening*>(attributes.xrcd), static_cast<completion_queue*>(attributes.cq)});
}

}  // namespace

SOFTVERBS_EXPORT ibv_srq* ibv_create_srq(ibv_pd* domain, ibv_srq_init_attr* attributes) {
  if (!is_soft(domain)) return SOFTVERBS_NEXT(ibv_create_srq)(domain, attributes);
  SOFTVERBS_FAULT(ibv_create_srq, domain->context);
  return create_queue(domain, attributes, {});
}

// verbs.h calls this if ibv_create_srq is not sufficient.
ibv_srq* inline_calls::create_srq_ex(ibv_context* verbs, ibv_srq_init_attr_ex* attributes) {
  constexpr std::uint32_t of_basic = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD;
  // These attributes don't apply to basic queues, and drivers ignore them.
  constexpr std::uint32_t of_others =
      IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ | IBV_SRQ_INIT_ATTR_TM;
  const std::uint32_t given = attributes->comp_mask;
  const ibv_srq_type type =
      (given & IBV_SRQ_INIT_ATTR_TYPE) == 0 ? IBV_SRQT_BASIC : attributes->srq_type;
  SOFTVERBS_FAULT(ibv_create_srq, verbs);
  verbs = device_context::in_this_process(verbs);
  if (verbs == nullptr) return nullptr;
  if ((type != IBV_SRQT_BASIC && type != IBV_SRQT_XRC) || (given & ~(of_basic | of_others)) != 0) {
    errno = EOPNOTSUPP;
    return nullptr;
  }
  if (type == IBV_SRQT_XRC) return create_of_xrc(verbs, *attributes);
  if ((given & IBV_SRQ_INIT_ATTR_PD) == 0) {
    errno = EINVAL;
    return nullptr;
  }
  // The extended structure begins with the members of the plain one.
  return create_queue(attributes->pd, reinterpret_cast<ibv_srq_init_attr*>(attributes), {});
}

// Only XRC queues have a number.
int inline_calls::get_srq_num(ibv_srq* queue, std::uint32_t* number) {
  const auto* ours = static_cast<const shared_receive_queue*>(queue);
  if (!ours->is_of_xrc()) return EINVAL;
  *number = ours->xrc.number;
  return 0;
}

SOFTVERBS_EXPORT int ibv_modify_srq(ibv_srq* queue, ibv_srq_attr* attributes, int mask) {
  if (!is_soft(queue)) return SOFTVERBS_NEXT(ibv_modify_srq)(queue, attributes, mask);
  SOFTVERBS_FAULT(ibv_modify_srq, queue->context);
  device_context& device = device_context::of(queue->context);
  if (!device.usable()) return EIO;
  try {
    return static_cast<shared_receive_queue*>(queue)->modify(*attributes, mask);
  } catch (const std::bad_alloc&) {
    return ENOMEM;
  }
}

SOFTVERBS_EXPORT int ibv_query_srq(ibv_srq* queue, ibv_srq_attr* attributes) {
  if (!is_soft(queue)) return SOFTVERBS_NEXT(ibv_query_srq)(queue, attributes);
  SOFTVERBS_FAULT(ibv_query_srq, queue->context);
  device_context& device = device_context::of(queue->context);
  if (!device.usable()) return EIO;
  *attributes = static_cast<shared_receive_queue*>(queue)->query();
  return 0;
}

SOFTVERBS_EXPORT int ibv_destroy_srq(ibv_srq* queue) {
  if (!is_soft(queue)) return SOFTVERBS_NEXT(ibv_destroy_srq)(queue);
  SOFTVERBS_FAULT(ibv_destroy_srq, queue->context);
  device_context& device = device_context::of(queue->context);
  if (!device.usable()) return EIO;
  auto* ours = static_cast<shared_receive_queue*>(queue);
  unsigned events = 0;
  {
    const std::lock_guard held(device.engine().lock());
    if (ours->queue_pairs != 0) return EBUSY;
    part(*ours, device.machine());
    if (ours->is_of_xrc()) ours->xrc.completions->forget(*ours, false);
    device.shared_receive_queues.erase(ours);
    device.async_events().drop([ours](const ibv_async_event& event) {
      return event.event_type == IBV_EVENT_SRQ_LIMIT_REACHED && event.element.srq == ours;
    });
    events = ours->async_events_reported;
  }
  delete_acknowledged(device, ours, events);
  return 0;
}

int inline_calls::post_srq_recv(ibv_srq* queue, ibv_recv_wr* request, ibv_recv_wr** bad) {
  if (const auto failure = faults::strike(faults::number_of("ibv_post_srq_recv"), queue->context)) {
    *bad = request;
    return *failure;
  }
  if (!device_context::of(queue->context).usable()) {
    *bad = request;
    return EIO;
  }
  for (; request != nullptr; request = request->next)
    if (const int error = static_cast<shared_receive_queue*>(queue)->post(*request)) {
      *bad = request;
      return error;
    }
  return 0;
}
