// SPDX-License-Identifier: Apache-2.0
#include "quirks/rxe.hpp"

#include <atomic>
#include <utility>

namespace verbspp::detail {

namespace {

using ending = void (*)(ibv_cq_ex*);
std::atomic<ending> rxe_end{nullptr};
/// True if the polling session of this thread has already ended; sessions do not nest.
thread_local bool has_session_ended = false;

int next_poll(ibv_cq_ex* polled) {
  rxe_end.load(std::memory_order_relaxed)(polled);
  ibv_poll_cq_attr attributes{};
  const int returned = polled->start_poll(polled, &attributes);
  has_session_ended = returned != 0;
  return returned;
}

void end_poll(ibv_cq_ex* polled) {
  if (!std::exchange(has_session_ended, false)) rxe_end.load(std::memory_order_relaxed)(polled);
}

}  // namespace

bool is_rxe(const ibv_device_attr& device) noexcept {
  // Linux's software driver reports this vendor and part.
  return device.vendor_id == 0xffffff && device.vendor_part_id == 0;
}

bool may_invalidate_windows(const ibv_device_attr& device) noexcept { return !is_rxe(device); }

bool retries_without_end(const ibv_device_attr& device, std::uint8_t count) noexcept {
  return count == 7 && is_rxe(device);
}

void mend_rxe_sessions(ibv_cq_ex& queue) noexcept {
  if (queue.end_poll == end_poll) return;
  rxe_end = queue.end_poll;
  queue.next_poll = next_poll;
  queue.end_poll = end_poll;
}

}  // namespace verbspp::detail
