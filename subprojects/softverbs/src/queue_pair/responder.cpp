// SPDX-License-Identifier: Apache-2.0
#include "queue_pair/responder.hpp"

#include "base/newer_verbs.hpp"
#include "base/user_memory.hpp"
#include "machine/xrc_domains.hpp"
#include "memory/protection_domain.hpp"
#include "queue_pair/queue_pair_core.hpp"
#include "queue_pair/remote_atomic.hpp"
#include "queue_pair/shared_receive_queue.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace softverbs {
namespace {

constexpr unsigned answers_per_turn = 16;

/// The number of packets after which a long message is acknowledged, so that the requester sees
/// progress.
constexpr unsigned packets_per_acknowledgement = 8;

/// Sets the fields that describe the sender of a datagram.
void describe_sender(const packet_header& header, bool ethernet, ibv_wc& completion) noexcept {
  completion.src_qp = header.source_qpn;
  completion.sl = header.service_level;
  if ((header.flags & packet_flag::global) != 0) completion.wc_flags |= IBV_WC_GRH;
  if (!ethernet) completion.slid = lid_of(header.source);
}

}  // namespace

void responder::expect_psn(std::uint32_t psn) noexcept {
  expected_ = psn;
  pair_.show_expected(psn);
}

responder::responder(queue_pair_core& pair, const ibv_qp_init_attr& granted,
                     const xrc_domain* receives_for)
    : pair_(pair),
      own_(granted.cap.max_recv_wr, granted.cap.max_recv_sge,
           static_cast<protection_domain*>(pair.pd)),
      shared_(static_cast<shared_receive_queue*>(granted.srq)),
      receives_for_(receives_for) {}

bool responder::turn_to(std::uint32_t shared_queue) noexcept {
  // All packets of a message are for the same queue.
  if (message_.open && message_.shared_queue != shared_queue) return false;
  const auto found = receives_for_->shared_receive_queues.find(shared_queue);
  if (found == receives_for_->shared_receive_queues.end()) return false;
  auto* const next = static_cast<shared_receive_queue*>(found->second);
  // If a receive has been taken from the previous queue, its message is incomplete.
  if (next != shared_ && taken_) return false;
  shared_ = next;
  return true;
}

std::uint32_t responder::domain() const noexcept {
  return receives_for_ == nullptr ? pair_.domain() : number_of(shared_->pd);
}

void responder::forget(const shared_receive_queue& queue) noexcept {
  if (shared_ != &queue) return;
  taken_.reset();
  shared_ = nullptr;
  // The rest of the message must not go to another queue that gets the same number.
  message_.open = false;
}

void responder::on_request(const packet& incoming) {
  const packet_header& header = incoming.header;
  if (pair_.now_in() == IBV_QPS_RTR) pair_.communication_established();
  if (!is_expected(header)) return;
  refused_ = false;
  if (receives_for_ != nullptr && !turn_to(header.shared_queue))
    return refuse_for_good(refusal::invalid_request, IBV_EVENT_QP_REQ_ERR);
  switch (header.kind) {
    case packet_kind::send:
      return on_send(incoming);
    case packet_kind::write:
      return on_write(incoming);
    default:
      return on_fetch(incoming);
  }
}

bool responder::is_expected(const packet_header& header) {
  const std::int32_t distance = psn_distance(header.psn, expected_);
  if (!pair_.is_reliable()) {
    // On an unreliable connection, messages are independent of each other: if a packet is lost, the
    // rest of its message is dropped, and the next message is received.
    const bool first = (header.flags & packet_flag::first) != 0;
    if (first) expect_psn(header.psn);
    message_.open = !first && message_.open && distance == 0;
    return first || message_.open;
  }
  if (distance < 0) on_duplicate(header);
  // Only the first packet after a lost one is refused. The packets in flight behind it are dropped.
  if (distance > 0 && !refused_) refuse(refusal::sequence);
  return distance == 0;
}

void responder::on_duplicate(const packet_header& header) {
  if (!fetches(header.kind)) {
    acknowledge_due_ = true;
    pair_.engine().schedule(pair_);
    return;
  }
  // Only recent requests are kept; older duplicates are ignored.
  const std::uint32_t known = std::min(end_fetch_, most_fetches);
  for (std::uint32_t back = 1; back <= known; ++back) {
    fetch& wanted = fetch_at(end_fetch_ - back);
    if (wanted.psn != header.psn) continue;
    // The request has not been answered yet, so the response that it will get is enough.
    if (back <= end_fetch_ - first_fetch_) return;
    fetch again = wanted;
    again.answered = 0;
    if (end_fetch_ - first_fetch_ >= limits::outstanding_reads) return;
    fetch_at(end_fetch_++) = again;
    pair_.engine().schedule(pair_);
    return;
  }
}

bool responder::continues(const packet_header& header) noexcept {
  const bool first = (header.flags & packet_flag::first) != 0;
  const bool last = (header.flags & packet_flag::last) != 0;
  if (first == message_.open) return false;
  if (first) {
    message_ = {};
    message_.open = true;
    message_.kind = header.kind;
    message_.length = header.message;
    message_.rkey = header.key;
    message_.address = header.address;
    message_.shared_queue = header.shared_queue;
  }
  if (message_.kind != header.kind || header.offset != message_.arrived) return false;
  // All packets but the last one must be full. Otherwise, packet numbers would not match the
  // offsets.
  return last || (header.payload != 0 && header.payload % packet_bytes == 0);
}

bool responder::has_receive() {
  if (shared_ == nullptr) return !own_.empty();
  if (!taken_) taken_ = shared_->take(taken_entries_);
  return taken_.has_value();
}

receive_memory responder::current_memory() const noexcept {
  return {pair_.regions(), shared_ == nullptr ? pair_.pd : shared_->pd, current()};
}

void responder::on_send(const packet& incoming) {
  const packet_header& header = incoming.header;
  const bool last = (header.flags & packet_flag::last) != 0;
  if (!message_.open && !has_receive()) return refuse(refusal::receiver_not_ready);
  if (!continues(header)) return refuse_for_good(refusal::invalid_request, IBV_EVENT_QP_REQ_ERR);
  const std::uint64_t end = std::uint64_t{message_.arrived} + header.payload;
  if (end > current().length)
    return fail_receive(IBV_WC_LOC_LEN_ERR, refusal::invalid_request, IBV_EVENT_QP_REQ_ERR);
  if (!current_memory().fill(message_.arrived, incoming.payload, header.payload))
    return fail_receive(IBV_WC_LOC_PROT_ERR, refusal::remote_operation, IBV_EVENT_QP_FATAL);
  message_.arrived = static_cast<std::uint32_t>(end);
  if (last && (header.flags & packet_flag::invalidate) != 0 &&
      !pair_.regions().invalidate(pair_, header.key))
    return refuse_for_good(refusal::remote_access, IBV_EVENT_QP_ACCESS_ERR);
  if (last && !receive_message(IBV_WC_RECV, message_.arrived, header)) return;
  took(header);
}

void responder::on_datagram(const packet& incoming) {
  const packet_header& header = incoming.header;
  if (!has_receive()) return;
  if (header.payload > current().length)
    return fail_receive(IBV_WC_LOC_LEN_ERR, refusal::none, IBV_EVENT_QP_REQ_ERR);
  // If there is no network header, its space in the receive's memory is left unchanged. A frame has
  // no such space.
  const bool whole = header.kind == packet_kind::frame || (header.flags & packet_flag::global) != 0;
  const std::uint32_t skipped = whole ? 0 : sizeof(network_header);
  if (!current_memory().fill(skipped, incoming.payload + skipped, header.payload - skipped))
    return fail_receive(IBV_WC_LOC_PROT_ERR, refusal::none, IBV_EVENT_QP_FATAL);
  receive_message(IBV_WC_RECV, header.payload, header);
}

void responder::on_write(const packet& incoming) {
  const packet_header& header = incoming.header;
  const bool last = (header.flags & packet_flag::last) != 0;
  const bool notifies = last && (header.flags & packet_flag::immediate) != 0;
  if (notifies && !has_receive()) return refuse(refusal::receiver_not_ready);
  if (!continues(header)) return refuse_for_good(refusal::invalid_request, IBV_EVENT_QP_REQ_ERR);
  const std::uint64_t end = std::uint64_t{message_.arrived} + header.payload;
  if (end > message_.length || (last && end != message_.length))
    return refuse_for_good(refusal::invalid_request, IBV_EVENT_QP_REQ_ERR);
  // A queue pair that permits no writes refuses them as invalid, before their key is checked.
  if ((pair_.attributes().qp_access_flags & right_to(header.kind)) == 0)
    return refuse_for_good(refusal::invalid_request, IBV_EVENT_QP_REQ_ERR);
  // An empty write accesses nothing, so its key isn't checked.
  if (message_.length != 0) {
    // The memory of the whole message is checked for each packet, because the region may have been
    // deregistered since the first one.
    std::byte* base = pair_.regions().remote({pair_, domain()}, message_.rkey, message_.address,
                                             message_.length, right_to(header.kind));
    if (base != nullptr && header.source_key != 0) {
      if (!pair_.pull(incoming, base + message_.arrived)) {
        if (message_.arrived == 0) message_.open = false;
        return refuse(refusal::not_pulled);
      }
    } else if (base == nullptr ||
               !user_memory::copy(base + message_.arrived, incoming.payload, header.payload)) {
      return refuse_for_good(refusal::remote_access, IBV_EVENT_QP_ACCESS_ERR);
    }
  }
  message_.arrived = static_cast<std::uint32_t>(end);
  if (notifies && !receive_message(IBV_WC_RECV_RDMA_WITH_IMM, message_.length, header)) return;
  took(header);
}

void responder::took(const packet_header& header) {
  const std::uint32_t numbers = packets_of(header.payload);
  expect_psn((expected_ + numbers) & psn_mask);
  const bool last = (header.flags & packet_flag::last) != 0;
  if (last) message_.open = false;
  unacknowledged_ += numbers;
  if (!pair_.is_reliable() || (!last && unacknowledged_ < packets_per_acknowledgement)) return;
  unacknowledged_ = 0;
  acknowledge_due_ = true;
  pair_.engine().schedule(pair_);
}

bool responder::understands(fetch& wanted) const noexcept {
  if (wanted.kind != packet_kind::flush) {
    wanted.right = right_to(wanted.kind);
    return true;
  }
  const std::uint64_t placements = wanted.operands.compare_or_add & 0xff;
  const std::uint64_t level = wanted.operands.compare_or_add >> 8;
  wanted.right = newer::access_to_flush(static_cast<unsigned>(placements));
  wanted.length = wanted.operands.swap;
  return placements != 0 && placements <= (newer::flush_global | newer::flush_persistent) &&
         level <= newer::flush_region;
}

void responder::on_fetch(const packet& incoming) {
  constexpr std::uint8_t whole = packet_flag::first | packet_flag::last;
  const packet_header& header = incoming.header;
  fetch wanted{};
  wanted.kind = header.kind;
  wanted.address = header.address;
  wanted.rkey = header.key;
  wanted.length = wanted.answer = header.message;
  wanted.psn = header.psn;
  wanted.domain = domain();
  if (carries_operands(header.kind)) {
    std::memcpy(&wanted.operands, incoming.payload, sizeof(wanted.operands));
    wanted.length = atomic_bytes;
    wanted.answer = gives_value(header.kind) ? atomic_bytes : 0;
  }
  const bool known = !is_atomic(header.kind) || pair_.device().description().has_atomics;
  if (!known || message_.open || (header.flags & whole) != whole || !understands(wanted) ||
      wanted.answer > limits::message_bytes ||
      end_fetch_ - first_fetch_ >= pair_.attributes().max_dest_rd_atomic ||
      (pair_.attributes().qp_access_flags & wanted.right) != wanted.right)
    return refuse_for_good(refusal::invalid_request, IBV_EVENT_QP_REQ_ERR);
  if (wanted.touches_memory() && memory_of(wanted).data() == nullptr)
    return refuse_for_good(refusal::remote_access, IBV_EVENT_QP_ACCESS_ERR);
  if (is_atomic(header.kind) && wanted.address % atomic_bytes != 0)
    return refuse_for_good(refusal::invalid_request, IBV_EVENT_QP_REQ_ERR);
  if (!fetches_) fetches_ = std::make_unique<std::array<fetch, most_fetches>>();
  fetch_at(end_fetch_++) = wanted;
  expect_psn((expected_ + 1) & psn_mask);
  pair_.engine().schedule(pair_);
}

std::span<std::byte> responder::memory_of(const fetch& wanted) const noexcept {
  const region_table::reach within{pair_, wanted.domain};
  if (wanted.flushes_region()) return pair_.regions().all_of(within, wanted.rkey, wanted.right);
  std::byte* start =
      pair_.regions().remote(within, wanted.rkey, wanted.address, wanted.length, wanted.right);
  return {start, start == nullptr ? 0 : wanted.length};
}

bool responder::receive_message(ibv_wc_opcode opcode, std::uint32_t bytes,
                                const packet_header& header) {
  const faults::verdict fault = faults::judge(pair_.qp_num, true);
  if (fault.status == IBV_WC_SUCCESS) {
    complete_receive(IBV_WC_SUCCESS, opcode, bytes, &header, fault);
    return true;
  }
  const refusal reason =
      fault.status == IBV_WC_LOC_LEN_ERR ? refusal::invalid_request : refusal::remote_operation;
  fail_receive(fault.status, reason, IBV_EVENT_QP_FATAL, fault);
  return false;
}

void responder::complete_receive(ibv_wc_status status, ibv_wc_opcode opcode, std::uint32_t bytes,
                                 const packet_header* header, const faults::verdict& fault) {
  completion entry{};
  entry.wc.wr_id = current().wr_id;
  entry.wc.status = status;
  entry.wc.opcode = opcode;
  entry.wc.byte_len = bytes;
  entry.wc.src_qp = pair_.attributes().dest_qp_num;
  entry.wc.slid = pair_.attributes().ah_attr.dlid;
  entry.wc.sl = pair_.attributes().ah_attr.sl;
  if (header != nullptr) {
    if (header->kind == packet_kind::datagram)
      describe_sender(*header, pair_.is_on_ethernet(), entry.wc);
    if (header->kind == packet_kind::frame) entry.flow_tag = header->key;
    if ((header->flags & packet_flag::immediate) != 0) {
      entry.wc.wc_flags |= IBV_WC_WITH_IMM;
      entry.wc.imm_data = header->immediate;
    }
    if ((header->flags & packet_flag::invalidate) != 0) {
      entry.wc.wc_flags |= IBV_WC_WITH_INV;
      entry.wc.invalidated_rkey = header->key;
    }
    entry.solicited = (header->flags & packet_flag::solicited) != 0;
  }
  entry.wc.vendor_err = fault.vendor_code;
  entry.delay = fault.delay;
  entry.overtakable = fault.overtakable;
  if (shared_ == nullptr) own_.pop(entry);
  taken_.reset();
  entry.of_send_queue = false;
  pair_.count_completion(counted_operation::receive, status, bytes);
  // An XRC queue pair may be destroyed before the completions of its receives are polled, so the
  // shared receive queue owns these completions.
  if (receives_for_ != nullptr) entry.owner = shared_;
  pair_.complete(*(receives_for_ != nullptr ? shared_->xrc.completions
                                            : static_cast<completion_queue*>(pair_.recv_cq)),
                 entry);
}

void responder::refuse(refusal reason) {
  if (!pair_.is_reliable()) {
    message_.open = false;
    return;
  }
  if (reason == refusal::receiver_not_ready) pair_.count_refusal(port_traffic::way::sent);
  refused_ = true;
  refusal_due_ = reason;
  refused_psn_ = expected_;
  pair_.engine().schedule(pair_);
}

void responder::refuse_for_good(refusal reason, ibv_event_type event) {
  refuse(reason);
  if (!pair_.is_reliable()) return;
  pair_.raise(event);
  pair_.enter_error();
}

void responder::fail_receive(ibv_wc_status status, refusal reason, ibv_event_type event,
                             const faults::verdict& fault) {
  complete_receive(status, IBV_WC_RECV, 0, nullptr, fault);
  if (pair_.is_reliable()) return refuse_for_good(reason, event);
  pair_.enter_error();
}

packet_header responder::acknowledgement() const noexcept {
  return pair_.header(packet_kind::acknowledge, expected_ - 1);
}

packet_header responder::refusal_header() const noexcept {
  packet_header header = pair_.header(packet_kind::refuse, refused_psn_);
  header.reason = refusal_due_;
  header.rnr_timer = pair_.attributes().min_rnr_timer;
  return header;
}

bool responder::answer() {
  // Responses are sent in the order of the requests, because an acknowledgement covers all earlier
  // requests.
  unsigned budget = answers_per_turn;
  while (first_fetch_ != end_fetch_ && refusal_due_ == refusal::none) {
    fetch& wanted = fetch_at(first_fetch_);
    if (budget-- == 0) return true;
    if (!answer_fetch(wanted)) return false;
  }
  if (refusal_due_ != refusal::none) {
    if (pair_.send(refusal_header(), nullptr, 0, turn::answer) == sent::blocked) return false;
    refusal_due_ = refusal::none;
    acknowledge_due_ = false;
  }
  if (acknowledge_due_) {
    if (pair_.send(acknowledgement(), nullptr, 0, turn::answer) == sent::blocked) return false;
    acknowledge_due_ = false;
  }
  return false;
}

void* responder::source_of(fetch& wanted) noexcept {
  // The memory is looked up for each packet, because the region may have been deregistered.
  const std::span<std::byte> memory = wanted.value ? std::span<std::byte>{} : memory_of(wanted);
  if (wanted.kind == packet_kind::read_request)
    return memory.data() == nullptr ? nullptr : memory.data() + wanted.answered;
  if (memory.data() != nullptr) wanted.value = carry_out(wanted.kind, wanted.operands, memory);
  return wanted.value ? &*wanted.value : nullptr;
}

bool responder::answer_fetch(fetch& wanted) {
  packet_header header = pair_.header(packet_kind::read_response, wanted.psn);
  header.offset = wanted.answered;
  header.payload = std::min(packet_bytes, wanted.answer - wanted.answered);
  const iovec piece{wanted.touches_memory() ? source_of(wanted) : nullptr, header.payload};
  const sent result = !wanted.touches_memory() || piece.iov_base != nullptr
                          ? pair_.send(header, &piece, header.payload == 0 ? 0 : 1, turn::answer,
                                       wanted.value ? payload_of::device : payload_of::program)
                          : sent::fault;
  switch (result) {
    case sent::blocked:
      return false;
    case sent::fault:
      // The memory is not accessible, for example because its region was deregistered after the
      // request had been accepted.
      refuse_for_good(refusal::remote_access, IBV_EVENT_QP_ACCESS_ERR);
      refused_psn_ = wanted.psn;
      return true;
    default:
      break;
  }
  wanted.answered += header.payload;
  if (wanted.answered == wanted.answer) ++first_fetch_;
  return true;
}

void responder::leave_answer() {
  if (refusal_due_ != refusal::none)
    pair_.wire().owe(refusal_header());
  else if (acknowledge_due_ && first_fetch_ == end_fetch_)
    pair_.wire().owe(acknowledgement());
}

void responder::flush() {
  first_fetch_ = end_fetch_;
  while (taken_ || !own_.empty()) complete_receive(IBV_WC_WR_FLUSH_ERR, IBV_WC_RECV, 0, nullptr);
  // Notifies the program that the queue pair no longer uses the shared queue. An XRC queue belongs
  // to no queue pair.
  if (shared_ != nullptr && receives_for_ == nullptr && !std::exchange(told_last_, true))
    pair_.raise(IBV_EVENT_QP_LAST_WQE_REACHED);
}

void responder::reset() noexcept {
  own_.reset();
  taken_.reset();
  told_last_ = false;
  expect_psn(0);
  message_ = {};
  acknowledge_due_ = refused_ = false;
  unacknowledged_ = 0;
  refusal_due_ = refusal::none;
  first_fetch_ = end_fetch_ = 0;
}

}  // namespace softverbs
