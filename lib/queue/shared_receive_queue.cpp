// SPDX-License-Identifier: Apache-2.0
#include "base/limits.hpp"
#include "device/async_events.hpp"
#include "memory/usable.hpp"
#include "queue/queue_memory.hpp"
#include <verbspp/base/destroy_failure.hpp>
#include <verbspp/base/object_trace.hpp>
#include <verbspp/device/async_event.hpp>
#include <verbspp/queue/shared_receive_queue.hpp>

#include <cerrno>
#include <new>
#include <ostream>
#include <string>

namespace verbspp {

namespace {

constexpr const char* creating_receive_queue = "ibv_create_srq";

error moved_from(const char* operation) noexcept {
  return {error_kind::invalid_input, operation, "this shared receive queue was moved from"};
}

}  // namespace

detail::shared_receive_queue_state::~shared_receive_queue_state() {
  if (destroyed_by != ownership::taken) return;
  report_destroy(native, errno_of(ibv_destroy_srq(native)), "ibv_destroy_srq");
  forget_async_events(owner.context(), async_event_element::shared_receive_queue,
                      reinterpret_cast<std::uintptr_t>(native));
}

result<shared_receive_queue> shared_receive_queue::create(const class protection_domain& domain,
                                                          work_request_count max_work_requests,
                                                          element_count max_elements) noexcept {
  VERBSPP_TRYV(detail::check_usable(creating_receive_queue, domain));
  VERBSPP_TRY(device, domain.context().query_device());
  if (device.max_srq <= 0)
    return error(
        error_kind::not_supported, creating_receive_queue,
        "this device has no shared receive queues: post receives to each queue pair or channel "
        "instead; a service, or a hub or group with a message pool, needs a device that has them");
  if (max_work_requests.value() == 0)
    return error::out_of_range(creating_receive_queue, "max work requests", 0,
                               "the smallest queue holds 1");
  VERBSPP_TRYV(detail::check_limit(creating_receive_queue, "max work requests",
                                   max_work_requests.value(), device.max_srq_wr));
  VERBSPP_TRYV(detail::check_limit(creating_receive_queue, "max elements", max_elements.value(),
                                   device.max_srq_sge));
  ibv_srq_init_attr initial{};
  initial.attr.max_wr = max_work_requests.value();
  initial.attr.max_sge = max_elements.value();
  errno = 0;
  ibv_srq* const created = ibv_create_srq(domain.native_handle(), &initial);
  if (created == nullptr) {
    const int errnum = errno;
    return error::from_errno(errnum, creating_receive_queue,
                             detail::advice_on_queue_memory(errnum));
  }
  auto* const state = new (std::nothrow) detail::shared_receive_queue_state(
      domain, created,
      {.max_work_requests = initial.attr.max_wr, .max_elements = initial.attr.max_sge},
      ownership::taken);
  if (state == nullptr) {
    ibv_destroy_srq(created);
    return error::from_errno(ENOMEM, creating_receive_queue);
  }
  detail::trace(creating_receive_queue, created);
  return shared_receive_queue(detail::reference<detail::shared_receive_queue_state>(state));
}

result<shared_receive_queue> shared_receive_queue::from_native(
    const class protection_domain& domain, ibv_srq* native, ownership whose) noexcept {
  constexpr const char* adopting = "shared_receive_queue::from_native";
  VERBSPP_TRYV(detail::check_usable(adopting, domain));
  if (native == nullptr) return error(error_kind::invalid_input, adopting, "the queue is null");
  if (native->pd != domain.native_handle())
    return error(
        error_kind::invalid_input, adopting,
        "the queue belongs to another protection domain: pass the one in which it was created");
  ibv_srq_attr attributes{};
  const int errnum = detail::errno_of(ibv_query_srq(native, &attributes));
  if (errnum != 0) return error::from_errno(errnum, "ibv_query_srq");
  auto* const state = new (std::nothrow) detail::shared_receive_queue_state(
      domain, native, {.max_work_requests = attributes.max_wr, .max_elements = attributes.max_sge},
      whose);
  if (state == nullptr) return error::from_errno(ENOMEM, adopting);
  return shared_receive_queue(detail::reference<detail::shared_receive_queue_state>(state));
}

result<ibv_srq*> shared_receive_queue::release() && noexcept {
  constexpr const char* releasing = "shared_receive_queue::release";
  if (!state_) return moved_from(releasing);
  if (!state_.is_only())
    return error(error_kind::busy, releasing,
                 "other handles of the queue, or queue pairs that receive from it, still exist: "
                 "destroy them first");
  state_->destroyed_by = ownership::borrowed;
  state_ = {};
  return std::exchange(native_, nullptr);
}

result<void> shared_receive_queue::arm_limit(std::uint32_t limit) const noexcept {
  constexpr const char* modifying = "ibv_modify_srq";
  if (native_ == nullptr) return moved_from(modifying);
  if (limit > capacities().max_work_requests)
    return error::above_limit(modifying, "number of receives for arm_limit", limit,
                              capacities().max_work_requests,
                              "the queue cannot hold more receives, so the limit event would occur "
                              "at once: pass a lower number");
  ibv_srq_attr attributes{};
  attributes.srq_limit = limit;
  const int errnum = detail::errno_of(ibv_modify_srq(native_, &attributes, IBV_SRQ_LIMIT));
  if (errnum != 0) return error::from_errno(errnum, modifying);
  return success();
}

result<shared_receive_queue_status> shared_receive_queue::query() const noexcept {
  constexpr const char* querying = "ibv_query_srq";
  if (native_ == nullptr) return moved_from(querying);
  ibv_srq_attr attributes{};
  const int errnum = detail::errno_of(ibv_query_srq(native_, &attributes));
  if (errnum != 0) return error::from_errno(errnum, querying);
  return shared_receive_queue_status{
      .capacities = {.max_work_requests = attributes.max_wr, .max_elements = attributes.max_sge},
      .limit = attributes.srq_limit};
}

bool async_event::concerns(const shared_receive_queue& queue) const noexcept {
  return queue.state_ && concerns(queue.native_handle()) && queue.state_->created_at < taken_at_;
}

std::ostream& operator<<(std::ostream& out, const shared_receive_queue& queue) {
  if (queue.native_handle() == nullptr) return out << "shared receive queue that was moved from";
  return out << "shared receive queue, capacity in receives: "
             << std::to_string(queue.capacities().max_work_requests) << ", device "
             << queue.protection_domain().context().device_name();
}

}  // namespace verbspp
