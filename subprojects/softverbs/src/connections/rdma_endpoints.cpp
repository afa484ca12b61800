// SPDX-License-Identifier: Apache-2.0
// The entry points that combine several steps in one call, and those that list devices.
#include "connections/calls.hpp"

#include <rdma/rdma_verbs.h>

#include <cerrno>
#include <cstdlib>
#include <utility>

using namespace softverbs;

namespace {

/// Binds a listener, and stores the attributes for the queue pairs of its requests. Returns 0, or
/// -1 with errno set.
int prepare_to_listen(rdma_cm_id* id, const rdma_addrinfo& address, ibv_pd* domain,
                      const ibv_qp_init_attr* attributes) {
  if (rdma_bind_addr(id, address.ai_src_addr) != 0) return -1;
  if (domain != nullptr) id->pd = domain;
  if (attributes != nullptr) {
    identifier& ours = identifier::of(id);
    ours.endpoint_attributes = *attributes;
    ours.endpoint_attributes->qp_type = static_cast<ibv_qp_type>(address.ai_qp_type);
  }
  return 0;
}

int prepare_to_connect(rdma_cm_id* id, const rdma_addrinfo& address, ibv_pd* domain,
                       ibv_qp_init_attr* attributes) {
  constexpr int timeout = 2000;
  if (rdma_resolve_addr(id, address.ai_src_addr, address.ai_dst_addr, timeout) != 0 ||
      rdma_resolve_route(id, timeout) != 0)
    return -1;
  if (attributes != nullptr) {
    attributes->qp_type = static_cast<ibv_qp_type>(address.ai_qp_type);
    if (rdma_create_qp(id, domain, attributes) != 0) return -1;
  }
  const auto* const data = static_cast<const std::uint8_t*>(address.ai_connect);
  return guarded([&] {
    if (data != nullptr)
      identifier::of(id).connect_data.assign(data, data + address.ai_connect_len);
    return 0;
  });
}

}  // namespace

SOFTVERBS_EXPORT int rdma_create_ep(rdma_cm_id** id, rdma_addrinfo* address, ibv_pd* domain,
                                    ibv_qp_init_attr* attributes) {
  SOFTVERBS_PASS_ON(rdma_create_ep, id, address, domain, attributes);
  rdma_cm_id* made = nullptr;
  if (guarded([&] {
        return make_identifier(nullptr, &made, nullptr,
                               static_cast<rdma_port_space>(address->ai_port_space),
                               static_cast<ibv_qp_type>(address->ai_qp_type));
      }) != 0)
    return -1;
  const int result = (address->ai_flags & RAI_PASSIVE) != 0
                         ? prepare_to_listen(made, *address, domain, attributes)
                         : prepare_to_connect(made, *address, domain, attributes);
  if (result != 0) {
    const int error = errno;
    rdma_destroy_ep(made);
    return outcome(error);
  }
  *id = made;
  return 0;
}

SOFTVERBS_EXPORT void rdma_destroy_ep(rdma_cm_id* id) {
  SOFTVERBS_PASS_ON(rdma_destroy_ep, id);
  if (id->qp != nullptr) rdma_destroy_qp(id);
  if (id->srq != nullptr) rdma_destroy_srq(id);
  rdma_destroy_id(id);
}

SOFTVERBS_EXPORT int rdma_get_request(rdma_cm_id* listener, rdma_cm_id** id) {
  SOFTVERBS_PASS_ON(rdma_get_request, listener, id);
  identifier& ours = identifier::of(listener);
  if (!ours.is_synchronous()) return outcome(EINVAL);
  if (listener->event != nullptr) rdma_ack_cm_event(std::exchange(listener->event, nullptr));
  rdma_cm_event* event = nullptr;
  if (rdma_get_cm_event(listener->channel, &event) != 0) return -1;
  int error = 0;
  if (event->event == RDMA_CM_EVENT_REJECTED)
    error = ECONNREFUSED;
  else if (event->status != 0)
    error = event->status < 0 ? -event->status : event->status;
  else if (event->event != RDMA_CM_EVENT_CONNECT_REQUEST)
    error = EINVAL;
  if (error == 0 && ours.endpoint_attributes) {
    ibv_qp_init_attr attributes = *ours.endpoint_attributes;
    if (rdma_create_qp(event->id, listener->pd, &attributes) != 0) error = errno;
  }
  if (error != 0) {
    listener->event = event;
    return outcome(error);
  }
  *id = event->id;
  (*id)->event = event;
  return 0;
}

SOFTVERBS_EXPORT ibv_context** rdma_get_devices(int* count) {
  SOFTVERBS_PASS_ON(rdma_get_devices, count);
  const connections_lock held;
  // The list ends with a null pointer.
  auto** const list =
      static_cast<ibv_context**>(std::calloc(device_count() + 1, sizeof(ibv_context*)));
  int found = 0;
  for (unsigned number = 0; list != nullptr && number < device_count(); ++number)
    if (ibv_context* const opened = manager_context(number)) list[found++] = opened;
  if (count != nullptr) *count = found;
  if (list == nullptr) errno = ENOMEM;
  return list;
}

SOFTVERBS_EXPORT void rdma_free_devices(ibv_context** list) {
  SOFTVERBS_PASS_ON(rdma_free_devices, list);
  std::free(static_cast<void*>(list));
}
