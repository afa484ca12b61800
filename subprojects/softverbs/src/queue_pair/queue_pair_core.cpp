// SPDX-License-Identifier: Apache-2.0
#include "queue_pair/queue_pair_core.hpp"

#include "base/as_a_device.hpp"
#include "memory/protection_domain.hpp"
#include "queue_pair/operation.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace softverbs {

queue_pair_core::queue_pair_core(open_device& owner, protection_domain* domain,
                                 const ibv_qp_init_attr& attributes)
    : owner_(&owner), initial_(attributes) {
  context = &owner.verbs();
  qp_context = attributes.qp_context;
  pd = domain;
  send_cq = attributes.send_cq;
  recv_cq = attributes.recv_cq;
  srq = attributes.srq;
  state = IBV_QPS_RESET;
  qp_type = attributes.qp_type;
  attributes_.qp_state = IBV_QPS_RESET;
  attributes_.cap = attributes.cap;
  find_here();
  ::pthread_mutex_init(&mutex, nullptr);
  ::pthread_cond_init(&cond, nullptr);
}

queue_pair_core::~queue_pair_core() {
  for (completion_counter* counter : counters_)
    if (counter != nullptr) --counter->attached;
  ::pthread_cond_destroy(&cond);
  ::pthread_mutex_destroy(&mutex);
}

std::uint32_t queue_pair_core::domain() const noexcept { return pd == nullptr ? 0 : number_of(pd); }

packet_header queue_pair_core::header(packet_kind kind, std::uint32_t psn) const noexcept {
  packet_header result{};
  result.kind = kind;
  result.network = static_cast<std::uint8_t>(route_.network);
  result.source = station_here();
  result.target = route_.target;
  result.target_qpn = attributes_.dest_qp_num;
  result.source_qpn = qp_num;
  result.psn = psn & psn_mask;
  if (qp_type == IBV_QPT_UC) result.flags = packet_flag::unreliable;
  if (is_of_xrc()) result.flags = packet_flag::xrc;
  return result;
}

sent queue_pair_core::send(const packet_header& head, const iovec* payload, std::size_t pieces,
                           turn when, payload_of whose) {
  if (faults::silences(place())) return sent::lost;
  const sent result = wire().send(head.target_qpn, head, payload, pieces, whose);
  if (result == sent::blocked) wire().wait_writable(head.target_qpn, qp_num, when);
  if (result == sent::yes) count(port_traffic::way::sent, head.payload);
  return result;
}

void queue_pair_core::count(port_traffic::way which, std::uint64_t bytes) const noexcept {
  // The software device sends larger packets than the path MTU allows, but its counters report the
  // number of packets that the path MTU would require.
  const int shift = is_connected() ? 7 + attributes_.path_mtu : 31;
  const std::uint64_t packets = bytes == 0 ? 1 : ((bytes - 1) >> shift) + 1;
  port_traffic::of(station_here()).add(which, {bytes, packets});
}

void queue_pair_core::count_refusal(port_traffic::way which) const noexcept {
  port_traffic& port = port_traffic::of(station_here());
  ++(which == port_traffic::way::sent ? port.refusals_sent : port.refusals_received);
}

void queue_pair_core::enter_error() {
  attributes_.qp_state = IBV_QPS_ERR;
  show();
  engine().set_deadline(*this, 0);
  engine().schedule(*this);
}

void queue_pair_core::enter_send_error() {
  if (is_reliable()) return enter_error();
  attributes_.qp_state = IBV_QPS_SQE;
  show();
  engine().set_deadline(*this, 0);
  engine().schedule(*this);
}

void queue_pair_core::raise(ibv_event_type type) {
  ibv_async_event event{};
  event.event_type = type;
  event.element.qp = this;
  owner_->async_events().push(event);
}

void queue_pair_core::communication_established() {
  if (established_) return;
  established_ = true;
  raise(IBV_EVENT_COMM_EST);
  show();
}

int queue_pair_core::attach(completion_counter& counter, std::uint32_t operations) noexcept {
  if (now_in() != IBV_QPS_RESET && now_in() != IBV_QPS_INIT) return EINVAL;
  const auto is_asked = [&](std::size_t number) { return (operations >> number & 1U) != 0; };
  for (std::size_t number = 0; number < counters_.size(); ++number)
    if (is_asked(number) && counters_[number] != nullptr) return EBUSY;
  for (std::size_t number = 0; number < counters_.size(); ++number) {
    if (!is_asked(number)) continue;
    counters_[number] = &counter;
    ++counter.attached;
  }
  has_counters_ = true;
  return 0;
}

void queue_pair_core::complete(completion_queue& queue, completion entry) {
  if (entry.owner == nullptr) entry.owner = this;
  entry.wc.qp_num = qp_num;
  if (!queue.push(entry)) completion_lost();
}

void queue_pair_core::complete_directly(completion_queue& queue, completion entry) {
  entry.owner = this;
  entry.wc.qp_num = qp_num;
  if (queue.push(entry)) return;
  overrun_ = true;
  engine().ring(*this);
}

bool queue_pair_core::goes_directly() const noexcept {
  return now_in() == IBV_QPS_RTS && peer_tables_ != nullptr && !overrun_ &&
         !faults::any.load(std::memory_order_relaxed) &&
         (other_ == nullptr ||
          (!other_->gone.load() && peer_tables_->faulty.load(std::memory_order_relaxed) == 0));
}

void queue_pair_core::set_peer(std::shared_ptr<const remote_process> process) noexcept {
  peer_process_ = std::move(process);
  other_ = peer_process_.get();
  seen_peer_ = 0;
}

void queue_pair_core::find_peer() {
  if (other_ != nullptr && other_->gone) {
    peer_tables_ = nullptr;
    set_peer(nullptr);
  }
  if (peer_tables_ != nullptr || !asks_peer_) return;
  if (attributes_.dest_qp_num >> wire::index_bits == wire().slot()) {
    peer_tables_ = &tables();
    return;
  }
  set_peer(wire().find(attributes_.dest_qp_num));
  if (other_ == nullptr) return;
  peer_tables_ = tables_in(other_->tables);
  // Under Valgrind, requests to other processes use packets: if this process read another process's
  // data directly, Memcheck would mark the memory that it fills as accessible.
  if (peer_tables_ == nullptr || other_->process <= 0 || is_emulated()) refuse_directly();
}

void queue_pair_core::show() noexcept {
  auto& place = tables().pairs[number() & wire::index_mask].shown;
  // In RTR, direct requests have to wait for the first packet from the peer, because that packet
  // raises an event. A queue pair that only receives may remain in RTR.
  const bool hears = now_in() == IBV_QPS_RTS || now_in() == IBV_QPS_SQD ||
                     now_in() == IBV_QPS_SQE || (now_in() == IBV_QPS_RTR && established_);
  // XRC requests also depend on a shared receive queue, which is not in the tables.
  if (!is_connected() || is_of_xrc() || !hears || withdrawn_) return place.hide();
  place.show({qp_num, attributes_.dest_qp_num, number_of(pd), attributes_.qp_access_flags,
              service::of(qp_type), static_cast<std::uint8_t>(route_.network), station_here(),
              route_.target, attributes_.max_dest_rd_atomic, device().description().has_atomics});
}

void queue_pair_core::withdraw() noexcept {
  withdrawn_ = true;
  show();
}

void queue_pair_core::offer() noexcept {
  withdrawn_ = false;
  show();
}

void queue_pair_core::show_expected(std::uint32_t psn) noexcept {
  tables().pairs[number() & wire::index_mask].expected_psn.store(psn, std::memory_order_release);
}

void queue_pair_core::completion_lost() {
  if (now_in() == IBV_QPS_ERR) return;
  raise(IBV_EVENT_QP_FATAL);
  enter_error();
}

void queue_pair_core::late_completion_lost() {
  const std::lock_guard held(lock_);
  completion_lost();
}

bool queue_pair_core::is_being_read_here() const noexcept {
  return std::ranges::any_of(std::array{send_cq, recv_cq}, [](const ibv_cq* queue) {
    return queue != nullptr && static_cast<const completion_queue*>(queue)->is_being_read_here();
  });
}

void queue_pair_core::forget_completions() noexcept {
  if (send_cq != nullptr) static_cast<completion_queue*>(send_cq)->forget(*this, true);
  if (recv_cq != nullptr) static_cast<completion_queue*>(recv_cq)->forget(*this, false);
}

}  // namespace softverbs
