// SPDX-License-Identifier: Apache-2.0
#pragma once

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

/// What both halves of a queue pair work with: its state and attributes, and the ways to the wire,
/// to memory and to its completion queues.
///
/// A queue pair has a lock, which protects all of it that doesn't say otherwise, with both of its
/// halves; the functions that take it themselves say so. Whoever changes the state has the engine's
/// lock as well, and so has the one that sends packets.
class queue_pair_core : public extensible_qp, public served, protected work_queues {
 public:
  std::mutex& lock() noexcept { return lock_; }
  bool is_of_xrc() const noexcept {
    return qp_type == IBV_QPT_XRC_SEND || qp_type == IBV_QPT_XRC_RECV;
  }
  /// Of XRC, what only receives: into shared receive queues, which each request names.
  bool is_target() const noexcept { return qp_type == IBV_QPT_XRC_RECV; }
  bool is_reliable() const noexcept { return qp_type == IBV_QPT_RC || is_of_xrc(); }
  /// Whole frames of Ethernet.
  bool is_raw() const noexcept { return qp_type == IBV_QPT_RAW_PACKET; }
  bool is_connected() const noexcept { return qp_type != IBV_QPT_UD && !is_raw(); }
  ibv_qp_state now_in() const noexcept { return attributes_.qp_state; }
  const ibv_qp_attr& attributes() const noexcept { return attributes_; }
  const ibv_qp_init_attr& initial() const noexcept { return initial_; }

  // Under the engine's lock.
  std::uint32_t peer() const noexcept final { return is_connected() ? attributes_.dest_qp_num : 0; }
  std::uint32_t domain() const noexcept final;
  station station_here() const noexcept final { return here_; }

  // Without the lock.
  bool usable() const noexcept { return owner_->usable(); }
  softverbs::engine& engine() const noexcept { return owner_->engine(); }
  softverbs::wire& wire() const noexcept { return owner_->machine().wire; }
  region_table& regions() const noexcept { return owner_->machine().regions; }
  const soft_device& device() const noexcept { return owner_->device(); }
  bool is_on_ethernet() const noexcept {
    return device().is_ethernet(std::max<unsigned>(attributes_.port_num, 1));
  }
  /// The most bytes that it sends in one request.
  std::uint32_t longest_message() const noexcept {
    if (is_connected()) return limits::message_bytes;
    return is_raw() ? device().longest_frame(attributes_.port_num)
                    : 128U << device().port(attributes_.port_num).mtu;
  }
  faults::place place() const noexcept { return {station_here(), qp_num}; }

  /// Everything outstanding will be flushed.
  void enter_error();
  /// After a request failed: the send queue will be flushed. What comes in is still
  /// received where the service is not reliable.
  void enter_send_error();
  /// Everybody who has it open is told.
  virtual void raise(ibv_event_type event);
  /// The first packet came in while the program is still on its way to RTS.
  void communication_established();
  /// Completes a work request, of this queue pair if it has no owner. If the completion is lost, so
  /// is the queue pair.
  void complete(completion_queue& queue, completion entry);
  /// Attaches a counter to operations, as bits; 0 or an errno. Under the engine's lock, too.
  int attach(completion_counter& counter, std::uint32_t operations) noexcept;
  /// Tells the attached counter, if there is one, that an operation has completed.
  void count_completion(counted_operation what, ibv_wc_status status,
                        std::uint64_t bytes) const noexcept {
    if (!has_counters_) return;
    if (auto* const counter = counters_[static_cast<std::size_t>(what)])
      counter->count(status == IBV_WC_SUCCESS, bytes);
  }
  /// Whether this thread is reading one of its completion queues.
  bool is_being_read_here() const noexcept;
  /// What is left of it in its completion queues goes.
  void forget_completions() noexcept;
  /// Completes a request that was carried out directly: without the engine's lock.
  void complete_directly(completion_queue& queue, completion entry);
  /// Tells the peer, and whoever else looks, as what this queue pair takes direct requests now.
  void show() noexcept;
  /// From here on nothing is shown, whatever happens, until it is offered again.
  void withdraw() noexcept;
  void offer() noexcept;
  void show_expected(std::uint32_t psn) noexcept;
  /// Whether requests may be carried out directly now, as far as this end knows.
  bool goes_directly() const noexcept;
  /// The tables of the peer's process; null as long as there are none.
  const published_tables* peer_tables() const noexcept { return peer_tables_; }
  /// The peer's process; null if that is this one.
  const remote_process* peer_process() const noexcept { return other_; }
  /// Its memory can't be accessed from here: all goes as packets.
  void refuse_directly() noexcept {
    peer_tables_ = nullptr;
    asks_peer_ = false;
  }
  /// Looks whether the peer has tables now. Under the engine's lock, too.
  void find_peer();
  published_tables& tables() const noexcept { return *owner_->machine().tables; }
  const route& way() const noexcept { return route_; }
  /// A header with all that is the same for each packet of this queue pair.
  packet_header header(packet_kind kind, std::uint32_t psn) const noexcept;
  /// Adds bytes that the port has sent or received to its counters, as one packet at least.
  void count(port_traffic::way which, std::uint64_t bytes) const noexcept;
  /// Blocked: `serve` is called when it may work again.
  sent send(const packet_header& header, const iovec* payload, std::size_t pieces, turn when,
            payload_of whose = payload_of::program);

 protected:
  /// What only receives for XRC has no domain.
  queue_pair_core(open_device& owner, protection_domain* domain,
                  const ibv_qp_init_attr& attributes);
  queue_pair_core(const queue_pair_core&) = delete;
  queue_pair_core& operator=(const queue_pair_core&) = delete;
  ~queue_pair_core();

  void completion_lost();
  /// Takes the lock.
  void late_completion_lost() override;

  /// With or without a process, for good.
  void set_peer(std::shared_ptr<const remote_process> process) noexcept;
  /// After the port has changed.
  void find_here() noexcept {
    here_ = station_of(device().number, std::max<unsigned>(attributes_.port_num, 1));
  }

  // What a direct request looks at comes first: with thousands of queue pairs, each cache line is
  // one that has to be fetched. They aren't aligned to such lines: then they would lie at changing
  // distances, and processors, which fetch ahead at constant ones, be slower by a tenth.
  std::mutex lock_;
  open_device* owner_;
  const published_tables* peer_tables_ = nullptr;
  const remote_process* other_ = nullptr;  ///< that of `peer_process_`
  route route_;                            ///< to the peer
  station here_{};
  /// There may be tables of the peer some day.
  bool asks_peer_ = false;
  bool established_ = false;
  bool withdrawn_ = false;
  /// A completion was lost of which the engine doesn't know yet.
  bool overrun_ = false;
  bool has_counters_ = false;

 public:
  /// For requests that are built by function calls.
  std::unique_ptr<request_batch> batch;

 protected:
  // Of these, state and the peer's number, which stand at their beginning.
  ibv_qp_attr attributes_{};
  // What is only looked at now and then.
  ibv_qp_init_attr initial_;
  std::shared_ptr<const remote_process> peer_process_;
  std::array<completion_counter*, counted_operations> counters_{};
};

}  // namespace softverbs
