// SPDX-License-Identifier: Apache-2.0
#include "queue_pair/queue_pair_core.hpp"

#include "memory/protection_domain.hpp"

namespace softverbs {

queue_pair_core::queue_pair_core(open_device& owner, protection_domain& domain,
                                 const ibv_qp_init_attr& attributes)
    : owner_(owner), initial_(attributes) {
  context = &owner.verbs();
  qp_context = attributes.qp_context;
  pd = &domain;
  send_cq = attributes.send_cq;
  recv_cq = attributes.recv_cq;
  srq = attributes.srq;
  state = IBV_QPS_RESET;
  qp_type = attributes.qp_type;
  attributes_.qp_state = IBV_QPS_RESET;
  attributes_.cap = attributes.cap;
  ::pthread_mutex_init(&mutex, nullptr);
  ::pthread_cond_init(&cond, nullptr);
}

queue_pair_core::~queue_pair_core() {
  ::pthread_cond_destroy(&cond);
  ::pthread_mutex_destroy(&mutex);
}

packet_header queue_pair_core::header(packet_kind kind, std::uint32_t psn) const noexcept {
  packet_header result{};
  result.kind = kind;
  result.network = static_cast<std::uint8_t>(route_.network);
  result.source_device = owner_.device().number;
  result.target_device = route_.device;
  result.target_qpn = attributes_.dest_qp_num;
  result.source_qpn = qp_num;
  result.psn = psn & psn_mask;
  if (qp_type == IBV_QPT_UC) result.flags = packet_flag::unreliable;
  return result;
}

sent queue_pair_core::send(const packet_header& head, const iovec* payload, std::size_t pieces,
                           turn when) {
  if (faults::silences(place())) return sent::lost;
  const sent result = wire().send(head.target_qpn, head, payload, pieces);
  if (result == sent::blocked) wire().wait_writable(head.target_qpn, qp_num, when);
  return result;
}

void queue_pair_core::enter_error() {
  attributes_.qp_state = IBV_QPS_ERR;
  engine().set_deadline(*this, 0);
  engine().schedule(*this);
}

void queue_pair_core::enter_send_error() {
  if (is_reliable()) return enter_error();
  attributes_.qp_state = IBV_QPS_SQE;
  engine().set_deadline(*this, 0);
  engine().schedule(*this);
}

void queue_pair_core::raise(ibv_event_type type) {
  ibv_async_event event{};
  event.event_type = type;
  event.element.qp = this;
  owner_.async_events().push(event);
}

void queue_pair_core::communication_established() {
  if (established_) return;
  established_ = true;
  raise(IBV_EVENT_COMM_EST);
}

void queue_pair_core::complete(completion_queue& queue, completion entry) {
  entry.owner = this;
  entry.wc.qp_num = qp_num;
  if (!queue.push(entry)) completion_lost();
}

void queue_pair_core::completion_lost() {
  if (now_in() == IBV_QPS_ERR) return;
  raise(IBV_EVENT_QP_FATAL);
  enter_error();
}

bool queue_pair_core::is_being_read_here() const noexcept {
  return static_cast<const completion_queue*>(send_cq)->is_being_read_here() ||
         static_cast<const completion_queue*>(recv_cq)->is_being_read_here();
}

void queue_pair_core::forget_completions() noexcept {
  for (ibv_cq* queue : {send_cq, recv_cq}) static_cast<completion_queue*>(queue)->forget(*this);
}

}  // namespace softverbs
