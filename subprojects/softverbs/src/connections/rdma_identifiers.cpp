// SPDX-License-Identifier: Apache-2.0
// The entry points that create, destroy and migrate identifiers, and set up their addresses, routes
// and options.
#include "connections/calls.hpp"

#include <pthread.h>

#include <cerrno>
#include <new>
#include <utility>

using namespace softverbs;

namespace {

bool is_port_space(rdma_port_space space) noexcept {
  return space == RDMA_PS_TCP || space == RDMA_PS_UDP || space == RDMA_PS_IPOIB ||
         space == RDMA_PS_IB;
}

}  // namespace

void softverbs::wait_for_acknowledgements(identifier& id, const std::function<bool()>& is_done) {
  int cancelled = 0;
  ::pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancelled);
  {
    std::unique_lock held(connections_mutex());
    id.all_acknowledged.wait(held, is_done);
  }
  ::pthread_setcancelstate(cancelled, nullptr);
}

int softverbs::make_identifier(rdma_event_channel* channel, rdma_cm_id** id, void* context,
                               rdma_port_space space, ibv_qp_type type) {
  if (id == nullptr || !is_port_space(space)) return EINVAL;
  if (channel != nullptr && channel->fd < 0) return EIO;  // in a forked child
  rdma_event_channel* const own = channel == nullptr ? make_channel() : nullptr;
  if (channel == nullptr && own == nullptr) return errno;
  const connections_lock held;
  std::unique_ptr<event_channel> owned(own != nullptr ? &event_channel::of(own) : nullptr);
  auto made = std::make_unique<identifier>(owned ? *owned : event_channel::of(channel), context,
                                           space, type);
  made->own_channel = std::move(owned);
  *id = made.release();
  return 0;
}

SOFTVERBS_EXPORT int rdma_create_id(rdma_event_channel* channel, rdma_cm_id** id, void* context,
                                    rdma_port_space space) {
  SOFTVERBS_PASS_ON(rdma_create_id, channel, id, context, space);
  const bool is_datagram = space == RDMA_PS_IPOIB || space == RDMA_PS_UDP;
  return guarded([&] {
    return make_identifier(channel, id, context, space, is_datagram ? IBV_QPT_UD : IBV_QPT_RC);
  });
}

SOFTVERBS_EXPORT int rdma_destroy_id(rdma_cm_id* id) {
  SOFTVERBS_PASS_ON(rdma_destroy_id, id);
  identifier& ours = identifier::of(id);
  return guarded([&] {
    {
      const connections_lock held;
      ours.silence();
      ours.drop_events();
    }
    if (id->event != nullptr) rdma_ack_cm_event(std::exchange(id->event, nullptr));
    wait_for_acknowledgements(ours, [&] { return ours.acknowledged >= ours.reported; });
    const connections_lock held;
    ours.destroy();
    return 0;
  });
}

SOFTVERBS_EXPORT int rdma_bind_addr(rdma_cm_id* id, sockaddr* address) {
  SOFTVERBS_PASS_ON(rdma_bind_addr, id, address);
  return locked([&] { return identifier::of(id).bind(address); });
}

SOFTVERBS_EXPORT int rdma_resolve_addr(rdma_cm_id* id, sockaddr* source, sockaddr* target,
                                       int timeout) {
  SOFTVERBS_PASS_ON(rdma_resolve_addr, id, source, target, timeout);
  identifier& ours = identifier::of(id);
  const int result = locked([&] { return ours.resolve(source, target); });
  return result != 0 ? result : complete(ours);
}

SOFTVERBS_EXPORT int rdma_resolve_route(rdma_cm_id* id, int timeout) {
  SOFTVERBS_PASS_ON(rdma_resolve_route, id, timeout);
  identifier& ours = identifier::of(id);
  const int result = locked([&] { return ours.resolve_route(); });
  return result != 0 ? result : complete(ours);
}

SOFTVERBS_EXPORT int rdma_set_option(rdma_cm_id* id, int level, int name, void* value,
                                     std::size_t length) {
  SOFTVERBS_PASS_ON(rdma_set_option, id, level, name, value, length);
  return locked([&] { return identifier::of(id).set_option(level, name, value, length); });
}

SOFTVERBS_EXPORT int rdma_migrate_id(rdma_cm_id* id, rdma_event_channel* channel) {
  SOFTVERBS_PASS_ON(rdma_migrate_id, id, channel);
  identifier& ours = identifier::of(id);
  if (ours.is_synchronous() && channel == nullptr) return outcome(EINVAL);
  return guarded([&] {
    rdma_event_channel* const own = channel == nullptr ? make_channel() : nullptr;
    if (channel == nullptr && own == nullptr) return errno;
    std::unique_ptr<event_channel> before;
    int reported = 0;
    {
      const connections_lock held;
      reported = ours.reported;
      ours.move_to(event_channel::of(own != nullptr ? own : channel));
      before = std::move(ours.own_channel);
      if (own != nullptr) ours.own_channel.reset(&event_channel::of(own));
    }
    if (before && id->event != nullptr) rdma_ack_cm_event(std::exchange(id->event, nullptr));
    // Waits until the program has acknowledged all events from the previous channel.
    wait_for_acknowledgements(ours, [&] { return ours.acknowledged >= reported; });
    const connections_lock held;
    before.reset();
    return 0;
  });
}
