// SPDX-License-Identifier: Apache-2.0
// The entry points for XRC domains, and for the queue pairs that receive for them.
#include "verbs/xrc.hpp"

#include "faults/faults.hpp"
#include "machine/engine.hpp"
#include "queue_pair/queue_pair.hpp"
#include "queue_pair/xrc_parting.hpp"
#include "verbs/acknowledgement.hpp"
#include "verbs/device_context.hpp"
#include "verbs/inline_calls.hpp"

#include <sys/stat.h>

#include <cerrno>
#include <memory>
#include <mutex>
#include <new>

namespace softverbs {
namespace {

/// Creates one of the program's objects for an XRC receive queue pair. Requires the engine's lock.
ibv_qp* add_target(device_context& device, queue_pair& pair, xrc_opening& through,
                   void* user_context) {
  auto target = std::make_unique<xrc_target>(device, pair, through, user_context);
  device.xrc_targets.insert(target.get());
  try {
    pair.open_by(*target);
  } catch (...) {
    device.xrc_targets.erase(target.get());
    throw;
  }
  ++through.children;
  return target.release();
}

}  // namespace

int create_target(device_context& device, ibv_qp_init_attr_ex& attributes, ibv_qp*& created) {
  if ((attributes.comp_mask & IBV_QP_INIT_ATTR_XRCD) == 0 || attributes.xrcd == nullptr ||
      attributes.xrcd->context != &device.verbs())
    return EINVAL;
  if (!device.usable()) return EIO;
  auto& through = *static_cast<xrc_opening*>(attributes.xrcd);
  // The queue pair itself has no queues.
  attributes.cap = {};
  ibv_qp_init_attr granted{};
  granted.qp_context = attributes.qp_context;
  granted.qp_type = IBV_QPT_XRC_RECV;
  try {
    auto pair = std::make_unique<queue_pair>(device, nullptr, granted, through.domain);
    const std::lock_guard held(device.engine().lock());
    if (device.queue_pairs.size() + device.xrc_targets.size() >= device.device().most().queue_pairs)
      return ENOMEM;
    if (const int error = pair->enter_machine()) return error;
    auto& known = through.domain->queue_pairs;
    try {
      known.emplace(pair->number(), pair.get());
      created = add_target(device, *pair, through, attributes.qp_context);
    } catch (...) {
      known.erase(pair->number());
      pair->leave_machine();
      throw;
    }
    // The queue pair is now owned by the objects that refer to it.
    [[maybe_unused]] const queue_pair* const owned = pair.release();
    return 0;
  } catch (const std::bad_alloc&) {
    return ENOMEM;
  }
}

int destroy_target(xrc_target& target) {
  device_context& device = device_context::of(target.context);
  unsigned events = 0;
  {
    const std::lock_guard held(device.engine().lock());
    part(target);
    device.xrc_targets.erase(&target);
    device.async_events().drop([&target](const ibv_async_event& event) {
      return event.event_type != IBV_EVENT_CQ_ERR &&
             event.event_type != IBV_EVENT_SRQ_LIMIT_REACHED && event.element.qp == &target;
    });
    events = target.async_events_reported;
  }
  wait_until_acknowledged(target, events);
  delete &target;
  return 0;
}

int refuse_request(const ibv_qp& target) noexcept {
  return device_context::of(target.context).usable() ? EINVAL : EIO;
}

ibv_xrcd* inline_calls::open_xrcd(ibv_context* verbs, ibv_xrcd_init_attr* attributes) {
  SOFTVERBS_FAULT(ibv_open_xrcd, verbs);
  verbs = device_context::in_this_process(verbs);
  if (verbs == nullptr) return nullptr;
  constexpr std::uint32_t all = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
  device_context& device = device_context::of(verbs);
  int error = device.usable() ? 0 : EIO;
  if (error == 0 && (attributes->comp_mask & ~all) != 0) error = EOPNOTSUPP;
  if (error == 0 && attributes->comp_mask != all) error = EINVAL;
  // fstat may take a long time, and must not delay packets, so it is called without the lock.
  struct stat file{};
  if (error == 0 && attributes->fd != -1 && ::fstat(attributes->fd, &file) != 0) error = EBADF;
  if (error == 0) try {
      auto opening = std::make_unique<xrc_opening>();
      opening->context = verbs;
      const std::lock_guard held(device.engine().lock());
      device.xrc_openings.insert(opening.get());
      try {
        opening->domain = device.machine().xrc_domains.open(device.device().number, attributes->fd,
                                                            file, attributes->oflags, error);
      } catch (...) {
        device.xrc_openings.erase(opening.get());
        throw;
      }
      if (opening->domain != nullptr) return opening.release();
      device.xrc_openings.erase(opening.get());
    } catch (const std::bad_alloc&) {
      error = ENOMEM;
    }
  errno = error;
  return nullptr;
}

int inline_calls::close_xrcd(ibv_xrcd* domain) {
  SOFTVERBS_FAULT(ibv_close_xrcd, domain->context);
  device_context& device = device_context::of(domain->context);
  if (!device.usable()) return EIO;
  auto* ours = static_cast<xrc_opening*>(domain);
  const std::lock_guard held(device.engine().lock());
  if (ours->children != 0) return EBUSY;
  part(*ours, device.machine());
  device.xrc_openings.erase(ours);
  delete ours;
  return 0;
}

ibv_qp* inline_calls::open_qp(ibv_context* verbs, ibv_qp_open_attr* attributes) {
  SOFTVERBS_FAULT(ibv_open_qp, verbs);
  verbs = device_context::in_this_process(verbs);
  if (verbs == nullptr) return nullptr;
  constexpr std::uint32_t needed =
      IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE;
  const std::uint32_t given = attributes->comp_mask;
  device_context& device = device_context::of(verbs);
  int error = device.usable() ? 0 : EIO;
  if (error == 0 && (given & ~(needed | IBV_QP_OPEN_ATTR_CONTEXT)) != 0) error = EOPNOTSUPP;
  if (error == 0 && ((given & needed) != needed || attributes->qp_type != IBV_QPT_XRC_RECV ||
                     attributes->xrcd == nullptr || attributes->xrcd->context != verbs))
    error = EINVAL;
  if (error == 0) try {
      auto& through = *static_cast<xrc_opening*>(attributes->xrcd);
      void* const user_context =
          (given & IBV_QP_OPEN_ATTR_CONTEXT) != 0 ? attributes->qp_context : nullptr;
      const std::lock_guard held(device.engine().lock());
      const auto found = through.domain->queue_pairs.find(attributes->qp_num);
      if (found != through.domain->queue_pairs.end())
        return add_target(device, *static_cast<queue_pair*>(found->second), through, user_context);
      error = EINVAL;
    } catch (const std::bad_alloc&) {
      error = ENOMEM;
    }
  errno = error;
  return nullptr;
}

}  // namespace softverbs
