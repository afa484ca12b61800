// SPDX-License-Identifier: Apache-2.0
// The entry points for connections, from listening to disconnecting, and for their ECE options.
#include "connections/calls.hpp"

#include <cerrno>
#include <utility>

using namespace softverbs;

namespace {

std::span<const std::uint8_t> private_data(const void* data, std::uint8_t length) noexcept {
  if (data == nullptr) return {};
  return {static_cast<const std::uint8_t*>(data), length};
}

}  // namespace

SOFTVERBS_EXPORT int rdma_listen(rdma_cm_id* id, int backlog) {
  SOFTVERBS_PASS_ON(rdma_listen, id, backlog);
  return locked([&] { return identifier::of(id).listen(backlog); });
}

SOFTVERBS_EXPORT int rdma_connect(rdma_cm_id* id, rdma_conn_param* parameters) {
  SOFTVERBS_PASS_ON(rdma_connect, id, parameters);
  identifier& ours = identifier::of(id);
  const int result = locked([&] { return ours.connect(parameters); });
  return result != 0 ? result : complete(ours);
}

SOFTVERBS_EXPORT int rdma_accept(rdma_cm_id* id, rdma_conn_param* parameters) {
  SOFTVERBS_PASS_ON(rdma_accept, id, parameters);
  identifier& ours = identifier::of(id);
  if (const int result = locked([&] { return ours.accept(parameters); })) return result;
  if (!ours.is_datagram()) return complete(ours);
  // For datagrams, no further event follows.
  if (ours.is_synchronous() && id->event != nullptr)
    rdma_ack_cm_event(std::exchange(id->event, nullptr));
  return 0;
}

SOFTVERBS_EXPORT int rdma_establish(rdma_cm_id* id) {
  SOFTVERBS_PASS_ON(rdma_establish, id);
  return locked([&] { return identifier::of(id).establish(); });
}

SOFTVERBS_EXPORT int rdma_reject(rdma_cm_id* id, const void* data, std::uint8_t length) {
  SOFTVERBS_PASS_ON(rdma_reject, id, data, length);
  return locked([&] {
    return identifier::of(id).reject(private_data(data, length), reasons::by_the_program);
  });
}

SOFTVERBS_EXPORT int rdma_reject_ece(rdma_cm_id* id, const void* data, std::uint8_t length) {
  SOFTVERBS_PASS_ON(rdma_reject_ece, id, data, length);
  return locked([&] {
    return identifier::of(id).reject(private_data(data, length), reasons::vendor_option);
  });
}

SOFTVERBS_EXPORT int rdma_notify(rdma_cm_id* id, ibv_event_type event) {
  SOFTVERBS_PASS_ON(rdma_notify, id, event);
  return locked([&] { return identifier::of(id).notify(event); });
}

SOFTVERBS_EXPORT int rdma_disconnect(rdma_cm_id* id) {
  SOFTVERBS_PASS_ON(rdma_disconnect, id);
  identifier& ours = identifier::of(id);
  const int result = locked([&] { return ours.disconnect(); });
  return result != 0 ? result : complete(ours);
}

SOFTVERBS_EXPORT int rdma_set_local_ece(rdma_cm_id* id, ibv_ece* options) {
  SOFTVERBS_PASS_ON(rdma_set_local_ece, id, options);
  if (id == nullptr || id->qp != nullptr || options == nullptr || options->vendor_id == 0 ||
      options->comp_mask != 0)
    return outcome(EINVAL);
  identifier::of(id).local_vendor = *options;
  return 0;
}

SOFTVERBS_EXPORT int rdma_get_remote_ece(rdma_cm_id* id, ibv_ece* options) {
  SOFTVERBS_PASS_ON(rdma_get_remote_ece, id, options);
  if (id == nullptr || id->qp != nullptr || options == nullptr) return outcome(EINVAL);
  *options = identifier::of(id).remote_vendor;
  options->comp_mask = 0;
  return 0;
}
