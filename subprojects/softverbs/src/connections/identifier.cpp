// SPDX-License-Identifier: Apache-2.0
#include "connections/identifier.hpp"

#include "connections/devices.hpp"
#include "connections/protocol.hpp"
#include "faults/faults.hpp"

#include <infiniband/verbs.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <functional>
#include <unordered_set>
#include <utility>

namespace softverbs {
namespace {

std::unordered_set<identifier*>& identifiers() {
  static auto* all = new std::unordered_set<identifier*>;  // never freed
  return *all;
}

std::uint32_t random_psn() noexcept {
  std::uint32_t number = 0;
  if (::getrandom(&number, sizeof(number), GRND_NONBLOCK) != sizeof(number))
    number = static_cast<std::uint32_t>(now());
  return number & low_24_bits;
}

}  // namespace

void for_each_identifier(const std::function<void(identifier&)>& visit) {
  for (identifier* each : identifiers()) visit(*each);
}

identifier::identifier(event_channel& events, void* user_context, rdma_port_space space,
                       ibv_qp_type type) {
  channel = &events;
  context = user_context;
  ps = space;
  qp_type = type;
  agreed_.own_psn = random_psn();
  identifiers().insert(this);
}

identifier::~identifier() {
  identifiers().erase(this);
  silence();
}

void identifier::silence() {
  callers_.clear();
  events().wake_at(*this, 0);
  if (stage_ == stage::listening) watch_reserved(false);
  reserved_.reset();
  close_socket();
  stage_ = stage::ended;
  is_removed_ = true;
}

void identifier::drop_events() {
  std::vector<identifier*> orphans;
  events().extract([this](const connection_event& each) { return each.owner == this; },
                   [&](const std::unique_ptr<connection_event>& dropped) {
                     if (dropped->event == RDMA_CM_EVENT_CONNECT_REQUEST)
                       orphans.push_back(&identifier::of(dropped->id));
                   });
  for (identifier* each : orphans) each->destroy();
}

void identifier::destroy() {
  drop_events();
  // If the identifier has its own channel, the channel must be destroyed after the identifier.
  const auto own = std::move(own_channel);
  delete this;
}

void identifier::look_at_device() {
  if (is_removed_ || !here_ || faults::breakages(here_->device) == breakages_) return;
  is_removed_ = true;
  callers_.clear();
  events().wake_at(*this, 0);
  if (stage_ == stage::listening) watch_reserved(false);
  reserved_.reset();
  // The socket stays open, so the peer is notified only when this identifier is destroyed. This is
  // right because a broken device neither sends nor receives.
  if (socket_ >= 0) events().unwatch(socket_);
  stage_ = stage::ended;
  // No event is posted for a request that was not accepted: its `context` is usually still the
  // listener's, so the program would mistake the event for an event of the listener.
  if (!is_unaccepted_) post(RDMA_CM_EVENT_DEVICE_REMOVAL);
}

void identifier::abandon() noexcept {
  if (socket_ >= 0) ::close(std::exchange(socket_, -1));
  for (const auto& each : callers_) each->abandon();
}

std::unique_ptr<connection_event> identifier::make_event(rdma_cm_event_type type, int error) {
  auto made = std::make_unique<connection_event>();
  made->id = this;
  made->event = type;
  made->status = error;
  made->owner = this;
  return made;
}

void identifier::post(rdma_cm_event_type type, int error) {
  events().post(make_event(type, error));
}

std::unique_ptr<connection_event> identifier::make_event(rdma_cm_event_type type, int error,
                                                         const message& said) {
  auto made = make_event(type, error);
  if (said.sent_at != 0) made->caused_at = std::min(made->caused_at, said.sent_at);
  const std::size_t room = private_room(said.kind, said.is_datagram != 0);
  std::copy_n(said.private_data.begin(), said.private_length, made->private_data.begin());
  if (is_datagram()) {
    rdma_ud_param& told = made->param.ud;
    told.private_data = made->private_data.data();
    told.private_data_len = static_cast<std::uint8_t>(room);
    if (type != RDMA_CM_EVENT_ESTABLISHED) return made;
    told.qp_num = said.queue_pair;
    told.qkey = said.qkey;
    ibv_qp_attr attributes{};
    int mask = 0;
    attributes.qp_state = IBV_QPS_RTR;
    static_cast<void>(queue_pair_attributes(attributes, mask));
    told.ah_attr = attributes.ah_attr;
    return made;
  }
  rdma_conn_param& told = made->param.conn;
  told.private_data = room == 0 ? nullptr : made->private_data.data();
  told.private_data_len = static_cast<std::uint8_t>(room);
  if (said.kind == message_kind::rejection) return made;
  // The requests that the sender may initiate are those that this end has to respond to, and the
  // other way round.
  told.responder_resources = said.initiator_depth;
  told.initiator_depth = said.responder_resources;
  told.flow_control = said.flow_control;
  told.retry_count = said.retries;
  told.rnr_retry_count = said.rnr_retries;
  told.srq = said.has_shared_receives;
  told.qp_num = said.queue_pair;
  return made;
}

// The functions for addresses, the route, options and the channel.

int identifier::reserve(ip_address address) {
  reserved_ = reservation::make(static_cast<port_space>(ps), address, options_.reserved);
  if (!reserved_) return errno;
  local_ = address;
  return 0;
}

int identifier::choose(const place& at) {
  // The number of breakages is read before the check. So a breakage after the check changes the
  // number, and `look_at_device` notices it.
  const unsigned breakages = faults::breakages(at.device);
  if (faults::is_broken(at.device)) return ENODEV;
  ibv_context* const opened = manager_context(at.device);
  if (opened == nullptr) return errno;
  ibv_pd* const domain = manager_domain(at.device);
  if (domain == nullptr) return errno;
  here_ = at;
  breakages_ = breakages;
  verbs = opened;
  pd = domain;
  port_num = at.port;
  route.addr.addr.ibaddr.sgid = at.gid;
  route.addr.addr.ibaddr.pkey = htobe16(default_pkey);
  return 0;
}

void identifier::write_addresses() {
  write_address(local_, route.addr.src_storage);
  if (there_ || remote_.port != 0) write_address(remote_, route.addr.dst_storage);
  if (there_) route.addr.addr.ibaddr.dgid = there_->gid;
}

int identifier::bind(const sockaddr* address) {
  if (stage_ != stage::idle) return EINVAL;
  const auto asked = read_address(address);
  if (!asked) return EINVAL;
  std::optional<place> at;
  if (!asked->is_any()) {
    at = place_of(*asked);
    if (!at || !at->is_of_this_process()) return EADDRNOTAVAIL;
  }
  if (const int error = reserve(*asked)) return error;
  if (at)
    if (const int error = choose(*at)) {
      reserved_.reset();
      return error;
    }
  write_addresses();
  stage_ = stage::bound;
  return 0;
}

int identifier::resolve(const sockaddr* source, const sockaddr* target) {
  const auto asked = read_address(target);
  if (!asked || (source != nullptr && !read_address(source))) return EINVAL;
  if (stage_ != stage::idle && stage_ != stage::bound) return EINVAL;
  if (stage_ == stage::idle && source != nullptr)
    if (const int error = bind(source)) return error;
  const bool is_group =
      asked->is_ipv4() ? (asked->ip.raw[12] & 0xf0) == 0xe0 : asked->ip.raw[0] == 0xff;
  if (stage_ == stage::bound && local_.is_ipv4() != asked->is_ipv4() && !local_.is_any())
    return EINVAL;
  const auto nowhere = [this](int error) {
    post(RDMA_CM_EVENT_ADDR_ERROR, -error);
    return 0;
  };
  std::optional<place> from = here_;
  if (is_group) {
    if (!from) from = first_place(0, 1, asked->is_ipv4());
    if (!from) return nowhere(ENODEV);
  } else {
    // If the identifier is bound to a port of a device, a loopback or wildcard target leads to that
    // port.
    there_ = from && (asked->is_loopback() || asked->is_any()) ? from : place_of(*asked);
    if (!there_) return nowhere(ENODEV);
    if (!from) from = place_towards(*there_);
    if (!from || from->type != there_->type) {
      there_.reset();
      return nowhere(ENETUNREACH);
    }
  }
  if (const int error = choose(*from)) return error == ENODEV ? nowhere(error) : error;
  remote_ = *asked;
  if (stage_ == stage::idle) {
    ip_address own{
        .ip = asked->is_loopback() ? asked->ip : from->ip, .port = 0, .family = asked->family};
    if (const int error = reserve(own)) return error;
  } else if (local_.is_any()) {
    local_.ip = asked->is_loopback() ? asked->ip : from->ip;
    local_.family = asked->family;
  }
  write_addresses();
  stage_ = stage::resolved;
  post(RDMA_CM_EVENT_ADDR_RESOLVED);
  return 0;
}

void identifier::write_route() {
  path_ = {};
  path_.sgid = here_->gid;
  path_.dgid = there_ ? there_->gid : ibv_gid{};
  path_.hop_limit = hops;
  path_.traffic_class = options_.type_of_service;
  path_.reversible = 1;
  path_.numb_path = 1;
  path_.pkey = htobe16(default_pkey);
  path_.mtu_selector = 2;  // exactly this MTU
  path_.mtu = static_cast<std::uint8_t>(here_->description().mtu);
  path_.rate_selector = 2;
  path_.rate = IBV_RATE_100_GBPS;
  path_.packet_life_time_selector = 2;
  path_.packet_life_time = usual_timeout - 1;
  if (!here_->is_ethernet()) {
    path_.slid = htobe16(lid_of(station_of(here_->device, here_->port)));
    if (there_) path_.dlid = htobe16(lid_of(station_of(there_->device, there_->port)));
  }
  route.path_rec = &path_;
  route.num_paths = 1;
}

int identifier::resolve_route() {
  if (stage_ != stage::resolved) return EINVAL;
  write_route();
  stage_ = stage::routed;
  post(RDMA_CM_EVENT_ROUTE_RESOLVED);
  return 0;
}

int identifier::set_option(int level, int name, const void* value, std::size_t length) {
  if (value == nullptr) return EINVAL;
  if (level != RDMA_OPTION_ID) return ENOSYS;
  const auto flag = [&](bool& into) {
    int given = 0;
    if (length != sizeof(given)) return EINVAL;
    std::memcpy(&given, value, sizeof(given));
    into = given != 0;
    return 0;
  };
  const auto byte = [&](std::uint8_t& into) {
    if (length != sizeof(into)) return EINVAL;
    std::memcpy(&into, value, sizeof(into));
    return 0;
  };
  switch (name) {
    case RDMA_OPTION_ID_TOS:
      return byte(options_.type_of_service);
    case RDMA_OPTION_ID_REUSEADDR: {
      bool given = false;
      if (const int error = flag(given)) return error;
      // As in the kernel, a bound identifier can still be made reusable until it listens.
      if (stage_ != stage::idle && (!given || stage_ == stage::listening)) return EINVAL;
      options_.reserved.reusable = given;
      if (reserved_) reserved_->permit_sharing();
      return 0;
    }
    case RDMA_OPTION_ID_AFONLY:
      return stage_ == stage::idle ? flag(options_.reserved.only_ipv6) : EINVAL;
    case RDMA_OPTION_ID_ACK_TIMEOUT: {
      std::uint8_t given = 0;
      const bool repeats = qp_type == IBV_QPT_RC || qp_type == IBV_QPT_XRC_SEND;
      if (!repeats || byte(given) != 0 || given > 31) return EINVAL;
      options_.acknowledgement_timeout = given;
      options_.has_acknowledgement_timeout = true;
      return 0;
    }
    default:
      return ENOSYS;
  }
}

void identifier::move_to(event_channel& other) {
  const nanoseconds when = wakes_at;
  events().wake_at(*this, 0);
  if (socket_ >= 0) events().unwatch(socket_);
  if (stage_ == stage::listening) watch_reserved(false);
  for (const auto& each : callers_) each->move_to(other);
  bool has_request = false;
  events().extract([this](const connection_event& each) { return each.owner == this; },
                   [&](std::unique_ptr<connection_event> each) {
                     identifier& about = of(each->id);
                     other.post(std::move(each));
                     if (&about == this) return;
                     // The identifier of a request that the program has not received yet.
                     has_request = true;
                     about.move_to(other);
                   });
  channel = &other;
  if (socket_ >= 0 && !is_removed_) events().watch(socket_, *this);
  // Further clients wait in the backlog until the program has received the request.
  if (stage_ == stage::listening && !has_request) watch_reserved(true);
  if (when != 0) events().wake_at(*this, when);
}

}  // namespace softverbs
