// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "queue_pair/queue_pair_core.hpp"
#include "queue_pair/requester.hpp"
#include "queue_pair/responder.hpp"
#include "wire/wire.hpp"

#include <infiniband/verbs.h>

#include <cstddef>
#include <memory>
#include <vector>

namespace softverbs {

struct frame_spreading;
struct xrc_domain;
struct xrc_target;

/// The program's handle to an XRC domain.
struct xrc_opening final : ibv_xrcd {
  xrc_domain* domain = nullptr;
  /// The number of objects created through this handle; while there are any, the handle can't be
  /// closed.
  unsigned children = 0;
};

/// A queue pair: its state and attributes, and the two halves that do its work.
class queue_pair final : public queue_pair_core {
 public:
  /// A queue pair that receives for XRC has an XRC domain instead of a protection domain.
  queue_pair(open_device& owner, protection_domain* domain, const ibv_qp_init_attr& attributes,
             xrc_domain* receives_for = nullptr);
  /// Creates a queue pair that spreads frames. It is ready immediately, without transitions.
  queue_pair(open_device& owner, protection_domain& domain, const ibv_qp_init_attr& attributes,
             const frame_spreading& how);
  ~queue_pair();

  /// Implements ibv_modify_qp. Returns 0 or an errno value. After an error, nothing has changed.
  int modify(const ibv_qp_attr& asked, int mask);
  void query(ibv_qp_attr& attributes, ibv_qp_init_attr& initial) const noexcept;

  /// The configuration of a queue pair that spreads frames; null for all other queue pairs.
  const frame_spreading* spreading() const noexcept { return spreading_.get(); }
  /// True if sends may be posted.
  bool takes_sends() const noexcept {
    return now_in() != IBV_QPS_RESET && now_in() != IBV_QPS_INIT && now_in() != IBV_QPS_RTR;
  }

  // The next functions take the lock.
  void on_packet(const packet& incoming) override;
  void on_deadline(nanoseconds time) override;
  bool serve() override;

  /// Registers the queue pair with the engine, which assigns its number (`qp_num`). Returns 0 or an
  /// errno value. The caller must hold the engine's lock, and no other.
  int enter_machine();
  /// Calls `responder::leave_answer`, and removes the queue pair from the machine. Requires the
  /// engine's lock, and takes the queue pair's lock.
  void leave_machine();

  // The next two functions are for XRC receive queue pairs, to which several objects may refer. The
  // caller must hold the engine's lock.
  void open_by(xrc_target& target) { open_.push_back(&target); }
  /// Removes `target`. Returns false if no other object refers to the queue pair. Otherwise,
  /// returns true, and the queue pair moves to the context of another object. The caller must hold
  /// the queue pair's lock, too.
  bool closed_by(const xrc_target& target) noexcept;
  void raise(ibv_event_type event) override;

  requester requests;
  responder responses;
  /// The session of a thread that builds requests with ibv_wr_start; null if the queue pair doesn't
  /// support this. Does not require the lock.
  session* building() const noexcept { return batch ? &batch->building : nullptr; }

  /// Protected by the engine's lock.
  unsigned async_events_reported = 0;

 private:
  /// A copy of a packet, which can be processed later, or twice.
  struct kept_packet {
    explicit kept_packet(const packet& incoming)
        : payload(incoming.payload, incoming.payload + carried_bytes(incoming.header)),
          what{incoming.header, payload.data()} {}
    kept_packet(const kept_packet&) = delete;
    kept_packet& operator=(const kept_packet&) = delete;

    std::vector<std::byte> payload;
    packet what;
  };
  void take_in(const packet& incoming);
  void take_answer(const packet& incoming);
  bool takes_mtu(ibv_mtu mtu) const noexcept;
  int check_values(const ibv_qp_attr& asked, int mask) const noexcept;
  void apply(const ibv_qp_attr& asked, int mask);
  void enter(ibv_qp_state next);
  bool hears() const noexcept;
  bool is_from_peer(const packet_header& header) const noexcept;
  bool is_for_us(const packet_header& header) const noexcept;

  /// A packet that the fault `swapped` holds back until the next one has arrived.
  std::unique_ptr<kept_packet> swapped_;
  std::vector<xrc_target*> open_;
  std::unique_ptr<const frame_spreading> spreading_;
};

/// The program's object for an XRC receive queue pair. Any number of objects may refer to the queue
/// pair, which is destroyed with the last one.
struct xrc_target final : ibv_qp {
  xrc_target(open_device& owner, queue_pair& pair, xrc_opening& domain,
             void* user_context) noexcept;
  xrc_target(const xrc_target&) = delete;
  xrc_target& operator=(const xrc_target&) = delete;
  ~xrc_target();

  open_device& owner;
  queue_pair& pair;
  xrc_opening& domain;
  /// Protected by the engine's lock.
  unsigned async_events_reported = 0;
};

/// Returns the queue pair that a program's object refers to.
inline queue_pair& behind(ibv_qp* object) noexcept {
  return object->qp_type == IBV_QPT_XRC_RECV ? static_cast<xrc_target*>(object)->pair
                                             : *static_cast<queue_pair*>(object);
}

}  // namespace softverbs
