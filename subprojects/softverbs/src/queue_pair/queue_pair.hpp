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

/// What a program has of a domain of XRC.
struct xrc_opening final : ibv_xrcd {
  xrc_domain* domain = nullptr;
  /// Made through it, and keep it busy.
  unsigned children = 0;
};

/// A queue pair: its state and attributes, and the two halves that do its work.
class queue_pair final : public queue_pair_core {
 public:
  /// What only receives for XRC has no domain of protection, but one of XRC.
  queue_pair(open_device& owner, protection_domain* domain, const ibv_qp_init_attr& attributes,
             xrc_domain* receives_for = nullptr);
  /// One that spreads frames, from the beginning: it has no states to go through.
  queue_pair(open_device& owner, protection_domain& domain, const ibv_qp_init_attr& attributes,
             const frame_spreading& how);
  ~queue_pair();

  /// As ibv_modify_qp: 0 or an errno, and then nothing has changed.
  int modify(const ibv_qp_attr& asked, int mask);
  void query(ibv_qp_attr& attributes, ibv_qp_init_attr& initial) const noexcept;

  /// Null if it receives what comes in itself.
  const frame_spreading* spreading() const noexcept { return spreading_.get(); }
  /// Whether sends may be posted.
  bool takes_sends() const noexcept {
    return now_in() != IBV_QPS_RESET && now_in() != IBV_QPS_INIT && now_in() != IBV_QPS_RTR;
  }

  // All of these take the lock.
  void on_packet(const packet& incoming) override;
  void on_deadline(nanoseconds time) override;
  bool serve() override;

  /// Gets a number, by which packets find it; 0 or an errno. Under the engine's lock alone.
  int enter_machine();
  /// Says what the peer must still hear, and is out of the machine. Under the engine's lock; takes
  /// its own.
  void leave_machine();

  // Of what receives for XRC, by whoever has it open; the engine's lock protects them.
  void open_by(xrc_target& target) { open_.push_back(&target); }
  /// False if that was the last one. Under its lock, too: it may pass to the next one's device.
  bool closed_by(const xrc_target& target) noexcept;
  void raise(ibv_event_type event) override;

  requester requests;
  responder responses;
  /// Of a thread that builds; null if there is none. Without the lock.
  session* building() const noexcept { return batch ? &batch->building : nullptr; }

  /// The engine's lock protects it.
  unsigned async_events_reported = 0;

 private:
  /// A packet by itself, which others may come before.
  struct kept_packet {
    explicit kept_packet(const packet& incoming)
        : payload(incoming.payload, incoming.payload + incoming.header.payload),
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

  /// Until the next one came.
  std::unique_ptr<kept_packet> swapped_;
  std::vector<xrc_target*> open_;
  std::unique_ptr<const frame_spreading> spreading_;
};

/// What a program has of a queue pair that receives for XRC, which any number of programs' objects
/// may stand for. It is destroyed with the last of them.
struct xrc_target final : ibv_qp {
  xrc_target(open_device& owner, queue_pair& pair, xrc_opening& domain,
             void* user_context) noexcept;
  xrc_target(const xrc_target&) = delete;
  xrc_target& operator=(const xrc_target&) = delete;
  ~xrc_target();

  open_device& owner;
  queue_pair& pair;
  xrc_opening& domain;
  /// The engine's lock protects it.
  unsigned async_events_reported = 0;
};

/// The queue pair that an object of a program stands for.
inline queue_pair& behind(ibv_qp* object) noexcept {
  return object->qp_type == IBV_QPT_XRC_RECV ? static_cast<xrc_target*>(object)->pair
                                             : *static_cast<queue_pair*>(object);
}

}  // namespace softverbs
