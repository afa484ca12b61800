// SPDX-License-Identifier: Apache-2.0
#include "hub/shared_receives.hpp"

#include "device/async_events.hpp"
#include <verbspp/base/destroy_failure.hpp>
#include <verbspp/work/detail/wr_id.hpp>

#include <infiniband/verbs.h>

#include <cerrno>
#include <utility>

namespace verbspp::detail {

shared_receives::~shared_receives() {
  if (!queue_) return;
  const auto released = std::move(*queue_).release();
  int errnum = EBUSY;
  if (released.has_value()) {
    errnum = errno_of(ibv_destroy_srq(released.assume_value()));
    report_destroy(released.assume_value(), errnum, "ibv_destroy_srq");
    if (errnum == 0)
      forget_async_events(places().domain().context(), async_event_element::shared_receive_queue,
                          reinterpret_cast<std::uintptr_t>(released.assume_value()));
  }
  // Once the queue is destroyed, the device no longer accesses the posted places. If it cannot be
  // destroyed, these places are never reused.
  for (std::uint32_t i = 0; i < places().count(); ++i) {
    pool_place& place = places()[i];
    if (!place.has_user(this)) continue;
    place.set_user(nullptr);
    if (errnum != 0) continue;
    place.end_receive();
    place.give_back();
  }
}

result<void> shared_receives::open(const protection_domain& domain, const message_pool& pool,
                                   std::uint32_t depth, std::uint32_t refill) noexcept {
  VERBSPP_TRY(wanted, work_request_count::from(depth));
  VERBSPP_TRY(made, shared_receive_queue::create(domain, wanted));
  refill_ = refill_for(depth, refill);
  queue_ = std::move(made);
  pool_ = pool;
  due_below_ = static_cast<int>(depth - refill_ + 1);
  until_due_ = -due_below_;
  post();
  if (const auto failed = failure()) return *failed;
  return success();
}

void shared_receives::post() noexcept {
  do {
    message_list batch;
    std::uint32_t count =
        places().take(batch, refill_, [this](pool_place& place) { place.set_user(this); });
    if (count == 0) return;
    ibv_recv_wr* rejected = nullptr;
    const int returned = ibv_post_srq_recv(queue_->native_handle(), batch.first, &rejected);
    if (returned != 0) [[unlikely]]
      count = batch.drop_rejected(rejected);
    until_due_ += static_cast<int>(count);
    if (returned != 0) {
      failure_ = post_failure(returned, "ibv_post_srq_recv", 1, 1);
      return;
    }
    failure_.reset();
  } while (is_due());
}

}  // namespace verbspp::detail
