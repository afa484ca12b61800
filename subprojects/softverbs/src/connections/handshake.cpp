// SPDX-License-Identifier: Apache-2.0
// The messages between an identifier and its peer.
#include "connections/identifier.hpp"
#include "connections/protocol.hpp"
#include "faults/faults.hpp"

#include <infiniband/verbs.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace softverbs {
namespace {

void add_data(message& said, const void* data, std::size_t length) noexcept {
  if (length == 0) return;
  std::memcpy(said.private_data.data() + said.private_length, data, length);
  said.private_length = static_cast<std::uint8_t>(said.private_length + length);
}

}  // namespace

std::uint8_t identifier::most_reads() const noexcept {
  return static_cast<std::uint8_t>(device_at(here_->device).most().outstanding_reads);
}

int identifier::take_depths(const rdma_conn_param* parameters, std::uint8_t most_resources,
                            std::uint8_t most_depth) {
  const auto take = [&](std::uint8_t asked, std::uint8_t most, std::uint8_t& into) {
    if (asked == own_choice) {
      into = most;
      return true;
    }
    into = asked;
    return ps != RDMA_PS_TCP || asked <= most_reads();
  };
  const bool valid = take(parameters != nullptr ? parameters->responder_resources : own_choice,
                          most_resources, agreed_.responder_resources) &&
                     take(parameters != nullptr ? parameters->initiator_depth : own_choice,
                          most_depth, agreed_.initiator_depth);
  return valid ? 0 : EINVAL;
}

int identifier::fill(message& out, const rdma_conn_param* parameters) {
  out.is_datagram = is_datagram() ? 1 : 0;
  const std::size_t given = parameters != nullptr && parameters->private_data != nullptr
                                ? parameters->private_data_len
                                : 0;
  if (connect_data.size() + given > private_room(out.kind, is_datagram())) return EINVAL;
  add_data(out, connect_data.data(), connect_data.size());
  if (given != 0) add_data(out, parameters->private_data, given);
  if (qp != nullptr) {
    out.queue_pair = qp->qp_num;
    out.has_shared_receives = qp->srq != nullptr ? 1 : 0;
  } else if (parameters != nullptr) {
    out.queue_pair = parameters->qp_num;
    out.has_shared_receives = parameters->srq;
  }
  out.psn = agreed_.own_psn;
  out.qkey = RDMA_UDP_QKEY;
  out.vendor = local_vendor.vendor_id;
  out.vendor_options = local_vendor.options;
  out.responder_resources = agreed_.responder_resources;
  out.initiator_depth = agreed_.initiator_depth;
  out.flow_control = parameters != nullptr ? parameters->flow_control : 0;
  out.retries = parameters != nullptr ? parameters->retry_count : most_retries;
  out.rnr_retries = parameters != nullptr ? parameters->rnr_retry_count : most_retries;
  // Each half of an XRC connection sets only the fields that apply to that half, as with
  // InfiniBand's connection manager.
  if (qp_type == IBV_QPT_XRC_SEND)
    out.responder_resources = out.retries = out.rnr_retries = out.has_shared_receives = 0;
  if (qp_type == IBV_QPT_XRC_RECV) {
    out.initiator_depth = out.flow_control = 0;
    out.has_shared_receives = 1;
  }
  return 0;
}

int identifier::connect(const rdma_conn_param* parameters) {
  if (stage_ != stage::routed || !there_) return EINVAL;
  if (parameters == nullptr && qp == nullptr && ps == RDMA_PS_TCP) return EINVAL;
  // Only the sending half of an XRC connection connects. The receiving half listens.
  if (qp_type == IBV_QPT_XRC_RECV) return EINVAL;
  if (const int error = take_depths(parameters, most_reads(), most_reads())) return error;
  request_ = {};
  request_.kind = message_kind::request;
  request_.transport = transport_of(qp_type);
  if (const int error = fill(request_, parameters)) return error;
  request_.source = local_.ip;
  request_.source_port = local_.port;
  // A loopback address means the first device, but the route may lead to a different device.
  const bool is_elsewhere = remote_.is_loopback() && there_->device != 0;
  request_.target = remote_.is_any() || is_elsewhere ? there_->ip : remote_.ip;
  request_.target_port = remote_.port;
  if (parameters != nullptr) agreed_.retries = std::min(parameters->retry_count, most_retries);
  connect_data.clear();
  stage_ = stage::asking;
  gives_up_ = now() + longest_answer;
  is_refused_at_ = now() + longest_absence;
  ask();
  return 0;
}

void identifier::ask() {
  if (faults::port_is_down(station_of(here_->device, here_->port)))
    return refuse(RDMA_CM_EVENT_UNREACHABLE, -ETIMEDOUT);
  ip_address target = remote_;
  target.ip = request_.target;
  socket_ = connect_to(static_cast<port_space>(ps), target);
  if (socket_ >= 0) {
    if (!send(request_) || !events().watch(socket_, *this)) return peer_is_gone();
    return events().wake_at(*this, gives_up_);
  }
  if (errno == ECONNREFUSED && now() >= is_refused_at_) {
    if (is_datagram()) return refuse(RDMA_CM_EVENT_UNREACHABLE, answers::unsupported);
    return refuse(RDMA_CM_EVENT_REJECTED, reasons::no_listener);
  }
  // Either there is no listener yet, or its backlog is full, or a resource such as a descriptor is
  // lacking. A later attempt may succeed.
  events().wake_at(*this, std::min(now() + between_attempts, gives_up_));
}

void identifier::refuse(rdma_cm_event_type type, int error) {
  close_socket();
  events().wake_at(*this, 0);
  stage_ = stage::ended;
  if (type == RDMA_CM_EVENT_REJECTED) {
    message nothing;
    nothing.kind = message_kind::rejection;
    nothing.is_datagram = is_datagram() ? 1 : 0;
    fail_queue_pair();
    return events().post(make_event(type, error, nothing));
  }
  post(type, error);
}

void identifier::on_time() {
  switch (stage_) {
    case stage::listening:
      // The listener was paused because accepting failed for lack of descriptors or memory.
      watch_reserved(true);
      return;
    case stage::asking:
      if (now() >= gives_up_) return refuse(RDMA_CM_EVENT_UNREACHABLE, -ETIMEDOUT);
      if (socket_ < 0) ask();
      return;
    case stage::answered:
      return refuse(RDMA_CM_EVENT_UNREACHABLE, -ETIMEDOUT);
    case stage::leaving:
      post(RDMA_CM_EVENT_DISCONNECTED, -ETIMEDOUT);
      return enter_time_wait();
    case stage::ended:
      return post(RDMA_CM_EVENT_TIMEWAIT_EXIT);
    default:
      return;
  }
}

bool identifier::send(const message& said) {
  const int error = errno;
  message stamped = said;
  stamped.sent_at = now();
  const bool sent = ::send(socket_, &stamped, sizeof(stamped), MSG_DONTWAIT | MSG_NOSIGNAL) ==
                    static_cast<ssize_t>(sizeof(stamped));
  errno = error;
  return sent;
}

int identifier::say(message_kind kind) {
  message said;
  said.kind = kind;
  return send(said) ? 0 : ECONNRESET;
}

bool identifier::peer_has_gone() const noexcept {
  if (socket_ < 0) return true;
  message said;
  return ::recv(socket_, &said, sizeof(said), MSG_DONTWAIT | MSG_PEEK) == 0;
}

int identifier::accept(const rdma_conn_param* parameters) {
  if (stage_ != stage::asked || (parameters == nullptr && qp == nullptr)) return EINVAL;
  if (peer_has_gone()) {
    peer_is_gone();
    return EINVAL;
  }
  if (const int error = take_depths(parameters, std::min(agreed_.responder_resources, most_reads()),
                                    std::min(agreed_.initiator_depth, most_reads())))
    return error;
  message reply;
  reply.kind = message_kind::reply;
  if (const int error = fill(reply, parameters)) return error;
  connect_data.clear();
  if (!is_datagram())
    if (const int error = make_queue_pair_ready()) return error;
  if (!send(reply)) {
    peer_is_gone();
    return EINVAL;
  }
  is_unaccepted_ = false;
  if (is_datagram()) {
    close_socket();
    stage_ = stage::ended;
    return 0;
  }
  stage_ = stage::answered;
  events().wake_at(*this, now() + longest_answer);
  return 0;
}

int identifier::make_queue_pair_ready() {
  if (qp == nullptr) return 0;
  for (const ibv_qp_state next : {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS}) {
    ibv_qp_attr attributes{};
    int mask = 0;
    attributes.qp_state = next;
    if (const int error = queue_pair_attributes(attributes, mask)) return error;
    if (const int error = ibv_modify_qp(qp, &attributes, mask)) return error;
  }
  return 0;
}

void identifier::fail_queue_pair() noexcept {
  if (qp == nullptr) return;
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_ERR;
  static_cast<void>(ibv_modify_qp(qp, &attributes, IBV_QP_STATE));
}

int identifier::establish() {
  if (qp != nullptr || stage_ != stage::answering) return EINVAL;
  if (say(message_kind::ready) != 0) return ECONNRESET;
  stage_ = stage::connected;
  return 0;
}

int identifier::reject(std::span<const std::uint8_t> data, std::uint8_t reason) {
  if (stage_ != stage::asked && stage_ != stage::answering) return EINVAL;
  if (data.size() > private_room(message_kind::rejection, is_datagram())) return EINVAL;
  message said;
  said.kind = message_kind::rejection;
  said.is_datagram = is_datagram() ? 1 : 0;
  said.reason = reason;
  add_data(said, data.data(), data.size());
  send(said);
  close_socket();
  stage_ = stage::ended;
  return 0;
}

int identifier::notify(ibv_event_type noticed) {
  if (verbs == nullptr || is_datagram() || noticed != IBV_EVENT_COMM_EST) return EINVAL;
  if (stage_ == stage::connected) return EISCONN;
  if (stage_ != stage::answered) return EINVAL;
  // The queue pair has received a message, but the peer's `ready` has not arrived yet.
  stage_ = stage::connected;
  events().wake_at(*this, 0);
  post(RDMA_CM_EVENT_ESTABLISHED);
  return 0;
}

int identifier::disconnect() {
  if (verbs == nullptr || is_removed_) return EINVAL;
  fail_queue_pair();
  switch (stage_) {
    case stage::answered:
    case stage::connected:
      if (say(message_kind::disconnect) == 0) {
        stage_ = stage::leaving;
        events().wake_at(*this, now() + longest_answer);
      }
      return 0;  // if the peer has already disconnected, an event reports that
    case stage::leaving:
    case stage::ended:
      return is_datagram() ? EINVAL : 0;
    default:
      return EINVAL;
  }
}

void identifier::enter_time_wait() {
  stage_ = stage::ended;
  close_socket();
  events().wake_at(*this, now() + time_wait);
}

void identifier::close_socket() noexcept {
  if (socket_ < 0) return;
  events().unwatch(socket_);
  ::close(std::exchange(socket_, -1));
}

void identifier::on_ready() {
  if (stage_ == stage::listening) return take_caller();
  message said;
  if (receive(said)) take(said);
}

bool identifier::receive(message& said) {
  const ssize_t got = ::recv(socket_, &said, sizeof(said), MSG_DONTWAIT | MSG_TRUNC);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return false;
  if (got == sizeof(said) && is_valid(said)) return true;
  peer_is_gone();
  return false;
}

void identifier::peer_is_gone() {
  switch (stage_) {
    case stage::asking:
      if (is_datagram()) return refuse(RDMA_CM_EVENT_UNREACHABLE, answers::rejected);
      return refuse(RDMA_CM_EVENT_REJECTED, reasons::by_the_program);
    case stage::asked:
      // As with the kernel's connection manager, there is no event: before the program accepts the
      // request, its identifier has the context of the listener. A later attempt to accept the
      // request fails.
      if (!is_datagram()) fail_queue_pair();
      close_socket();
      stage_ = stage::ended;
      return;
    case stage::answered:
    case stage::answering:
      return refuse(RDMA_CM_EVENT_REJECTED, reasons::by_the_program);
    case stage::connected:
    case stage::leaving:
      post(RDMA_CM_EVENT_DISCONNECTED);
      return enter_time_wait();
    default:
      return close_socket();
  }
}

void identifier::take(const message& said) {
  const bool waits = stage_ == stage::asking;
  switch (said.kind) {
    case message_kind::reply:
      if (waits) return take_reply(said);
      break;
    case message_kind::rejection: {
      if (!waits && stage_ != stage::answered) break;
      auto told = is_datagram()
                      ? make_event(RDMA_CM_EVENT_UNREACHABLE,
                                   said.reason == reasons::no_listener ? answers::unsupported
                                                                       : answers::rejected,
                                   said)
                      : make_event(RDMA_CM_EVENT_REJECTED, said.reason, said);
      close_socket();
      events().wake_at(*this, 0);
      stage_ = stage::ended;
      fail_queue_pair();
      return events().post(std::move(told));
    }
    case message_kind::ready:
      if (stage_ == stage::connected) return;  // the program has reported this with rdma_notify
      if (stage_ != stage::answered) break;
      stage_ = stage::connected;
      events().wake_at(*this, 0);
      return events().post(make_event(RDMA_CM_EVENT_ESTABLISHED, 0, said));
    case message_kind::disconnect:
      if (stage_ != stage::answered && stage_ != stage::connected && stage_ != stage::leaving)
        break;
      static_cast<void>(say(message_kind::disconnected));
      events().post(make_event(RDMA_CM_EVENT_DISCONNECTED, 0, said));
      return enter_time_wait();
    case message_kind::disconnected:
      if (stage_ != stage::leaving) break;
      events().post(make_event(RDMA_CM_EVENT_DISCONNECTED, 0, said));
      return enter_time_wait();
    case message_kind::request:
      break;
  }
  // A message that is invalid in this state ends the connection.
  peer_is_gone();
}

void identifier::take_reply(const message& said) {
  events().wake_at(*this, 0);
  agreed_.queue_pair = said.queue_pair & low_24_bits;
  agreed_.psn = said.psn & low_24_bits;
  agreed_.rnr_retries = std::min(said.rnr_retries, most_retries);
  if (is_datagram()) {
    auto told = make_event(RDMA_CM_EVENT_ESTABLISHED, 0, said);
    close_socket();
    stage_ = stage::ended;
    return events().post(std::move(told));
  }
  agreed_.responder_resources = std::min(said.initiator_depth, most_reads());
  agreed_.initiator_depth = std::min(said.responder_resources, most_reads());
  remote_vendor.vendor_id = said.vendor;
  remote_vendor.options = said.vendor_options;
  stage_ = stage::answering;
  if (qp == nullptr) return events().post(make_event(RDMA_CM_EVENT_CONNECT_RESPONSE, 0, said));
  if (const int error = make_queue_pair_ready()) {
    fail_queue_pair();
    close_socket();
    stage_ = stage::ended;
    return events().post(make_event(RDMA_CM_EVENT_CONNECT_ERROR, -error, said));
  }
  if (say(message_kind::ready) != 0) return peer_is_gone();
  stage_ = stage::connected;
  events().post(make_event(RDMA_CM_EVENT_ESTABLISHED, 0, said));
}

}  // namespace softverbs
