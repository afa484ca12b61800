// SPDX-License-Identifier: Apache-2.0
// The part of an identifier that listens.
#include "connections/identifier.hpp"
#include "connections/protocol.hpp"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <utility>

namespace softverbs {

identifier::caller::~caller() {
  listener_.events().wake_at(*this, 0);
  if (socket_ < 0) return;
  listener_.events().unwatch(socket_);
  ::close(socket_);
}

void identifier::caller::move_to(event_channel& other) {
  event_channel& before = listener_.events();
  const nanoseconds when = wakes_at;
  before.wake_at(*this, 0);
  before.unwatch(socket_);
  other.watch(socket_, *this);
  other.wake_at(*this, when);
}

void identifier::caller::abandon() noexcept {
  if (socket_ >= 0) ::close(std::exchange(socket_, -1));
}

void identifier::caller::on_ready() {
  message said;
  const ssize_t got = ::recv(socket_, &said, sizeof(said), MSG_DONTWAIT | MSG_TRUNC);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  identifier& listener = listener_;
  if (got == sizeof(said) && is_valid(said)) {
    listener.events().unwatch(socket_);
    listener.take_request(std::exchange(socket_, -1), said);
  }
  listener.forget(*this);
}

void identifier::take_caller() {
  for (const int each : reserved_->sockets) {
    if (each < 0) continue;
    const int accepted = ::accept4(each, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (accepted >= 0) return call(accepted);
    if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
      // The socket stays readable, so it is not watched until the next attempt.
      watch_reserved(false);
      return events().wake_at(*this, now() + between_attempts);
    }
  }
}

bool identifier::watch_reserved(bool wanted) noexcept {
  bool done = true;
  for (const int each : reserved_->sockets) {
    if (each < 0) continue;
    if (wanted)
      done = events().watch(each, *this) && done;
    else
      events().unwatch(each);
  }
  return done;
}

int identifier::listen(int backlog) {
  if (stage_ == stage::idle) {
    sockaddr_in any{};
    any.sin_family = AF_INET;
    if (const int error = bind(reinterpret_cast<const sockaddr*>(&any))) return error;
  }
  if (stage_ != stage::bound) return EINVAL;
  if (backlog <= 0 || backlog > longest_backlog) backlog = longest_backlog;
  if (!reserved_->listen(backlog)) return errno;
  if (!watch_reserved(true)) return errno;
  stage_ = stage::listening;
  return 0;
}

void identifier::call(int socket) {
  if (callers_.size() >= most_callers) callers_.pop_front();
  caller& one = *callers_.emplace_back(std::make_unique<caller>(*this, socket));
  if (!events().watch(socket, one)) {
    callers_.pop_back();
    return;
  }
  events().wake_at(one, now() + longest_silence);
  // The client's request has usually arrived already.
  one.on_ready();
}

void identifier::forget(const caller& one) noexcept {
  std::erase_if(callers_, [&](const auto& each) { return each.get() == &one; });
}

void identifier::take_request(int socket, const message& said) {
  const ip_address source{
      .ip = said.source,
      .port = said.source_port,
      .family = static_cast<sa_family_t>(is_ipv4(said.source) ? AF_INET : AF_INET6)};
  const ip_address target{.ip = said.target, .port = said.target_port, .family = source.family};
  const auto there = place_of(source);
  const auto here = place_of(target);
  const bool is_wanted = (said.is_datagram != 0) == is_datagram() &&
                         said.transport == transport_of(qp_type) && qp_type != IBV_QPT_XRC_SEND;
  if (said.kind != message_kind::request || !is_wanted || !there || !here ||
      here->type != there->type) {
    ::close(socket);
    return;
  }
  auto made = std::make_unique<identifier>(events(), context, ps, qp_type);
  made->socket_ = socket;
  made->request_ = said;
  made->stage_ = stage::asked;
  made->is_unaccepted_ = true;
  made->options_ = options_;
  made->there_ = there;
  made->local_ = target;
  made->remote_ = source;
  made->agreed_.queue_pair = said.queue_pair & low_24_bits;
  made->agreed_.psn = said.psn & low_24_bits;
  made->agreed_.retries = std::min(said.retries, most_retries);
  made->agreed_.rnr_retries = std::min(said.rnr_retries, most_retries);
  made->agreed_.responder_resources = said.initiator_depth;
  made->agreed_.initiator_depth = said.responder_resources;
  made->remote_vendor.vendor_id = said.vendor;
  made->remote_vendor.options = said.vendor_options;
  // If the device belongs to another process, or can't be used, the request is rejected as if
  // nothing listened on the address.
  if (!here->is_of_this_process() || made->choose(*here) != 0) {
    message no;
    no.kind = message_kind::rejection;
    no.is_datagram = said.is_datagram;
    no.reason = reasons::no_listener;
    made->send(no);
    return;
  }
  made->write_addresses();
  made->write_route();
  if (!events().watch(socket, *made)) return;
  auto told = made->make_event(RDMA_CM_EVENT_CONNECT_REQUEST, 0, said);
  told->listen_id = this;
  told->owner = this;
  told->id = made.release();  // owned by the event, and later by the program
  events().post(std::move(told));
  // Further clients wait in the backlog until the program has received this event.
  watch_reserved(false);
}

void identifier::take_next_request() {
  if (stage_ == stage::listening) watch_reserved(true);
}

}  // namespace softverbs
