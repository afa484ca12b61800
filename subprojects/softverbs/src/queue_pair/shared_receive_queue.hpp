// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "completion/completion_queue.hpp"
#include "queue_pair/receive_queue.hpp"

#include <infiniband/verbs.h>

#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

namespace softverbs {

class open_device;
struct protection_domain;
struct xrc_opening;

/// The additional members of an XRC shared receive queue.
struct xrc_part {
  xrc_opening* domain = nullptr;
  /// The completion queue of this queue's receives.
  completion_queue* completions = nullptr;
  std::uint32_t number = 0;
};

/// A queue of receives for several queue pairs. Its own lock protects the receives and the limit.
class shared_receive_queue final : public ibv_srq, public work_queues {
 public:
  shared_receive_queue(open_device& owner, protection_domain& domain, const ibv_srq_attr& granted,
                       void* user_context);
  shared_receive_queue(const shared_receive_queue&) = delete;
  shared_receive_queue& operator=(const shared_receive_queue&) = delete;
  ~shared_receive_queue();

  int post(const ibv_recv_wr& request) noexcept;

  /// Removes and returns the next receive, whose entries are copied to `entries`. Returns nothing
  /// if there is none.
  std::optional<receive_queue::receive> take(std::vector<ibv_sge>& entries);

  // `modify` and `query` implement ibv_modify_srq and ibv_query_srq.
  int modify(const ibv_srq_attr& asked, int mask);
  ibv_srq_attr query() noexcept;

  bool is_of_xrc() const noexcept { return xrc.domain != nullptr; }

  /// Used by XRC queues only, and not changed after their creation.
  xrc_part xrc;
  // The engine's lock protects these counters.
  unsigned queue_pairs = 0;
  unsigned async_events_reported = 0;

 private:
  ibv_srq_attr attributes() const noexcept;
  // Does nothing, because the queue pair that received the message may no longer exist. The loss is
  // reported for the completion queue (IBV_EVENT_CQ_ERR).
  void late_completion_lost() override {}

  open_device& owner_;
  std::mutex lock_;
  receive_queue waiting_;
  /// When fewer receives than this are left, the program is notified, once.
  std::uint32_t limit_ = 0;
};

}  // namespace softverbs
