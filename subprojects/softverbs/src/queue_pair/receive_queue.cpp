// SPDX-License-Identifier: Apache-2.0
#include "queue_pair/receive_queue.hpp"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <utility>

namespace softverbs {

int receive_queue::grant(const device_limits& most, std::uint32_t& capacity,
                         std::uint32_t& entries) noexcept {
  if (capacity == 0 || capacity > most.work_requests || entries > most.gather_entries)
    return EINVAL;
  capacity = std::min(std::bit_ceil(capacity), most.work_requests);
  entries = std::max(entries, 1U);
  return 0;
}

int receive_queue::grant_shared(const device_limits& most, std::uint32_t& capacity,
                                std::uint32_t& entries) noexcept {
  const std::uint32_t asked = capacity;
  if (const int error = grant(most, capacity, entries)) return error;
  capacity = std::min(std::bit_ceil(asked + 1) - 1, most.work_requests);
  return 0;
}

receive_queue::receive_queue(std::uint32_t capacity, std::uint32_t max_entries,
                             protection_domain* domain)
    : capacity_(capacity),
      mask_(capacity == 0 ? 0 : std::bit_ceil(capacity) - 1),
      max_entries_(max_entries),
      ring_(capacity == 0 ? 0 : mask_ + 1, domain),
      entries_(capacity == 0 ? 0 : std::size_t{mask_ + 1} * max_entries, domain) {}

int receive_queue::post(const ibv_recv_wr& request) noexcept {
  if (request.num_sge < 0 || static_cast<std::uint32_t>(request.num_sge) > max_entries_)
    return EINVAL;
  if (head_ - freed_.load(std::memory_order_acquire) >= capacity_) return ENOMEM;
  const std::uint32_t place = head_++ & mask_;
  ibv_sge* entries = entries_.get() + std::size_t{place} * max_entries_;
  ring_[place] = {request.wr_id, 0, entries, static_cast<std::uint32_t>(request.num_sge)};
  std::copy_n(request.sg_list, request.num_sge, entries);
  for (int entry = 0; entry < request.num_sge; ++entry)
    ring_[place].length += request.sg_list[entry].length;
  return 0;
}

void receive_queue::change_places_with(receive_queue& other) noexcept {
  for (; !empty(); pop_at_once()) {
    ibv_recv_wr request{};
    request.wr_id = front().wr_id;
    request.sg_list = const_cast<ibv_sge*>(front().entries);
    request.num_sge = static_cast<int>(front().count);
    other.post(request);
  }
  const std::uint32_t waiting = other.size();
  other.reset();
  reset();
  std::swap(capacity_, other.capacity_);
  std::swap(mask_, other.mask_);
  std::swap(max_entries_, other.max_entries_);
  ring_.swap(other.ring_);
  entries_.swap(other.entries_);
  head_ = waiting;
}

}  // namespace softverbs
