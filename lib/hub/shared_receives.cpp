// SPDX-License-Identifier: Apache-2.0
#include "hub/shared_receives.hpp"

#include "device/async_events.hpp"
#include <verbspp/base/destroy_failure.hpp>
#include <verbspp/work/detail/wr_id.hpp>

#include <infiniband/verbs.h>

#include <algorithm>
#include <cerrno>
#include <new>
#include <utility>

namespace verbspp::detail {

shared_receives::~shared_receives() {
  if (!queue_) return;
  // Once the queue is destroyed, the device no longer accesses the posted places. If it cannot be
  // destroyed, these places are never reused.
  const auto released = std::move(*queue_).release();
  if (!released.has_value()) return;
  const int errnum = errno_of(ibv_destroy_srq(released.assume_value()));
  report_destroy(released.assume_value(), errnum, "ibv_destroy_srq");
  if (errnum != 0) return;
  forget_async_events(places().domain().context(), async_event_element::shared_receive_queue,
                      reinterpret_cast<std::uintptr_t>(released.assume_value()));
  for (std::uint32_t place = 0; place < places().count(); ++place)
    if (is_posted_.get()[place]) {
      unmark(place);
      places().end_receive(place);
      places().give_back_unfilled(place);
    }
}

result<void> shared_receives::open(const protection_domain& domain, const message_pool& pool,
                                   std::uint32_t depth, std::uint32_t refill) noexcept {
  VERBSPP_TRY(wanted, work_request_count::from(depth));
  VERBSPP_TRY(made, shared_receive_queue::create(domain, wanted));
  refill_ = receive_batch::size_for(depth, refill);
  is_posted_ = owned<bool[]>(new (std::nothrow) bool[pool.size()]());
  if (!is_posted_ || !batch_.allocate(*pool.places(), refill_))
    return error::from_errno(ENOMEM, "channel_hub::create");
  queue_ = std::move(made);
  pool_ = pool;
  due_below_ = static_cast<int>(depth - refill_ + 1);
  until_due_ = -due_below_;
  post();
  if (const auto failed = failure()) return *failed;
  return success();
}

void shared_receives::post() noexcept {
  while (is_due()) {
    const std::uint32_t filled = batch_.fill(places(), refill_, [this](std::uint32_t place) {
      is_posted_.get()[place] = true;
      return first_shared_receive + place;
    });
    if (filled == 0) return;
    std::uint32_t count = filled;
    const int returned = batch_.post(places(), count, [this](auto* list, auto* rejected) {
      return ibv_post_srq_recv(queue_->native_handle(), list, rejected);
    });
    for (std::uint32_t i = count; i < filled; ++i)
      is_posted_.get()[place_of_shared_receive(batch_.request(i).wr_id)] = false;
    until_due_ += static_cast<int>(count);
    if (returned != 0) {
      failure_ = post_failure(returned, "ibv_post_srq_recv", 1, 1);
      return;
    }
    failure_.reset();
  }
}

}  // namespace verbspp::detail
