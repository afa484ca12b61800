// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "completion/completion_queue.hpp"
#include "faults/faults.hpp"
#include "machine/open_device.hpp"
#include "queue_pair/receive_queue.hpp"

#include <infiniband/verbs.h>

#include <cstdint>
#include <mutex>

namespace softverbs {

struct packet;
struct protection_domain;

/// A queue of receives for frames. A queue pair spreads its frames over several of these queues.
/// Like a queue pair, each queue has a number, which its completions contain, and by which the
/// engine finds the queue.
///
/// Like a queue pair, it has a lock, which protects its state and its receives. A thread that
/// changes the state must hold the engine's lock, too.
class receive_work_queue final : public ibv_wq, public served, private work_queues {
 public:
  /// `attributes` must contain the capacities that were granted.
  receive_work_queue(open_device& owner, protection_domain& domain,
                     const ibv_wq_init_attr& attributes);
  receive_work_queue(const receive_work_queue&) = delete;
  receive_work_queue& operator=(const receive_work_queue&) = delete;
  ~receive_work_queue();

  /// Registers the queue with the engine, which assigns its number (`wq_num`). Returns 0 or an
  /// errno value. The caller must hold the engine's lock, and no other.
  int enter_machine();

  /// Posts the receives up to the first one that can't be posted, which is returned in `bad`.
  /// Returns 0 or an errno value.
  int post(ibv_recv_wr* request, ibv_recv_wr** bad) noexcept;
  /// Implements ibv_modify_wq. Returns 0 or an errno value. After an error, nothing has changed.
  /// Requires the engine's lock.
  int modify(const ibv_wq_attr& asked);
  /// Receives a frame. Requires the engine's lock.
  void take(const packet& frame);
  /// Removes the queue's remaining completions from its completion queue.
  void forget_completions() noexcept { completions().forget(*this, false); }
  completion_queue& completions() const noexcept { return *static_cast<completion_queue*>(cq); }

  // Called by the engine.
  void on_packet(const packet&) override {}
  void on_deadline(nanoseconds) override {}
  bool serve() override;
  std::uint32_t peer() const noexcept override { return 0; }
  std::uint32_t domain() const noexcept override;
  station station_here() const noexcept override { return 0; }

  // The engine's lock protects these counters.
  unsigned tables = 0;
  unsigned async_events_reported = 0;

 private:
  void late_completion_lost() override;
  // The next functions require the lock.
  void complete(ibv_wc_status status, const packet* frame, const faults::verdict& fault = {});
  void fail(ibv_wc_status status, const faults::verdict& fault = {});
  void completion_lost();
  void enter_error();

  open_device& owner_;
  std::mutex lock_;
  receive_queue waiting_;
  /// The actual state. `ibv_wq::state` is the state that a program has last requested.
  ibv_wq_state now_in_ = IBV_WQS_RESET;
};

}  // namespace softverbs
