// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/clock.hpp"
#include "base/extensible.hpp"
#include "completion/completion_counter.hpp"
#include "completion/completion_queue.hpp"
#include "faults/faults.hpp"
#include "machine/open_device.hpp"
#include "machine/port_traffic.hpp"
#include "queue_pair/request_batch.hpp"
#include "wire/address.hpp"
#include "wire/packet.hpp"

#include <infiniband/verbs.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>

namespace softverbs {

/// The parts that both halves of a queue pair use: its state and attributes, and its access to the
/// wire, to memory and to completion queues.
///
/// A queue pair has a lock, which protects all members, including those of both halves, unless
/// their comments say otherwise. Functions require it, unless their comments say otherwise. A
/// thread that changes the state, or sends packets, must hold the engine's lock, too.
class queue_pair_core : public extensible_qp, public served, protected work_queues {
 public:
  std::mutex& lock() noexcept { return lock_; }
  bool is_of_xrc() const noexcept {
    return qp_type == IBV_QPT_XRC_SEND || qp_type == IBV_QPT_XRC_RECV;
  }
  /// True for XRC queue pairs that only receive, into the shared receive queues that requests name.
  bool is_target() const noexcept { return qp_type == IBV_QPT_XRC_RECV; }
  bool is_reliable() const noexcept { return qp_type == IBV_QPT_RC || is_of_xrc(); }
  /// True if the messages are whole Ethernet frames.
  bool is_raw() const noexcept { return qp_type == IBV_QPT_RAW_PACKET; }
  bool is_connected() const noexcept { return qp_type != IBV_QPT_UD && !is_raw(); }
  ibv_qp_state now_in() const noexcept { return attributes_.qp_state; }
  const ibv_qp_attr& attributes() const noexcept { return attributes_; }
  const ibv_qp_init_attr& initial() const noexcept { return initial_; }

  // The next three functions require the queue pair's lock or the engine's lock. A change of their
  // values requires both locks.
  std::uint32_t peer() const noexcept final { return is_connected() ? attributes_.dest_qp_num : 0; }
  std::uint32_t domain() const noexcept final;
  station station_here() const noexcept final { return here_; }

  // The next five functions don't require the lock.
  bool usable() const noexcept { return owner_->usable(); }
  softverbs::engine& engine() const noexcept { return owner_->engine(); }
  softverbs::wire& wire() const noexcept { return owner_->machine().wire; }
  region_table& regions() const noexcept { return owner_->machine().regions; }
  const soft_device& device() const noexcept { return owner_->device(); }
  bool is_on_ethernet() const noexcept {
    return device().is_ethernet(std::max<unsigned>(attributes_.port_num, 1));
  }
  /// The maximum number of bytes in a message.
  std::uint32_t longest_message() const noexcept {
    if (is_connected()) return limits::message_bytes;
    return is_raw() ? device().longest_frame(attributes_.port_num)
                    : 128U << device().port(attributes_.port_num).mtu;
  }
  faults::place place() const noexcept { return {station_here(), qp_num}; }

  /// Enters the error state, in which all outstanding requests are flushed.
  void enter_error();
  /// Called after a send request has failed. If the service is unreliable, the queue pair enters
  /// SQE, in which the send queue is flushed, but messages can still be received. Otherwise, it
  /// enters ERR.
  void enter_send_error();
  /// Raises an event of the queue pair. For an XRC target, raises one for each `ibv_qp` through
  /// which the program has opened it.
  virtual void raise(ibv_event_type event);
  /// Called for each request packet that arrives in RTR. The first call raises
  /// IBV_EVENT_COMM_EST.
  void communication_established();
  /// Completes a work request. If `entry` has no owner, this queue pair becomes its owner. If the
  /// completion is lost, the queue pair fails.
  void complete(completion_queue& queue, completion entry);
  /// Attaches a counter to the operations whose bits are set in `operations`. Returns 0 or an errno
  /// value. Requires the engine's lock, too.
  int attach(completion_counter& counter, std::uint32_t operations) noexcept;
  /// Counts the completion of an operation, if a counter is attached.
  void count_completion(counted_operation what, ibv_wc_status status,
                        std::uint64_t bytes) const noexcept {
    if (!has_counters_) return;
    if (auto* const counter = counters_[static_cast<std::size_t>(what)])
      counter->count(status == IBV_WC_SUCCESS, bytes);
  }
  /// True if the calling thread is reading one of the queue pair's completion queues. Does not
  /// require the lock.
  bool is_being_read_here() const noexcept;
  /// Removes the queue pair's remaining completions from its completion queues. Requires only the
  /// engine's lock.
  void forget_completions() noexcept;
  /// Completes a request that was carried out directly, which means without packets. Does not
  /// require the engine's lock.
  void complete_directly(completion_queue& queue, completion entry);
  /// Updates the queue pair's entry in the tables that the peer, and other threads, read to carry
  /// out direct requests.
  void show() noexcept;
  /// Hides the queue pair's entry in the tables until `offer` is called, even if the state changes.
  void withdraw() noexcept;
  void offer() noexcept;
  void show_expected(std::uint32_t psn) noexcept;
  /// True if requests may now be carried out without packets, as far as this end knows.
  bool goes_directly() const noexcept;
  /// The tables of the peer's process; null if they aren't known yet, or can't be used.
  const published_tables* peer_tables() const noexcept { return peer_tables_; }
  /// If `peer_tables` isn't null: the peer's process, or null if it is this process.
  const remote_process* peer_process() const noexcept { return other_; }
  /// Makes all requests use packets, because the peer's memory can't be accessed directly.
  void refuse_directly() noexcept {
    peer_tables_ = nullptr;
    asks_peer_ = false;
  }
  /// Looks up the peer's tables, if they aren't known. Requires the engine's lock, too.
  void find_peer();
  /// True if the peer's tables still belong to the process `other`. Otherwise, makes all requests
  /// use packets.
  bool is_same_process(const remote_process& other) noexcept;
  /// Reads the data of a write from the memory of the peer's process. Returns false if that is not
  /// possible, or if the peer's queue pair or region has changed; by then, bytes may have been
  /// written. Requires the engine's lock, too.
  bool pull(const packet& incoming, std::byte* to);
  published_tables& tables() const noexcept { return *owner_->machine().tables; }
  const route& way() const noexcept { return route_; }
  /// Returns a header with this kind and packet sequence number, and the fields that are the same
  /// for all packets of this queue pair.
  packet_header header(packet_kind kind, std::uint32_t psn) const noexcept;
  /// Counts the traffic of the port: `bytes` that it has sent or received, and the packets that
  /// these bytes take: at least one, even for 0 bytes.
  void count(port_traffic::way which, std::uint64_t bytes) const noexcept;
  /// Counts the refusal of a message for which no receive was posted (RNR NAK).
  void count_refusal(port_traffic::way which) const noexcept;
  /// Sends a packet. If the result is `blocked`, `serve` is called when sending may succeed.
  sent send(const packet_header& header, const iovec* payload, std::size_t pieces, turn when,
            payload_of whose = payload_of::program);

 protected:
  /// A queue pair that receives for XRC has no domain.
  queue_pair_core(open_device& owner, protection_domain* domain,
                  const ibv_qp_init_attr& attributes);
  queue_pair_core(const queue_pair_core&) = delete;
  queue_pair_core& operator=(const queue_pair_core&) = delete;
  ~queue_pair_core();

  void completion_lost();
  /// Takes the lock.
  void late_completion_lost() override;

  /// Sets the peer's process, or null for none.
  void set_peer(std::shared_ptr<const remote_process> process) noexcept;
  /// Sets `here_`. Must be called after the port has changed.
  void find_here() noexcept {
    here_ = station_of(device().number, std::max<unsigned>(attributes_.port_num, 1));
  }

  // The members that a direct request accesses come first, so that they share few cache lines. With
  // thousands of queue pairs, each of these lines has to be loaded from memory. Queue pairs are not
  // aligned to cache lines, because the alignment made direct requests slower by a tenth: distances
  // between successive allocations varied, so that the processor could not prefetch the next queue
  // pair.
  std::mutex lock_;
  open_device* owner_;
  const published_tables* peer_tables_ = nullptr;
  const remote_process* other_ = nullptr;  ///< equal to `peer_process_`
  nanoseconds seen_peer_ = 0;              ///< when the peer's process was last verified
  route route_;                            ///< to the peer
  station here_{};
  /// True if `find_peer` may look up the peer's tables.
  bool asks_peer_ = false;
  bool established_ = false;
  bool withdrawn_ = false;
  /// True if a completion was lost, and the engine has not yet put the queue pair into the error
  /// state.
  bool overrun_ = false;
  bool has_counters_ = false;

 public:
  /// The requests that are built with ibv_wr_start; null if the queue pair doesn't support this.
  std::unique_ptr<request_batch> batch;

 protected:
  // Direct writes access only members at the beginning of this structure, such as the state and the
  // number of the peer's queue pair.
  ibv_qp_attr attributes_{};
  // The following members are rarely accessed.
  ibv_qp_init_attr initial_;
  std::shared_ptr<const remote_process> peer_process_;
  std::array<completion_counter*, counted_operations> counters_{};
};

}  // namespace softverbs
