// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "completion/completion_queue.hpp"
#include "device/configuration.hpp"
#include "memory/queue_array.hpp"

#include <infiniband/verbs.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace softverbs {

/// A queue of receives that wait for messages.
///
/// It is a ring with counters that only increase until a reset, in this order: freed <= next (to be
/// filled) <= head (posted).
class receive_queue {
 public:
  struct receive {
    std::uint64_t wr_id;
    std::uint64_t length;
    const ibv_sge* entries;
    std::uint32_t count;  ///< the number of entries
  };

  /// Rounds up the requested capacities. Returns 0, or EINVAL if the device doesn't support them.
  static int grant(const device_limits& most, std::uint32_t& capacity,
                   std::uint32_t& entries) noexcept;
  /// Rounds the capacity of a shared queue up to one less than a power of two, as some network
  /// cards do, but not beyond the device's limit. The capacities of completion queues are rounded
  /// in the same way.
  static int grant_shared(const device_limits& most, std::uint32_t& capacity,
                          std::uint32_t& entries) noexcept;

  receive_queue(std::uint32_t capacity, std::uint32_t max_entries, protection_domain* domain);

  /// Posts a receive. Returns 0 or an errno value.
  int post(const ibv_recv_wr& request) noexcept;
  std::uint32_t size() const noexcept { return head_ - next_; }
  bool empty() const noexcept { return size() == 0; }

  /// The receive that is filled next.
  const receive& front() const noexcept { return ring_[next_ & mask_]; }
  /// Removes the front receive. Its space becomes free once the completion `its` has been polled.
  void pop(completion& its) noexcept {
    its.freed = &freed_;
    its.frees_up_to = ++next_;
  }
  /// Removes the front receive, whose space becomes free immediately.
  void pop_at_once() noexcept { freed_.store(++next_, std::memory_order_release); }

  /// Drops all receives.
  void reset() noexcept { freed_ = next_ = head_ = 0; }
  /// Moves all receives to the memory of `other`, which must be empty and large enough. Then this
  /// queue uses that memory, and `other` becomes an empty queue in the previous memory.
  void change_places_with(receive_queue& other) noexcept;

  std::uint32_t capacity() const noexcept { return capacity_; }
  std::uint32_t max_entries() const noexcept { return max_entries_; }

 private:
  std::uint32_t capacity_;
  /// The mask of the ring, whose size is the capacity rounded up to a power of two.
  std::uint32_t mask_;
  std::uint32_t max_entries_;
  queue_array<receive, queue_content::receives> ring_;
  queue_array<ibv_sge, queue_content::receives> entries_;

  std::atomic<std::uint32_t> freed_{0};
  std::uint32_t next_ = 0;
  std::uint32_t head_ = 0;
};

}  // namespace softverbs
