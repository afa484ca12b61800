// SPDX-License-Identifier: Apache-2.0
#include "queue_pair/shared_receive_queue.hpp"

#include "machine/open_device.hpp"
#include "memory/protection_domain.hpp"

#include <cerrno>

namespace softverbs {

shared_receive_queue::shared_receive_queue(open_device& owner, protection_domain& domain,
                                           const ibv_srq_attr& granted, void* user_context)
    : ibv_srq{}, owner_(owner), waiting_(granted.max_wr, granted.max_sge, &domain) {
  context = &owner.verbs();
  srq_context = user_context;
  pd = &domain;
  ::pthread_mutex_init(&mutex, nullptr);
  ::pthread_cond_init(&cond, nullptr);
}

shared_receive_queue::~shared_receive_queue() {
  ::pthread_cond_destroy(&cond);
  ::pthread_mutex_destroy(&mutex);
}

int shared_receive_queue::post(const ibv_recv_wr& request) noexcept {
  const std::lock_guard held(lock_);
  return waiting_.post(request);
}

std::optional<receive_queue::receive> shared_receive_queue::take(std::vector<ibv_sge>& entries) {
  const std::lock_guard held(lock_);
  if (waiting_.empty()) return std::nullopt;
  receive_queue::receive taken = waiting_.front();
  entries.assign(taken.entries, taken.entries + taken.count);
  taken.entries = entries.data();
  waiting_.pop_at_once();
  if (waiting_.size() < limit_) {
    limit_ = 0;
    ibv_async_event event{};
    event.event_type = IBV_EVENT_SRQ_LIMIT_REACHED;
    event.element.srq = this;
    owner_.async_events().push(event);
  }
  return taken;
}

int shared_receive_queue::modify(const ibv_srq_attr& asked, int mask) {
  if ((mask & ~(IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT)) != 0) return EINVAL;
  // The queue's old entries may come from the program's allocator, and must be freed without the
  // lock. So this variable, which will hold the old entries, is declared before the lock is taken.
  std::optional<receive_queue> resized;
  if ((mask & IBV_SRQ_MAX_WR) != 0) {
    ibv_srq_attr granted = query();
    granted.max_wr = asked.max_wr;
    if (const int error =
            receive_queue::grant_shared(owner_.device().most(), granted.max_wr, granted.max_sge))
      return error;
    resized.emplace(granted.max_wr, granted.max_sge, static_cast<protection_domain*>(pd));
  }
  const std::lock_guard held(lock_);
  // The current values are read again under the lock, because they may have changed since `query`:
  // the limit may have been reached, or another thread may have modified the queue.
  ibv_srq_attr next = attributes();
  if (resized) next.max_wr = resized->capacity();
  if ((mask & IBV_SRQ_LIMIT) != 0) next.srq_limit = asked.srq_limit;
  if (next.srq_limit > next.max_wr || waiting_.size() > next.max_wr) return EINVAL;
  if (resized) waiting_.change_places_with(*resized);
  limit_ = next.srq_limit;
  return 0;
}

ibv_srq_attr shared_receive_queue::query() noexcept {
  const std::lock_guard held(lock_);
  return attributes();
}

ibv_srq_attr shared_receive_queue::attributes() const noexcept {
  return {waiting_.capacity(), waiting_.max_entries(), limit_};
}

}  // namespace softverbs
