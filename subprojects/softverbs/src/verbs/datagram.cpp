// SPDX-License-Identifier: Apache-2.0
// The entry points for address handles and multicast groups.
#include "faults/faults.hpp"
#include "machine/engine.hpp"
#include "queue_pair/queue_pair.hpp"
#include "verbs/device_context.hpp"
#include "verbs/export.hpp"
#include "verbs/failed.hpp"
#include "verbs/next_library.hpp"

#include <cerrno>
#include <memory>
#include <mutex>
#include <new>

using namespace softverbs;

namespace {

/// Checks whether the queue pair may be a member of the group. Sets `lid` to 0 if the GID alone
/// identifies the group. Returns 0 or an errno value.
int check_group(const ibv_qp* pair, const ibv_gid& gid, std::uint16_t& lid) noexcept {
  if (!device_context::of(pair->context).usable()) return EIO;
  if (pair->qp_type == IBV_QPT_RAW_PACKET) {
    lid = 0;
    return is_multicast_mac(gid) ? 0 : EINVAL;
  }
  if (pair->qp_type != IBV_QPT_UD || !is_multicast(gid)) return EINVAL;
  const bool ethernet = static_cast<const queue_pair*>(pair)->is_on_ethernet();
  if (!ethernet && !is_multicast(lid)) return EINVAL;
  if (ethernet) lid = 0;
  return 0;
}

}  // namespace

SOFTVERBS_EXPORT ibv_ah* ibv_create_ah(ibv_pd* domain, ibv_ah_attr* attributes) {
  if (!is_soft(domain)) return SOFTVERBS_NEXT(ibv_create_ah)(domain, attributes);
  SOFTVERBS_FAULT(ibv_create_ah, domain->context);
  device_context& device = device_context::of(domain->context);
  route way;
  if (!device.usable()) return failed<ibv_ah>(EIO);
  if (const int error = find_route(device.device(), *attributes, way)) return failed<ibv_ah>(error);
  try {
    auto handle = std::make_unique<address_handle>();
    handle->context = domain->context;
    handle->pd = domain;
    handle->to = describe(device.device(), *attributes, way);
    const std::lock_guard held(device.engine().lock());
    if (device.address_handles.size() >= device.device().most().address_handles)
      return failed<ibv_ah>(ENOMEM);
    if (static_cast<protection_domain*>(domain)->of->destroyed) return failed<ibv_ah>(EINVAL);
    device.address_handles.insert(handle.get());
    ++static_cast<protection_domain*>(domain)->children;
    return handle.release();
  } catch (const std::bad_alloc&) {
    return failed<ibv_ah>(ENOMEM);
  }
}

SOFTVERBS_EXPORT int ibv_destroy_ah(ibv_ah* handle) {
  if (!is_soft(handle)) return SOFTVERBS_NEXT(ibv_destroy_ah)(handle);
  SOFTVERBS_FAULT(ibv_destroy_ah, handle->context);
  device_context& device = device_context::of(handle->context);
  if (!device.usable()) return EIO;
  const std::lock_guard held(device.engine().lock());
  auto* ours = static_cast<address_handle*>(handle);
  device.address_handles.erase(ours);
  --static_cast<protection_domain*>(ours->pd)->children;
  delete ours;
  return 0;
}

// libibverbs' own function would search for the GID in the files of a kernel device.
SOFTVERBS_EXPORT int ibv_init_ah_from_wc(ibv_context* verbs, std::uint8_t port, ibv_wc* completion,
                                         ibv_grh* header, ibv_ah_attr* attributes) {
  if (!is_soft(verbs))
    return SOFTVERBS_NEXT(ibv_init_ah_from_wc)(verbs, port, completion, header, attributes);
  SOFTVERBS_FAULT(ibv_init_ah_from_wc, verbs);
  const int error = address_back(*soft_device_of(verbs), port, *completion, *header, *attributes);
  if (error == 0) return 0;
  errno = error;
  return -1;
}

SOFTVERBS_EXPORT ibv_ah* ibv_create_ah_from_wc(ibv_pd* domain, ibv_wc* completion, ibv_grh* header,
                                               std::uint8_t port) {
  if (!is_soft(domain))
    return SOFTVERBS_NEXT(ibv_create_ah_from_wc)(domain, completion, header, port);
  SOFTVERBS_FAULT(ibv_create_ah_from_wc, domain->context);
  ibv_ah_attr attributes;
  if (ibv_init_ah_from_wc(domain->context, port, completion, header, &attributes) != 0)
    return nullptr;
  return ibv_create_ah(domain, &attributes);
}

SOFTVERBS_EXPORT int ibv_attach_mcast(ibv_qp* pair, const ibv_gid* gid, std::uint16_t lid) {
  if (!is_soft(pair)) return SOFTVERBS_NEXT(ibv_attach_mcast)(pair, gid, lid);
  SOFTVERBS_FAULT(ibv_attach_mcast, pair->context);
  if (const int error = check_group(pair, *gid, lid)) return error;
  softverbs::engine& engine = device_context::of(pair->context).engine();
  const std::lock_guard held(engine.lock());
  return engine.join(*static_cast<queue_pair*>(pair), *gid, lid);
}

SOFTVERBS_EXPORT int ibv_detach_mcast(ibv_qp* pair, const ibv_gid* gid, std::uint16_t lid) {
  if (!is_soft(pair)) return SOFTVERBS_NEXT(ibv_detach_mcast)(pair, gid, lid);
  SOFTVERBS_FAULT(ibv_detach_mcast, pair->context);
  if (const int error = check_group(pair, *gid, lid)) return error;
  softverbs::engine& engine = device_context::of(pair->context).engine();
  const std::lock_guard held(engine.lock());
  return engine.leave(*static_cast<queue_pair*>(pair), *gid, lid);
}
