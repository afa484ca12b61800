// SPDX-License-Identifier: Apache-2.0
#include "queue_pair/queue_pair.hpp"

#include "queue_pair/frame_spreading.hpp"

#include <mutex>
#include <utility>

namespace softverbs {

queue_pair::queue_pair(open_device& owner, protection_domain* domain,
                       const ibv_qp_init_attr& attributes, xrc_domain* receives_for)
    : queue_pair_core(owner, domain, attributes),
      requests(*this, attributes),
      responses(*this, attributes, receives_for) {}

queue_pair::queue_pair(open_device& owner, protection_domain& domain,
                       const ibv_qp_init_attr& attributes, const frame_spreading& how)
    : queue_pair(owner, &domain, attributes) {
  spreading_ = std::make_unique<const frame_spreading>(how);
  attributes_.qp_state = IBV_QPS_RTR;
  // Flow rules determine the ports from which this queue pair gets frames, so any Ethernet port
  // will do.
  attributes_.port_num = 1;
  while (!device().is_ethernet(attributes_.port_num)) ++attributes_.port_num;
  find_here();
}

queue_pair::~queue_pair() = default;

bool queue_pair::closed_by(const xrc_target& target) noexcept {
  std::erase(open_, &target);
  if (open_.empty()) return false;
  owner_ = &open_.front()->owner;
  return true;
}

void queue_pair::raise(ibv_event_type type) {
  if (!is_target()) return queue_pair_core::raise(type);
  for (xrc_target* each : open_) {
    ibv_async_event event{};
    event.event_type = type;
    event.element.qp = each;
    each->owner.async_events().push(event);
  }
}

xrc_target::xrc_target(open_device& opened_on, queue_pair& real, xrc_opening& through,
                       void* user_context) noexcept
    : ibv_qp{}, owner(opened_on), pair(real), domain(through) {
  context = &owner.verbs();
  qp_context = user_context;
  handle = pair.number();
  qp_num = pair.number();
  state = pair.now_in();
  qp_type = IBV_QPT_XRC_RECV;
  ::pthread_mutex_init(&mutex, nullptr);
  ::pthread_cond_init(&cond, nullptr);
}

xrc_target::~xrc_target() {
  ::pthread_cond_destroy(&cond);
  ::pthread_mutex_destroy(&mutex);
}

bool queue_pair::hears() const noexcept {
  return now_in() != IBV_QPS_RESET && now_in() != IBV_QPS_INIT && now_in() != IBV_QPS_ERR;
}

bool queue_pair::is_from_peer(const packet_header& head) const noexcept {
  // A connection receives only from its peer. Other queue pairs may send packets to its number,
  // too, for example if an earlier queue pair had that number.
  return head.source_qpn == attributes_.dest_qp_num && head.target_qpn == qp_num &&
         head.target == station_here() &&
         head.network == static_cast<std::uint8_t>(route_.network) &&
         route_.target == head.source &&
         ((head.flags & packet_flag::unreliable) == 0) == is_reliable() &&
         ((head.flags & packet_flag::xrc) != 0) == is_of_xrc();
}

bool queue_pair::is_for_us(const packet_header& head) const noexcept {
  const auto infiniband = static_cast<std::uint8_t>(network::infiniband);
  const bool same_layer = (head.network == infiniband) != is_on_ethernet();
  const bool is_addressed = head.target_qpn == multicast_qpn || head.target == station_here();
  // Datagrams with another Q_Key are dropped.
  return same_layer && is_addressed && head.key == attributes_.qkey;
}

void queue_pair::on_packet(const packet& incoming) {
  const std::lock_guard held(lock());
  if (!hears()) return;
  const faults::fate fate = faults::fate_of(place());
  if (fate.lost) return;
  count(port_traffic::way::received, incoming.header.payload);
  if (!fate.twice && !fate.swapped && !swapped_) return take_in(incoming);
  // The packet is copied, because the sender could change it between two reads.
  auto own = std::make_unique<kept_packet>(incoming);
  if (fate.swapped && !swapped_) {
    swapped_ = std::move(own);
    return;
  }
  take_in(own->what);
  if (fate.twice) take_in(own->what);
  if (const auto before = std::exchange(swapped_, nullptr)) take_in(before->what);
}

void queue_pair::take_in(const packet& incoming) {
  const packet_header& head = incoming.header;
  if (!hears()) return;
  if (!is_connected()) {
    const bool is_heard = is_raw() ? head.kind == packet_kind::frame
                                   : head.kind == packet_kind::datagram && is_for_us(head);
    if (!is_heard) return;
    return spreading_ ? spreading_->spread(incoming) : responses.on_datagram(incoming);
  }
  if (!is_from_peer(head)) return;
  // An XRC queue pair has only one half of a connection.
  const bool receives = qp_type != IBV_QPT_XRC_SEND;
  switch (head.kind) {
    case packet_kind::send:
    case packet_kind::write:
      if (receives) responses.on_request(incoming);
      break;
    case packet_kind::acknowledge:
    case packet_kind::refuse:
    case packet_kind::read_response:
      if (is_reliable() && !is_target() && now_in() != IBV_QPS_RTR) take_answer(incoming);
      break;
    default:
      if (receives && is_reliable() && fetches(head.kind)) responses.on_request(incoming);
      break;
  }
}

void queue_pair::take_answer(const packet& incoming) {
  const packet_header& head = incoming.header;
  if (head.kind == packet_kind::acknowledge)
    requests.on_acknowledge(head.psn);
  else if (head.kind == packet_kind::refuse)
    requests.on_refusal(head);
  else
    requests.on_read_response(incoming);
}

void queue_pair::on_deadline(nanoseconds time) {
  const std::lock_guard held(lock());
  if (now_in() == IBV_QPS_RTS || now_in() == IBV_QPS_SQD) requests.on_deadline(time);
}

bool queue_pair::serve() {
  const std::lock_guard held(lock());
  if (std::exchange(overrun_, false)) completion_lost();
  bool more = responses.answer();
  switch (now_in()) {
    case IBV_QPS_RTS:
      if (requests.is_busy()) find_peer();
      more |= requests.transmit();
      break;
    case IBV_QPS_SQD:
      more |= requests.transmit();
      if (attributes_.en_sqd_async_notify != 0 && requests.drained()) {
        attributes_.en_sqd_async_notify = 0;
        raise(IBV_EVENT_SQ_DRAINED);
      }
      break;
    case IBV_QPS_SQE:
      requests.flush();
      break;
    case IBV_QPS_ERR:
      requests.flush();
      responses.flush();
      more = false;
      break;
    default:
      break;
  }
  return more;
}

int queue_pair::enter_machine() {
  const int error = engine().add(*this);
  qp_num = handle = number();
  return error;
}

void queue_pair::leave_machine() {
  const std::lock_guard held(lock());
  if (!faults::silences(place())) responses.leave_answer();
  withdraw();
  engine().remove(*this);
  regions().forget(*this);
}

}  // namespace softverbs
