// SPDX-License-Identifier: Apache-2.0
#include "queue_pair/requester.hpp"

#include "base/user_memory.hpp"
#include "memory/protection_domain.hpp"
#include "queue_pair/queue_pair_core.hpp"
#include "queue_pair/remote_atomic.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>

namespace softverbs {
namespace {

constexpr unsigned sends_per_turn = 16;

/// The minimum time to wait for an answer. A peer on a busy machine may well take this long.
constexpr nanoseconds shortest_try = 4'000'000;

/// The time for which a peer whose process exists may leave packets unread before they count as
/// lost. A network card would have read them without the process.
constexpr nanoseconds patience = 2'000'000'000;

constexpr std::uint8_t retry_for_ever = 7;

/// After this number of writes that the peer could not pull, all data is sent.
constexpr std::uint8_t most_refused_pulls = 8;

/// The delays that a receiver requests, indexed by the code of min_rnr_timer, in units of 10
/// microseconds.
constexpr std::array<std::uint32_t, 32> rnr_times{
    65536, 1,    2,    3,    4,    6,     8,     12,    16,    24,   32,
    48,    64,   96,   128,  192,  256,   384,   512,   768,   1024, 1536,
    2048,  3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152};

nanoseconds rnr_time(std::uint8_t code) noexcept { return nanoseconds{rnr_times[code]} * 10'000; }

nanoseconds try_time(std::uint8_t timeout) noexcept {
  return std::max(nanoseconds{4096} << timeout, shortest_try);
}

/// Returns the protection domain, or null for queue pairs that receive for XRC, which have no send
/// requests.
protection_domain* domain_of(const queue_pair_core& pair) noexcept {
  return static_cast<protection_domain*>(pair.pd);
}

}  // namespace

requester::requester(queue_pair_core& pair, const ibv_qp_init_attr& granted)
    : pair_(pair),
      capacity_(granted.cap.max_send_wr),
      mask_(capacity_ == 0 ? 0 : std::bit_ceil(capacity_) - 1),
      max_entries_(granted.cap.max_send_sge),
      max_inline_(granted.cap.max_inline_data),
      ring_(places(), domain_of(pair)),
      entries_(max_entries_ == 1 ? 0 : places() * max_entries_, domain_of(pair)),
      signals_all_(granted.sq_sig_all != 0),
      inline_(has_inline_among_entries() ? 0 : places() * max_inline_, domain_of(pair)),
      datagrams_(granted.qp_type == IBV_QPT_UD ? places() : 0, domain_of(pair)) {}

int requester::post(const ibv_send_wr& asked, posting way) {
  const operation& what = operations_known[asked.opcode];
  if (what.how < way || (what.services & service::of(pair_.qp_type)) == 0) return EINVAL;
  if (is_atomic(what.carrier) && !pair_.device().description().has_atomics) return EINVAL;
  if (asked.opcode == IBV_WR_BIND_MW && asked.bind_mw.mw == nullptr) return EINVAL;
  if (!what.takes_memory && asked.num_sge != 0) return EINVAL;
  if (asked.num_sge < 0 || static_cast<std::uint32_t>(asked.num_sge) > max_entries_) return EINVAL;
  std::uint64_t length = 0;
  for (int entry = 0; entry < asked.num_sge; ++entry) length += asked.sg_list[entry].length;
  const bool inlined = (asked.send_flags & IBV_SEND_INLINE) != 0;
  const bool addressed = pair_.qp_type == IBV_QPT_UD;
  if (addressed && asked.wr.ud.ah == nullptr) return EINVAL;
  // A frame must contain a whole Ethernet header, and checksum offload is not supported.
  if (pair_.is_raw() &&
      (length < ethernet_header_bytes || (asked.send_flags & IBV_SEND_IP_CSUM) != 0))
    return EINVAL;
  if (head_ - freed_.load(std::memory_order_acquire) >= capacity_) return ENOMEM;

  request& work = at(head_);
  work.wr_id = asked.wr_id;
  work.opcode = asked.opcode;
  work.remote_address = 0;
  work.length = length;
  work.rkey = 0;
  work.failure = IBV_WC_SUCCESS;
  work.judged = work.not_pulled = false;
  if (inlined && (length > max_inline_ || what.fetches())) return EINVAL;
  // The program need not set the fields that a request doesn't use, and their values must not be
  // sent.
  if (what.has_operands()) {
    work.remote_address = asked.wr.atomic.remote_addr;
    work.rkey = asked.wr.atomic.rkey;
    work.operands = {asked.wr.atomic.compare_add, asked.wr.atomic.swap};
  } else if (asked.opcode == IBV_WR_BIND_MW) {
    const ibv_mw_bind_info& info = asked.bind_mw.bind_info;
    work.binding = {
        asked.bind_mw.mw->handle, asked.bind_mw.rkey, info.mr == nullptr ? 0 : info.mr->lkey,
        info.mw_access_flags,     info.addr,          info.length};
  } else if (asked.opcode == IBV_WR_LOCAL_INV || asked.opcode == IBV_WR_SEND_WITH_INV) {
    work.rkey = asked.invalidate_rkey;
  } else if (what.carrier != packet_kind::send) {
    work.remote_address = asked.wr.rdma.remote_addr;
    work.rkey = asked.wr.rdma.rkey;
  }
  if (addressed) {
    const auto& handle = *static_cast<const address_handle*>(asked.wr.ud.ah);
    // A controlled Q_Key, whose highest bit is set, stands for the queue pair's own Q_Key.
    const bool controlled = asked.wr.ud.remote_qkey >> 31 != 0;
    datagram_of(head_) = {handle.to, number_of(handle.pd), asked.wr.ud.remote_qpn & psn_mask,
                          controlled ? pair_.attributes().qkey : asked.wr.ud.remote_qkey};
  }
  work.shared_queue = pair_.is_of_xrc() ? asked.qp_type.xrc.remote_srqn : 0;
  work.immediate = asked.imm_data;
  work.signaled = signals_all_ || (asked.send_flags & IBV_SEND_SIGNALED) != 0;
  work.solicited = (asked.send_flags & IBV_SEND_SOLICITED) != 0;
  work.fenced = (asked.send_flags & IBV_SEND_FENCE) != 0;
  work.inlined = inlined;
  work.entries = static_cast<std::uint16_t>(asked.num_sge);
  if (inlined) {
    std::byte* to = inline_of(head_);
    for (int entry = 0; entry < asked.num_sge; ++entry) {
      const ibv_sge& from = asked.sg_list[entry];
      if (from.length == 0) continue;
      std::memcpy(to, reinterpret_cast<const void*>(from.addr), from.length);
      to += from.length;
    }
  } else {
    std::copy_n(asked.sg_list, asked.num_sge, entries_of(head_));
  }
  ++head_;
  return 0;
}

void requester::judge(request& work) {
  work.fault = faults::judge(pair_.qp_num, false);
  work.judged = true;
}

ibv_wc_status requester::inspect(request& work) {
  // The request may have failed already: on the direct path, or before earlier requests were
  // repeated.
  if (work.failure != IBV_WC_SUCCESS) return work.failure;
  judge(work);
  if (work.fault.status != IBV_WC_SUCCESS) return work.fault.status;
  if (work.length > pair_.longest_message() ||
      (gives_value(work.what().carrier) && work.length != atomic_bytes))
    return IBV_WC_LOC_LEN_ERR;
  if (pair_.qp_type == IBV_QPT_UD && datagram_of(next_).domain != number_of(pair_.pd))
    return IBV_WC_LOC_QP_OP_ERR;
  // With a max_rd_atomic of 0, this queue pair must not send reads, atomics, atomic writes or
  // flushes.
  if (work.fetches() && pair_.attributes().max_rd_atomic == 0) return IBV_WC_LOC_QP_OP_ERR;
  if (work.inlined) return IBV_WC_SUCCESS;
  const ibv_sge* entries = entries_of(next_);
  for (std::uint16_t entry = 0; entry < work.entries; ++entry) {
    const ibv_sge& piece = entries[entry];
    if (piece.length == 0) continue;
    if (!pair_.regions().local(pair_.pd, piece.lkey, piece.addr, piece.length, work.fetches()))
      return IBV_WC_LOC_PROT_ERR;
  }
  return IBV_WC_SUCCESS;
}

int requester::gather(std::uint32_t number, std::uint64_t offset, std::uint32_t length,
                      iovec* pieces) noexcept {
  const request& work = at(number);
  if (length == 0) return 0;
  if (work.inlined) {
    pieces[0] = {inline_of(number) + offset, length};
    return 1;
  }
  const ibv_sge* entries = entries_of(number);
  int count = 0;
  for (std::uint16_t entry = 0; entry < work.entries && length > 0; ++entry) {
    const ibv_sge& piece = entries[entry];
    if (offset >= piece.length) {
      offset -= piece.length;
      continue;
    }
    const auto part =
        static_cast<std::uint32_t>(std::min<std::uint64_t>(piece.length - offset, length));
    // The memory is looked up for each packet, because the region may have been deregistered.
    std::byte* memory =
        pair_.regions().local(pair_.pd, piece.lkey, piece.addr + offset, part, work.fetches());
    if (memory == nullptr) return -1;
    pieces[count++] = {memory, part};
    length -= part;
    offset = 0;
  }
  return count;
}

bool requester::transmit() {
  carry_out_directly();
  for (unsigned budget = sends_per_turn; budget > 0; --budget) {
    if (resting_ || stopped_ || next_ == head_) return false;
    request& work = at(next_);
    if (next_ == begun_) {
      // In SQD, no new requests begin; those that have begun continue.
      if (pair_.now_in() == IBV_QPS_SQD) return false;
      // The request waits until no packets are in flight, because it may then be possible to carry
      // it out directly. Without this wait, a queue that is never empty would use packets forever.
      if (awaits_turn(work)) return false;
      if (work.fenced && fetches_ > 0) return false;
      if (work.fetches() && fetches_ > 0 && fetches_ >= pair_.attributes().max_rd_atomic)
        return false;
      if (work.what().local) {
        if (oldest_ != next_ || carry_out(work) != outcome::sent) return false;
        continue;
      }
      if (const ibv_wc_status failure = inspect(work); failure != IBV_WC_SUCCESS) {
        stop_at(work, failure);
        return false;
      }
      begin(work);
    }
    const turn when = budget == sends_per_turn ? turn::next : turn::last;
    if (transmit_packet(work, when) != outcome::sent) return false;
  }
  return next_ != head_;
}

requester::outcome requester::carry_out(request& work) {
  region_table& regions = pair_.regions();
  judge(work);
  ibv_wc_status failure = work.fault.status;
  if (failure == IBV_WC_SUCCESS) {
    if (work.opcode == IBV_WR_BIND_MW) {
      if (!regions.bind(pair_, work.binding)) failure = IBV_WC_MW_BIND_ERR;
    } else if (!regions.invalidate(pair_, work.rkey)) {
      failure = IBV_WC_LOC_QP_OP_ERR;
    }
  }
  if (failure != IBV_WC_SUCCESS) {
    stop_at(work, failure);
    return outcome::failed;
  }
  ++begun_;
  ++next_;
  complete_oldest();
  return pair_.now_in() == IBV_QPS_ERR ? outcome::failed : outcome::sent;
}

void requester::begin(request& work) noexcept {
  used_wire_ = true;
  work.first_psn = psn_;
  work.packets = work.fetches() ? 1 : packets_of(static_cast<std::uint32_t>(work.length));
  work.received = 0;
  psn_ = (psn_ + work.packets) & psn_mask;
  ++begun_;
}

packet_header requester::header_of(const request& work) noexcept {
  const auto message = static_cast<std::uint32_t>(work.length);
  const packet_kind kind = pair_.is_connected() ? work.what().carrier
                           : pair_.is_raw()     ? packet_kind::frame
                                                : packet_kind::datagram;
  packet_header header = pair_.header(kind, work.first_psn + next_packet_);
  header.offset = next_packet_ * packet_bytes;
  header.shared_queue = work.shared_queue;
  if (may_be_pulled(work)) {
    header.source_key = entries_of(next_)->lkey;
    header.payload = std::min(pulled_bytes, message - header.offset);
  } else if (work.what().has_operands()) {
    header.payload = sizeof(work.operands);
  } else if (!work.fetches()) {
    header.payload = std::min(packet_bytes, message - header.offset);
  }
  if (pair_.is_connected() && kind != packet_kind::send) {
    header.message = message;
    header.address = work.remote_address;
    header.key = work.rkey;
  }
  if (next_packet_ == 0) header.flags |= packet_flag::first;
  if (next_packet_ + packets_of(header.payload) == work.packets) {
    header.flags |= packet_flag::last;
    if (work.solicited) header.flags |= packet_flag::solicited;
    if (work.opcode == IBV_WR_SEND_WITH_INV) {
      header.flags |= packet_flag::invalidate;
      header.key = work.rkey;
    }
    if (with_immediate(work.opcode)) {
      header.flags |= packet_flag::immediate;
      header.immediate = work.immediate;
    }
  }
  return header;
}

requester::outcome requester::transmit_packet(request& work, turn when) {
  const packet_header header = header_of(work);
  std::array<iovec, limits::gather_entries> pieces;
  int count = 1;
  if (work.what().has_operands())
    pieces[0] = {&work.operands, sizeof(work.operands)};
  else
    count = gather(next_, header.offset, header.payload, pieces.data());
  const bool is_pulled = header.source_key != 0;
  std::uint64_t source = 0;
  if (is_pulled && count == 1) {
    source = entries_of(next_)->addr + header.offset;
    pieces[0] = {&source, sizeof(source)};
  }
  const payload_of whose = is_pulled || work.inlined || work.what().has_operands()
                               ? payload_of::device
                               : payload_of::program;
  const auto send = [&] {
    const auto parts = static_cast<std::size_t>(count);
    if (pair_.is_raw()) return send_frame(header, pieces.data(), parts, when);
    return pair_.is_connected() ? pair_.send(header, pieces.data(), parts, when, whose)
                                : send_datagram(header, pieces.data(), parts, when);
  };
  const sent result = count < 0 ? sent::fault : send();
  if (result == sent::fault) {
    stop_at(work, IBV_WC_LOC_PROT_ERR);
    return outcome::failed;
  }
  return pair_.is_reliable() ? wait_for_answer(work, result, packets_of(header.payload))
                             : be_done_with(work, result);
}

bool requester::may_be_pulled(const request& work) const noexcept {
  return work.length >= packet_bytes && work.what().carrier == packet_kind::write &&
         work.entries == 1 && !work.inlined && !work.not_pulled &&
         refused_pulls_ < most_refused_pulls && pair_.qp_type == IBV_QPT_RC &&
         pair_.goes_directly() && pair_.peer_process() != nullptr;
}

sent requester::send_datagram(const packet_header& described, const iovec* payload,
                              std::size_t pieces, turn when) {
  if (faults::silences(pair_.place())) return sent::lost;
  const datagram& towards = datagram_of(next_);
  const destination& to = towards.to;
  packet_header header = described;
  header.network = static_cast<std::uint8_t>(to.way.network);
  header.target = to.way.target;
  header.target_qpn = towards.qpn;
  header.service_level = to.service_level;
  header.key = towards.qkey;
  header.address = to.lid;
  header.payload += sizeof(network_header);
  network_header network = to.header;
  if (to.global) {
    header.flags |= packet_flag::global;
    set_length(network, described.payload);
  }
  std::array<iovec, limits::gather_entries + 1> parts;
  parts[0] = {network.data(), network.size()};
  std::copy_n(payload, pieces, parts.begin() + 1);
  if ((towards.qpn == multicast_qpn) != to.way.multicast) return sent::lost;
  if (to.way.multicast) return send_to_group(header, parts.data(), pieces + 1, when);
  return pair_.send(header, parts.data(), pieces + 1, when);
}

sent requester::send_frame(const packet_header& described, const iovec* payload, std::size_t pieces,
                           turn when) {
  if (faults::silences(pair_.place())) return sent::lost;
  packet_header header = described;
  // There is no switch that knows which process a frame is for, so all listening processes get it.
  header.target_qpn = multicast_qpn;
  return send_to_group(header, payload, pieces, when);
}

sent requester::send_to_group(const packet_header& header, const iovec* payload, std::size_t pieces,
                              turn when) {
  softverbs::wire& wire = pair_.wire();
  if (!audience_) audience_ = wire.hearers();
  sent result = sent::yes;
  while (!audience_->empty()) {
    const std::uint32_t process = audience_->back();
    const sent one = wire.send(process, header, payload, pieces);
    if (one == sent::blocked && !gave_up_) {
      wire.wait_writable(process, pair_.qp_num, when);
      return one;
    }
    if (one != sent::yes) result = one;
    audience_->pop_back();
  }
  pair_.count(port_traffic::way::sent, header.payload);
  audience_.reset();
  return result;
}

requester::outcome requester::wait_for_answer(const request& work, sent result,
                                              std::uint32_t packets) {
  if (pair_.deadline() == 0) {
    const nanoseconds time = now();
    if (quiet_since_ == 0) quiet_since_ = time;
    restart_timer(time);
  }
  if (result == sent::blocked) return outcome::waiting;
  advance(work, packets);
  return outcome::sent;
}

requester::outcome requester::be_done_with(const request& work, sent result) {
  if (result == sent::blocked && !gave_up_) {
    if (pair_.deadline() == 0) pair_.engine().set_deadline(pair_, now() + patience);
    return outcome::waiting;
  }
  if (result == sent::yes) gave_up_ = false;
  pair_.engine().set_deadline(pair_, 0);
  advance(work);
  if (oldest_ != next_) complete_oldest();
  return pair_.now_in() == IBV_QPS_ERR ? outcome::failed : outcome::sent;
}

void requester::advance(const request& work, std::uint32_t packets) noexcept {
  next_packet_ += packets;
  if (next_packet_ != work.packets) return;
  if (work.fetches()) ++fetches_;
  ++next_;
  next_packet_ = 0;
}

void requester::stop_at(request& work, ibv_wc_status failure) {
  // Earlier requests may still succeed, and complete first.
  work.failure = failure;
  stopped_ = true;
  if (oldest_ == next_) fail_oldest(failure);
}

bool requester::outstanding(std::uint32_t psn) const noexcept {
  return psn_distance(psn, acknowledged_) >= 0 && psn_distance(psn, psn_) < 0;
}

void requester::on_acknowledge(std::uint32_t psn) {
  if (!outstanding(psn)) return;
  while (oldest_ != begun_) {
    const request& work = at(oldest_);
    // A request that fetches is finished only by its response, not by an acknowledgement.
    if (work.fetches() || psn_distance(psn, work.last_psn()) < 0) break;
    acknowledged_ = (work.last_psn() + 1) & psn_mask;
    complete_oldest();
    if (pair_.now_in() == IBV_QPS_ERR) return;
  }
  if (oldest_ != begun_ && !at(oldest_).fetches() && outstanding(psn))
    acknowledged_ = (psn + 1) & psn_mask;
  made_progress();
}

void requester::on_read_response(const packet& incoming) {
  const packet_header& header = incoming.header;
  if (!outstanding(header.psn)) return;
  // A response implies that all earlier requests were carried out.
  if (header.psn != acknowledged_) on_acknowledge((header.psn - 1) & psn_mask);
  if (oldest_ == begun_ || pair_.now_in() == IBV_QPS_ERR) return;
  request& work = at(oldest_);
  if (!work.fetches() || work.first_psn != header.psn || header.offset != work.received) return;
  if (header.payload > work.length - work.received) return fail_oldest(IBV_WC_BAD_RESP_ERR);
  std::array<iovec, limits::gather_entries> pieces;
  const int count = gather(oldest_, work.received, header.payload, pieces.data());
  if (count < 0) return fail_oldest(IBV_WC_LOC_PROT_ERR);
  const std::byte* from = incoming.payload;
  for (int piece = 0; piece < count; ++piece) {
    const iovec& to = pieces[static_cast<std::size_t>(piece)];
    if (!user_memory::copy(to.iov_base, from, to.iov_len)) return fail_oldest(IBV_WC_LOC_PROT_ERR);
    from += to.iov_len;
  }
  work.received += header.payload;
  if (work.received == work.length) {
    acknowledged_ = (work.first_psn + 1) & psn_mask;
    complete_oldest();
    if (pair_.now_in() == IBV_QPS_ERR) return;
  }
  made_progress();
}

void requester::on_refusal(const packet_header& header) {
  if (!outstanding(header.psn)) return;
  if (header.psn != acknowledged_) on_acknowledge((header.psn - 1) & psn_mask);
  if (oldest_ == begun_ || pair_.now_in() == IBV_QPS_ERR) return;
  const ibv_qp_attr& attributes = pair_.attributes();
  switch (header.reason) {
    case refusal::not_pulled: {
      request& refused = request_with(header.psn);
      // A packet that was sent twice is refused twice. By now, the data has been sent.
      if (refused.not_pulled) return;
      refused.not_pulled = true;
      ++refused_pulls_;
      go_back_to(header.psn);
      pair_.engine().schedule(pair_);
      return;
    }
    case refusal::sequence:
      if (retries_ >= attributes.retry_cnt) return fail_oldest(IBV_WC_RETRY_EXC_ERR);
      ++retries_;
      go_back_to(header.psn);
      pair_.engine().schedule(pair_);
      return;
    case refusal::receiver_not_ready:
      pair_.count_refusal(port_traffic::way::received);
      if (attributes.rnr_retry != retry_for_ever && rnr_retries_ >= attributes.rnr_retry)
        return fail_oldest(IBV_WC_RNR_RETRY_EXC_ERR);
      if (attributes.rnr_retry != retry_for_ever) ++rnr_retries_;
      go_back_to(header.psn);
      resting_ = true;
      pair_.engine().set_deadline(pair_, now() + rnr_time(header.rnr_timer));
      return;
    case refusal::invalid_request:
      return fail_oldest(IBV_WC_REM_INV_REQ_ERR);
    case refusal::remote_access:
      return fail_oldest(IBV_WC_REM_ACCESS_ERR);
    case refusal::remote_operation:
      return fail_oldest(IBV_WC_REM_OP_ERR);
    case refusal::none:
      return;
  }
}

requester::request& requester::request_with(std::uint32_t psn) noexcept {
  std::uint32_t number = oldest_;
  while (number + 1 != begun_ && psn_distance(psn, at(number).last_psn()) > 0) ++number;
  return at(number);
}

void requester::go_back_to(std::uint32_t psn) noexcept {
  // Sending may have stopped at a request that failed. Sending resumes, because that request is
  // checked again when it is reached.
  stopped_ = false;
  const request& work = at(oldest_);
  next_ = oldest_;
  fetches_ = 0;
  next_packet_ = work.fetches() ? 0 : ((psn - work.first_psn) & psn_mask) % work.packets;
}

void requester::on_deadline(nanoseconds time) {
  if (!pair_.is_reliable()) {
    // The peer doesn't read its packets. By now, a network would have dropped them.
    gave_up_ = true;
    pair_.engine().schedule(pair_);
    return;
  }
  if (resting_) {
    resting_ = false;
    quiet_since_ = time;
    pair_.engine().schedule(pair_);
    return;
  }
  if (oldest_ == begun_) return;
  const ibv_qp_attr& attributes = pair_.attributes();
  if (time - quiet_since_ < patience && pair_.wire().may_still_answer(attributes.dest_qp_num))
    return restart_timer(time);
  if (retries_ >= attributes.retry_cnt) return fail_oldest(IBV_WC_RETRY_EXC_ERR);
  ++retries_;
  go_back_to(acknowledged_);
  pair_.engine().schedule(pair_);
  restart_timer(time);
}

void requester::made_progress() {
  retries_ = 0;
  rnr_retries_ = 0;
  // If `next_` has moved back for a retransmission, the requests to be repeated may have been
  // acknowledged in the meantime.
  if (static_cast<std::int32_t>(next_ - oldest_) < 0) {
    next_ = oldest_;
    next_packet_ = 0;
    fetches_ = 0;
  }
  if (resting_) return;
  quiet_since_ = 0;
  if (oldest_ == begun_) {
    pair_.engine().set_deadline(pair_, 0);
  } else {
    quiet_since_ = now();
    restart_timer(quiet_since_);
  }
  // Reads, fenced requests or a drain may have waited for earlier requests to finish.
  if (next_ != head_ || pair_.now_in() == IBV_QPS_SQD) pair_.engine().schedule(pair_);
}

void requester::restart_timer(nanoseconds time) {
  const std::uint8_t timeout = pair_.attributes().timeout;
  if (timeout != 0) pair_.engine().set_deadline(pair_, time + try_time(timeout));
}

void requester::complete_oldest() {
  const request& work = at(oldest_);
  if (work.fetches() && static_cast<std::int32_t>(next_ - oldest_) > 0) --fetches_;
  ++oldest_;
  count(work, IBV_WC_SUCCESS);
  if (work.signaled) complete(work, IBV_WC_SUCCESS);
  if (stopped_ && oldest_ == next_ && pair_.now_in() != IBV_QPS_ERR) fail_oldest(at(next_).failure);
}

void requester::fail_oldest(ibv_wc_status status) {
  const request& work = at(oldest_);
  ++oldest_;
  count(work, status);
  complete(work, status);
  if (pair_.now_in() != IBV_QPS_ERR) pair_.enter_send_error();
}

void requester::count(const request& work, ibv_wc_status status) const noexcept {
  if (const auto operation = counted_as(work.what().completes_as))
    pair_.count_completion(*operation, status, work.length);
}

completion requester::completion_of(const request& work, ibv_wc_status status) noexcept {
  completion entry{};
  entry.wc.wr_id = work.wr_id;
  entry.wc.status = status;
  entry.wc.opcode = work.what().completes_as;
  if (work.fetches()) entry.wc.byte_len = static_cast<std::uint32_t>(work.length);
  if (work.judged) {
    if (status == work.fault.status) entry.wc.vendor_err = work.fault.vendor_code;
    entry.delay = work.fault.delay;
    entry.overtakable = work.fault.overtakable;
  }
  entry.freed = &freed_;
  entry.frees_up_to = oldest_;
  entry.of_send_queue = true;
  return entry;
}

void requester::complete(const request& work, ibv_wc_status status) {
  pair_.complete(*static_cast<completion_queue*>(pair_.send_cq), completion_of(work, status));
}

void requester::flush() {
  while (oldest_ != head_) {
    const request& work = at(oldest_);
    ++oldest_;
    count(work, IBV_WC_WR_FLUSH_ERR);
    complete(work, IBV_WC_WR_FLUSH_ERR);
  }
  next_ = begun_ = head_;
  next_packet_ = fetches_ = 0;
  audience_.reset();
  stopped_ = false;
  resting_ = false;
}

void requester::reset() noexcept {
  freed_ = 0;
  oldest_ = next_ = begun_ = head_ = 0;
  next_packet_ = fetches_ = 0;
  audience_.reset();
  psn_ = acknowledged_ = 0;
  stopped_ = resting_ = gave_up_ = used_wire_ = false;
  retries_ = rnr_retries_ = refused_pulls_ = 0;
  quiet_since_ = 0;
}

}  // namespace softverbs
