// SPDX-License-Identifier: Apache-2.0
// The entry points for the queue pairs and shared receive queues of identifiers. Queue pairs, and
// shared receive queues for XRC, get completion queues and channels if the program passes none.
#include "connections/calls.hpp"

#include <rdma/rdma_verbs.h>

#include <cerrno>
#include <cstring>
#include <utility>

using namespace softverbs;

namespace {

template <typename Object>
void destroy(Object*& object, int (*function)(Object*)) noexcept {
  if (object != nullptr) function(std::exchange(object, nullptr));
}

void destroy_queue(ibv_cq*& queue, ibv_comp_channel*& channel) noexcept {
  destroy(queue, ibv_destroy_cq);
  destroy(channel, ibv_destroy_comp_channel);
}

void destroy_queues(rdma_cm_id& id) noexcept {
  // The completion queues are still needed, because XRC receives complete in them, even without a
  // queue pair.
  if (id.qp_type == IBV_QPT_XRC_RECV && id.srq != nullptr) return;
  if (id.send_cq == id.recv_cq) id.send_cq = nullptr;
  if (id.send_cq_channel == id.recv_cq_channel) id.send_cq_channel = nullptr;
  destroy(id.send_cq, ibv_destroy_cq);
  destroy_queue(id.recv_cq, id.recv_cq_channel);
  destroy(id.send_cq_channel, ibv_destroy_comp_channel);
}

bool create_queue(rdma_cm_id& id, std::uint32_t length, ibv_comp_channel*& channel,
                  ibv_cq*& queue) {
  if (length == 0) return true;
  channel = ibv_create_comp_channel(id.verbs);
  if (channel != nullptr)
    queue = ibv_create_cq(id.verbs, static_cast<int>(length), &id, channel, 0);
  return queue != nullptr;
}

/// Brings a new queue pair to the INIT state, or to RTS if it is for datagrams. Returns 0 or an
/// errno value.
int initialize(rdma_cm_id& id, ibv_qp* pair) {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_INIT;
  int mask = 0;
  if (rdma_init_qp_attr(&id, &attributes, &mask) != 0) return errno;
  if (const int error = ibv_modify_qp(pair, &attributes, mask)) return error;
  if (id.qp_type != IBV_QPT_UD) return 0;
  // A datagram queue pair needs no connection, so it can be used immediately.
  attributes.qp_state = IBV_QPS_RTR;
  if (const int error = ibv_modify_qp(pair, &attributes, IBV_QP_STATE)) return error;
  attributes.qp_state = IBV_QPS_RTS;
  attributes.sq_psn = 0;
  return ibv_modify_qp(pair, &attributes, IBV_QP_STATE | IBV_QP_SQ_PSN);
}

/// Returns the connection manager's XRC domain on the identifier's device, or null with errno.
ibv_xrcd* xrc_domain_for(rdma_cm_id& id) {
  const connections_lock held;
  return manager_xrc_domain(identifier::of(&id).here()->device);
}

/// Returns the identifier's own completion queue, with room for at least `length` receives, or null
/// with errno.
ibv_cq* queue_for_receives(rdma_cm_id& id, std::uint32_t length) {
  if (id.recv_cq == nullptr) {
    create_queue(id, length, id.recv_cq_channel, id.recv_cq);
  } else if (static_cast<std::uint32_t>(id.recv_cq->cqe) < length) {
    // The queue may have been created for a queue pair that receives nothing itself, and be too
    // short.
    if (const int error = ibv_resize_cq(id.recv_cq, static_cast<int>(length))) {
      errno = error;
      return nullptr;
    }
  }
  return id.recv_cq;
}

/// Adds the objects that an XRC shared receive queue needs, unless the program has passed them.
/// Returns false with errno on failure.
bool complete_for_xrc(rdma_cm_id& id, ibv_srq_init_attr_ex& attributes) {
  if ((attributes.comp_mask & IBV_SRQ_INIT_ATTR_XRCD) == 0 || attributes.xrcd == nullptr)
    attributes.xrcd = xrc_domain_for(id);
  if (attributes.xrcd == nullptr) return false;
  if ((attributes.comp_mask & IBV_SRQ_INIT_ATTR_CQ) == 0 || attributes.cq == nullptr)
    attributes.cq = queue_for_receives(id, attributes.attr.max_wr);
  attributes.comp_mask |= IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
  return attributes.cq != nullptr;
}

bool differ(const ibv_cq* own, const ibv_cq* given) noexcept {
  return own != nullptr && given != nullptr && own != given;
}

}  // namespace

SOFTVERBS_EXPORT int rdma_init_qp_attr(rdma_cm_id* id, ibv_qp_attr* attributes, int* mask) {
  SOFTVERBS_PASS_ON(rdma_init_qp_attr, id, attributes, mask);
  return locked([&] { return identifier::of(id).queue_pair_attributes(*attributes, *mask); });
}

SOFTVERBS_EXPORT int rdma_create_qp_ex(rdma_cm_id* id, ibv_qp_init_attr_ex* attributes) {
  SOFTVERBS_PASS_ON(rdma_create_qp_ex, id, attributes);
  if (id->qp != nullptr || id->verbs == nullptr) return outcome(EINVAL);
  if ((attributes->comp_mask & IBV_QP_INIT_ATTR_PD) == 0 || attributes->pd == nullptr) {
    attributes->comp_mask |= IBV_QP_INIT_ATTR_PD;
    attributes->pd = id->pd;
  } else if (attributes->pd->context != id->verbs) {
    return outcome(EINVAL);
  }
  if (differ(id->recv_cq, attributes->recv_cq) || differ(id->send_cq, attributes->send_cq))
    return outcome(EINVAL);
  if (id->qp_type == IBV_QPT_XRC_RECV) {
    if ((attributes->comp_mask & IBV_QP_INIT_ATTR_XRCD) == 0 || attributes->xrcd == nullptr)
      attributes->xrcd = xrc_domain_for(*id);
    if (attributes->xrcd == nullptr) return -1;
    attributes->comp_mask |= IBV_QP_INIT_ATTR_XRCD;
  }
  const bool brings_receives = attributes->recv_cq != nullptr || id->recv_cq != nullptr;
  const bool brings_sends = attributes->send_cq != nullptr || id->send_cq != nullptr;
  if ((!brings_receives &&
       !create_queue(*id, attributes->cap.max_recv_wr, id->recv_cq_channel, id->recv_cq)) ||
      (!brings_sends &&
       !create_queue(*id, attributes->cap.max_send_wr, id->send_cq_channel, id->send_cq))) {
    const int error = errno;
    destroy_queues(*id);
    return outcome(error);
  }
  if (attributes->send_cq == nullptr) attributes->send_cq = id->send_cq;
  if (attributes->recv_cq == nullptr) attributes->recv_cq = id->recv_cq;
  if (attributes->srq == nullptr) attributes->srq = id->srq;
  ibv_qp* const pair = ibv_create_qp_ex(id->verbs, attributes);
  int error = pair != nullptr ? initialize(*id, pair) : errno;
  if (error != 0) {
    if (pair != nullptr) ibv_destroy_qp(pair);
    destroy_queues(*id);
    return outcome(error);
  }
  id->pd = attributes->pd;
  id->qp = pair;
  return 0;
}

SOFTVERBS_EXPORT int rdma_create_qp(rdma_cm_id* id, ibv_pd* domain, ibv_qp_init_attr* attributes) {
  SOFTVERBS_PASS_ON(rdma_create_qp, id, domain, attributes);
  // The extended structure begins with the members of the plain one.
  ibv_qp_init_attr_ex extended{};
  std::memcpy(static_cast<void*>(&extended), attributes, sizeof(*attributes));
  extended.comp_mask = IBV_QP_INIT_ATTR_PD;
  extended.pd = domain != nullptr ? domain : id->pd;
  const int result = rdma_create_qp_ex(id, &extended);
  std::memcpy(static_cast<void*>(attributes), &extended, sizeof(*attributes));
  return result;
}

SOFTVERBS_EXPORT void rdma_destroy_qp(rdma_cm_id* id) {
  SOFTVERBS_PASS_ON(rdma_destroy_qp, id);
  {
    // The lock is needed, because a thread that reads an event may modify the queue pair.
    const connections_lock held;
    destroy(id->qp, ibv_destroy_qp);
  }
  destroy_queues(*id);
}

SOFTVERBS_EXPORT int rdma_create_srq_ex(rdma_cm_id* id, ibv_srq_init_attr_ex* attributes) {
  SOFTVERBS_PASS_ON(rdma_create_srq_ex, id, attributes);
  if ((attributes->comp_mask & IBV_SRQ_INIT_ATTR_TYPE) == 0 || id->verbs == nullptr ||
      attributes->attr.max_wr == 0)
    return outcome(EINVAL);
  if ((attributes->comp_mask & IBV_SRQ_INIT_ATTR_PD) == 0 || attributes->pd == nullptr) {
    attributes->pd = id->pd;
    attributes->comp_mask |= IBV_SRQ_INIT_ATTR_PD;
  }
  ibv_srq* queue = nullptr;
  const bool had_queue = id->recv_cq != nullptr;
  if (attributes->srq_type == IBV_SRQT_BASIC) {
    ibv_srq_init_attr basic{attributes->srq_context, attributes->attr};
    queue = ibv_create_srq(attributes->pd, &basic);
    attributes->attr = basic.attr;
  } else if (attributes->srq_type != IBV_SRQT_XRC || complete_for_xrc(*id, *attributes)) {
    queue = ibv_create_srq_ex(id->verbs, attributes);
  }
  if (queue == nullptr) {
    const int error = errno;
    if (!had_queue) destroy_queue(id->recv_cq, id->recv_cq_channel);
    return outcome(error);
  }
  if (id->pd == nullptr) id->pd = attributes->pd;
  id->srq = queue;
  return 0;
}

SOFTVERBS_EXPORT int rdma_create_srq(rdma_cm_id* id, ibv_pd* domain,
                                     ibv_srq_init_attr* attributes) {
  SOFTVERBS_PASS_ON(rdma_create_srq, id, domain, attributes);
  ibv_srq_init_attr_ex extended{};
  extended.srq_context = attributes->srq_context;
  extended.attr = attributes->attr;
  extended.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD;
  extended.srq_type = id->qp_type == IBV_QPT_XRC_RECV ? IBV_SRQT_XRC : IBV_SRQT_BASIC;
  extended.pd = domain;
  const int result = rdma_create_srq_ex(id, &extended);
  attributes->attr = extended.attr;
  return result;
}

SOFTVERBS_EXPORT void rdma_destroy_srq(rdma_cm_id* id) {
  SOFTVERBS_PASS_ON(rdma_destroy_srq, id);
  destroy(id->srq, ibv_destroy_srq);
  destroy_queues(*id);
}
