// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/newer_verbs.hpp"
#include "faults/faults.hpp"
#include "queue_pair/receive_memory.hpp"
#include "queue_pair/receive_queue.hpp"
#include "wire/packet.hpp"

#include <infiniband/verbs.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace softverbs {

class queue_pair_core;
class shared_receive_queue;
struct packet;
struct xrc_domain;

/// The half of a queue pair that carries out what its peer asks for, and that
/// fills receives.
class responder {
 public:
  /// Of XRC, with the domain whose shared receive queues requests may name; else with null.
  responder(queue_pair_core& pair, const ibv_qp_init_attr& granted, const xrc_domain* receives_for);

  /// As ibv_post_recv, the state being right.
  int post(const ibv_recv_wr& request) noexcept { return own_.post(request); }
  void on_request(const packet& incoming);
  /// Or a frame.
  void on_datagram(const packet& incoming);
  /// Sends the answers that are due. False if some have to wait.
  bool answer();
  void flush();
  void reset() noexcept;
  /// A shared receive queue of XRC goes; what it has of a message goes with it.
  void forget(const shared_receive_queue& queue) noexcept;
  /// Hands an acknowledgement or refusal that is due to the wire.
  void leave_answer();

  void expect_psn(std::uint32_t psn) noexcept;
  std::uint32_t expected_psn() const noexcept { return expected_; }

 private:
  /// What a peer waits for to come back: what it reads, the value before an atomic, or that an
  /// atomic write is done. Or what it got lately, and may ask for again.
  struct fetch {
    packet_kind kind;
    std::uint64_t address;
    std::uint32_t rkey;
    std::uint32_t domain;  ///< the number of the one whose memory it may touch
    std::uint64_t length;
    std::uint32_t answer;  ///< bytes that go back
    unsigned right;
    std::uint32_t psn;
    atomic_operands operands;
    std::optional<std::uint64_t> value;  ///< the atomic's, once that has been carried out
    std::uint32_t answered;

    /// A read of nothing needs no key.
    bool touches_memory() const noexcept {
      return length != 0 || kind != packet_kind::read_request;
    }
    bool flushes_region() const noexcept {
      return kind == packet_kind::flush && operands.compare_or_add >> 8 == newer::flush_region;
    }
  };
  /// The message whose packets are coming in.
  struct message {
    packet_kind kind{};
    bool open = false;
    std::uint32_t arrived = 0;
    std::uint32_t length = 0;  ///< write
    std::uint32_t rkey = 0;
    std::uint64_t address = 0;
    std::uint32_t shared_queue = 0;
  };

  void on_duplicate(const packet_header& header);
  void on_send(const packet& incoming);
  void on_write(const packet& incoming);
  void on_fetch(const packet& incoming);
  /// Completes it by what its operands say; false if that is nonsense.
  bool understands(fetch& wanted) const noexcept;
  bool is_expected(const packet_header& header);
  /// Of XRC: the shared receive queue that a request names becomes this one's. False if there is
  /// none of that number in the domain.
  bool turn_to(std::uint32_t shared_queue) noexcept;
  /// The number of the domain that requests may touch the memory of, now.
  std::uint32_t domain() const noexcept;
  bool continues(const packet_header& header) noexcept;
  /// Whether there is a receive to be filled; takes one if they are shared.
  bool has_receive();
  const receive_queue::receive& current() const noexcept {
    return shared_ == nullptr ? own_.front() : *taken_;
  }
  receive_memory current_memory() const noexcept;
  void took(const packet_header& header);
  /// A message has come in completely. False if that fails.
  bool receive_message(ibv_wc_opcode opcode, std::uint32_t bytes, const packet_header& header);
  void complete_receive(ibv_wc_status status, ibv_wc_opcode opcode, std::uint32_t bytes,
                        const packet_header* header, const faults::verdict& fault = {});
  /// Where nobody waits for answers, the message is dropped instead.
  void refuse(refusal reason);
  void refuse_for_good(refusal reason, ibv_event_type event);
  /// It is the program's fault that the message can't be received.
  void fail_receive(ibv_wc_status status, refusal reason, ibv_event_type event,
                    const faults::verdict& fault = {});
  packet_header refusal_header() const noexcept;
  packet_header acknowledgement() const noexcept;
  bool answer_fetch(fetch& wanted);
  /// With null if the memory may not be used, or not any more.
  std::span<std::byte> memory_of(const fetch& wanted) const noexcept;
  void* source_of(fetch& wanted) noexcept;

  queue_pair_core& pair_;
  receive_queue own_;
  /// Null, or instead of the own one. Of XRC, what the last request named, while it is there.
  shared_receive_queue* shared_;
  const xrc_domain* receives_for_;
  /// Of the shared one. A message that is dropped leaves it to the next one.
  std::optional<receive_queue::receive> taken_;
  std::vector<ibv_sge> taken_entries_;
  bool told_last_ = false;

  std::uint32_t expected_ = 0;  ///< the packet sequence number that comes next
  message message_;
  bool acknowledge_due_ = false;
  unsigned unacknowledged_ = 0;
  /// Refused once, and not heard again of since: the rest is dropped silently.
  bool refused_ = false;
  refusal refusal_due_ = refusal::none;
  std::uint32_t refused_psn_ = 0;

  static constexpr std::uint32_t most_fetches = 32;
  /// Null before the first one: many queue pairs never get any.
  std::unique_ptr<std::array<fetch, most_fetches>> fetches_;
  fetch& fetch_at(std::uint32_t number) noexcept { return (*fetches_)[number % most_fetches]; }
  std::uint32_t first_fetch_ = 0;  ///< not answered yet
  std::uint32_t end_fetch_ = 0;
};

}  // namespace softverbs
