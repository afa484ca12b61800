// SPDX-License-Identifier: Apache-2.0
// The entry points for queue pairs.
#include "queue_pair/queue_pair.hpp"

#include "base/capability.hpp"
#include "faults/faults.hpp"
#include "machine/engine.hpp"
#include "queue_pair/frame_spreading.hpp"
#include "queue_pair/operation.hpp"
#include "queue_pair/shared_receive_queue.hpp"
#include "verbs/acknowledgement.hpp"
#include "verbs/device_context.hpp"
#include "verbs/export.hpp"
#include "verbs/inline_calls.hpp"
#include "verbs/nesting.hpp"
#include "verbs/next_library.hpp"
#include "verbs/queue_pair.hpp"
#include "verbs/xrc.hpp"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <mutex>
#include <new>

using namespace softverbs;

namespace {

constexpr std::uint32_t inline_granularity = 64;

/// Rounds up the requested capacities as devices do. Returns 0 or an errno value.
int grant(const device_limits& most, ibv_qp_cap& capacities, bool shares_receives) noexcept {
  if (shares_receives) capacities.max_recv_wr = capacities.max_recv_sge = 0;
  if (capacities.max_send_wr > most.work_requests || capacities.max_recv_wr > most.work_requests ||
      capacities.max_send_sge > most.gather_entries ||
      capacities.max_recv_sge > most.gather_entries ||
      capacities.max_inline_data > most.inline_data)
    return EINVAL;
  const auto requests = [&](std::uint32_t asked) {
    return asked == 0 ? 0 : std::min(std::bit_ceil(asked), most.work_requests);
  };
  capacities.max_send_wr = requests(capacities.max_send_wr);
  capacities.max_recv_wr = requests(capacities.max_recv_wr);
  if (capacities.max_send_wr != 0) capacities.max_send_sge = std::max(capacities.max_send_sge, 1U);
  if (capacities.max_recv_wr != 0) capacities.max_recv_sge = std::max(capacities.max_recv_sge, 1U);
  capacities.max_inline_data =
      std::min(most.inline_data, (capacities.max_inline_data + inline_granularity - 1) /
                                     inline_granularity * inline_granularity);
  // As on many network cards, inline data may use the space of the gather elements.
  if (capacities.max_send_wr != 0)
    capacities.max_inline_data =
        std::max(capacities.max_inline_data,
                 std::min(most.inline_data,
                          capacities.max_send_sge * static_cast<std::uint32_t>(sizeof(ibv_sge))));
  return 0;
}

int check_attributes(const ibv_pd* domain, const ibv_qp_init_attr& attributes) noexcept {
  // A queue pair that receives for XRC is created from an XRC domain, by ibv_create_qp_ex.
  if (attributes.qp_type == IBV_QPT_XRC_RECV) return EINVAL;
  if (service::of(attributes.qp_type) == 0) return EOPNOTSUPP;
  if (attributes.qp_type == IBV_QPT_RAW_PACKET) {
    // The kernel checks this before it calls a driver.
    if (!may_send_raw()) return EPERM;
    if (!soft_device_of(domain->context)->has_ethernet()) return EOPNOTSUPP;
  }
  const auto is_of_device = [&](const ibv_cq* queue) {
    return queue != nullptr && queue->context == domain->context;
  };
  if (!is_of_device(attributes.send_cq)) return EINVAL;
  if (attributes.qp_type == IBV_QPT_XRC_SEND) return 0;
  if (!is_of_device(attributes.recv_cq)) return EINVAL;
  if (attributes.srq == nullptr) return 0;
  return attributes.srq->context != domain->context ||
                 static_cast<const shared_receive_queue*>(attributes.srq)->is_of_xrc()
             ? EINVAL
             : 0;
}

/// Adds `by` to the reference counts of all objects that a queue pair uses, except its domain.
void count(const queue_pair& pair, unsigned by) noexcept {
  const ibv_qp_init_attr& attributes = pair.initial();
  for (ibv_cq* queue : {attributes.send_cq, attributes.recv_cq})
    if (queue != nullptr) static_cast<completion_queue*>(queue)->queue_pairs += by;
  if (attributes.srq != nullptr)
    static_cast<shared_receive_queue*>(attributes.srq)->queue_pairs += by;
  if (pair.spreading() != nullptr) pair.spreading()->table.queue_pairs += by;
}

}  // namespace

int softverbs::enter(device_context& device, queue_pair& pair) {
  auto& owner = *static_cast<protection_domain*>(pair.pd);
  const std::lock_guard held(device.engine().lock());
  if (owner.of->destroyed) return EINVAL;
  if (device.queue_pairs.size() + device.xrc_targets.size() >= device.device().most().queue_pairs)
    return ENOMEM;
  device.queue_pairs.insert(&pair);
  if (const int error = pair.enter_machine()) {
    device.queue_pairs.erase(&pair);
    return error;
  }
  ++owner.children;
  count(pair, 1);
  return 0;
}

SOFTVERBS_EXPORT ibv_qp* ibv_create_qp(ibv_pd* domain, ibv_qp_init_attr* attributes) {
  if (!is_soft(domain)) return SOFTVERBS_NEXT(ibv_create_qp)(domain, attributes);
  SOFTVERBS_FAULT(ibv_create_qp, domain->context);
  return inline_calls::create_qp(domain, attributes);
}

ibv_qp* inline_calls::create_qp(ibv_pd* domain, ibv_qp_init_attr* attributes) {
  device_context& device = device_context::of(domain->context);
  int error = device.usable() ? check_attributes(domain, *attributes) : EIO;
  ibv_qp_init_attr granted = *attributes;
  const bool only_sends = granted.qp_type == IBV_QPT_XRC_SEND;
  // Drivers ignore these attributes, too.
  if (only_sends) granted.recv_cq = nullptr;
  if (only_sends) granted.srq = nullptr;
  if (error == 0)
    error = grant(device.device().most(), granted.cap, only_sends || granted.srq != nullptr);
  if (error == 0) try {
      auto pair =
          std::make_unique<queue_pair>(device, static_cast<protection_domain*>(domain), granted);
      error = enter(device, *pair);
      if (error == 0) {
        attributes->cap = granted.cap;
        return pair.release();
      }
    } catch (const std::bad_alloc&) {
      error = ENOMEM;
    }
  errno = error;
  return nullptr;
}

namespace {

/// Hides a queue pair, and waits until no thread of this process, and no peer, is carrying out a
/// request on the queue pair's behalf. If the wait fails, shows the queue pair again and returns
/// false.
bool is_free(device_context& device, queue_pair& pair) {
  {
    const std::lock_guard held(pair.lock());
    pair.withdraw();
  }
  if (device.machine().wait_for_users({pair.number() & wire::index_mask, announcements::any}))
    return true;
  const std::lock_guard held(device.engine().lock());
  const std::lock_guard held_here(pair.lock());
  pair.offer();
  return false;
}

}  // namespace

SOFTVERBS_EXPORT int ibv_destroy_qp(ibv_qp* pair) {
  if (!is_soft(pair)) return SOFTVERBS_NEXT(ibv_destroy_qp)(pair);
  SOFTVERBS_FAULT(ibv_destroy_qp, pair->context);
  device_context& device = device_context::of(pair->context);
  if (!device.usable()) return EIO;
  if (pair->qp_type == IBV_QPT_XRC_RECV) return destroy_target(*static_cast<xrc_target*>(pair));
  auto* ours = static_cast<queue_pair*>(pair);
  if (ours->is_being_read_here()) return refuse_nested_poll();
  if (!is_free(device, *ours)) return EBUSY;
  unsigned events = 0;
  {
    const std::lock_guard held(device.engine().lock());
    if (device.engine().is_member(*ours) || device.engine().has_rules(*ours)) return EBUSY;
    // On a network card, the posted sends of an unreliable queue pair would have been sent by now.
    if (!ours->is_reliable()) device.engine().settle();
    ours->leave_machine();
    device.queue_pairs.erase(ours);
    ours->forget_completions();
    count(*ours, -1U);
    device.async_events().drop([ours](const ibv_async_event& event) {
      return event.event_type != IBV_EVENT_CQ_ERR &&
             event.event_type != IBV_EVENT_SRQ_LIMIT_REACHED && event.element.qp == ours;
    });
    events = ours->async_events_reported;
  }
  delete_acknowledged(device, ours, events);
  return 0;
}

SOFTVERBS_EXPORT int ibv_modify_qp(ibv_qp* pair, ibv_qp_attr* attributes, int mask) {
  if (!is_soft(pair)) return SOFTVERBS_NEXT(ibv_modify_qp)(pair, attributes, mask);
  SOFTVERBS_FAULT(ibv_modify_qp, pair->context);
  device_context& device = device_context::of(pair->context);
  if (!device.usable()) return EIO;
  queue_pair* const ours = &behind(pair);
  if (ours->spreading() != nullptr) return EOPNOTSUPP;
  const bool resets = (mask & IBV_QP_STATE) != 0 && attributes->qp_state == IBV_QPS_RESET;
  if (resets && ours->is_being_read_here()) return refuse_nested_poll();
  // `is_free` waits for the direct requests that rely on the current attributes.
  if (!is_free(device, *ours)) return EBUSY;
  const std::lock_guard held(device.engine().lock());
  const std::lock_guard held_here(ours->lock());
  const int error = ours->modify(*attributes, mask);
  // As in libibverbs, the state in the program's object is the one that the program last set or
  // queried, not the current one.
  if (error == 0 && (mask & IBV_QP_STATE) != 0) pair->state = attributes->qp_state;
  if (error == 0)
    device.engine().ring_doorbell();
  else
    ours->offer();
  return error;
}

SOFTVERBS_EXPORT int ibv_query_qp(ibv_qp* pair, ibv_qp_attr* attributes, int mask,
                                  ibv_qp_init_attr* initial) {
  if (!is_soft(pair)) return SOFTVERBS_NEXT(ibv_query_qp)(pair, attributes, mask, initial);
  SOFTVERBS_FAULT(ibv_query_qp, pair->context);
  device_context& device = device_context::of(pair->context);
  if (!device.usable()) return EIO;
  queue_pair* const ours = &behind(pair);
  if (ours->spreading() != nullptr) return EOPNOTSUPP;
  const std::lock_guard held(ours->lock());
  ours->query(*attributes, *initial);
  initial->qp_context = pair->qp_context;
  if ((mask & IBV_QP_STATE) != 0) pair->state = attributes->qp_state;
  return 0;
}

int inline_calls::post_send(ibv_qp* pair, ibv_send_wr* request, ibv_send_wr** bad) {
  if (const auto failure = faults::strike(faults::number_of("ibv_post_send"), pair->context)) {
    *bad = request;
    return *failure;
  }
  if (pair->qp_type == IBV_QPT_XRC_RECV) {
    *bad = request;
    return refuse_request(*pair);
  }
  auto* const ours = static_cast<queue_pair*>(pair);
  const session_guard posting_alone(ours->building());
  if (posting_alone.refused()) {
    *bad = request;
    return refuse_nested_post();
  }
  if (!ours->usable()) {
    *bad = request;
    return EIO;
  }
  int error = 0;
  bool waits = false;
  {
    const std::lock_guard held(ours->lock());
    if (!ours->takes_sends()) error = EINVAL;
    for (; request != nullptr; request = request->next) {
      if (error == 0) error = ours->requests.post(*request);
      if (error == 0) continue;
      *bad = request;
      break;
    }
    ours->requests.carry_out_directly();
    waits = ours->requests.is_busy();
  }
  if (waits) ours->engine().ring(*ours);
  return error;
}

int inline_calls::post_recv(ibv_qp* pair, ibv_recv_wr* request, ibv_recv_wr** bad) {
  if (const auto failure = faults::strike(faults::number_of("ibv_post_recv"), pair->context)) {
    *bad = request;
    return *failure;
  }
  if (pair->qp_type == IBV_QPT_XRC_RECV) {
    *bad = request;
    return refuse_request(*pair);
  }
  auto* const ours = static_cast<queue_pair*>(pair);
  if (!ours->usable()) {
    *bad = request;
    return EIO;
  }
  int error = 0;
  bool flushes = false;
  {
    const std::lock_guard held(ours->lock());
    if (ours->now_in() == IBV_QPS_RESET || ours->srq != nullptr || ours->is_of_xrc() ||
        ours->recv_cq == nullptr)  // true if it receives through work queues
      error = EINVAL;
    for (; request != nullptr; request = request->next) {
      if (error == 0) error = ours->responses.post(*request);
      if (error == 0) continue;
      *bad = request;
      break;
    }
    // In the error state, the engine has to flush the receive, which no packet will complete.
    flushes = ours->now_in() == IBV_QPS_ERR;
  }
  if (flushes) ours->engine().ring(*ours);
  return error;
}
