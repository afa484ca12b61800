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

/// Receives of its own for frames, which queue pairs spread over several such queues. It has a
/// number, as they have: completions tell it, and it is by that that it is served.
///
/// Has a lock, as a queue pair has, which its functions take. Whoever changes the state has the
/// engine's lock as well.
class receive_work_queue final : public ibv_wq, public served, private work_queues {
 public:
  /// Of what was granted.
  receive_work_queue(open_device& owner, protection_domain& domain,
                     const ibv_wq_init_attr& attributes);
  receive_work_queue(const receive_work_queue&) = delete;
  receive_work_queue& operator=(const receive_work_queue&) = delete;
  ~receive_work_queue();

  /// Gets a number; 0 or an errno. Under the engine's lock alone.
  int enter_machine();

  /// All that is posted from here to the first that can't be, which is told in `bad`; 0 or an
  /// errno.
  int post(ibv_recv_wr* request, ibv_recv_wr** bad) noexcept;
  /// As ibv_modify_wq: 0 or an errno, and then nothing has changed. Under the engine's lock.
  int modify(const ibv_wq_attr& asked);
  /// A frame that is for it. Under the engine's lock.
  void take(const packet& frame);
  /// What is left of it in its completion queue goes.
  void forget_completions() noexcept { completions().forget(*this, false); }
  completion_queue& completions() const noexcept { return *static_cast<completion_queue*>(cq); }

  // As part of the engine's work.
  void on_packet(const packet&) override {}
  void on_deadline(nanoseconds) override {}
  bool serve() override;
  std::uint32_t peer() const noexcept override { return 0; }
  std::uint32_t domain() const noexcept override;
  station station_here() const noexcept override { return 0; }

  // The engine's lock protects these.
  unsigned tables = 0;
  unsigned async_events_reported = 0;

 private:
  void late_completion_lost() override;
  // Under the lock.
  void complete(ibv_wc_status status, const packet* frame, const faults::verdict& fault = {});
  void fail(ibv_wc_status status, const faults::verdict& fault = {});
  void completion_lost();
  void enter_error();

  open_device& owner_;
  std::mutex lock_;
  receive_queue waiting_;
  /// What ibv_wq says is what a program has asked for last.
  ibv_wq_state now_in_ = IBV_WQS_RESET;
};

}  // namespace softverbs
