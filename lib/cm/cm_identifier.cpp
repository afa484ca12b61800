// SPDX-License-Identifier: Apache-2.0
#include <verbspp/base/destroy_failure.hpp>
#include <verbspp/base/detail/wait_readable.hpp>
#include <verbspp/base/detail/words.hpp>
#include <verbspp/base/object_trace.hpp>
#include <verbspp/cm/cm_options.hpp>
#include <verbspp/cm/detail/cm_identifier.hpp>

#include <fcntl.h>
#include <poll.h>
#include <rdma/rdma_cma.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <span>

namespace verbspp::detail {

namespace {

constexpr const char* no_manager =
    "this machine has no RDMA device (see `ibv_devices`), or the kernel's connection manager is "
    "not available: load its module, rdma_ucm, and check that /dev/infiniband/rdma_cm exists";
constexpr const char* no_device =
    "no RDMA device has a route to this address (from the source address, if one was given): the "
    "route must leave through an interface with an RDMA device (compare `ip route get` with `rdma "
    "link`)";
constexpr const char* no_device_or_port =
    "no RDMA device has a route to this address (from the source address, if one was given), or no "
    "source port is free: compare `ip route get` with `rdma link`, and see `rdma resource show "
    "cm_id` for the ports in use";
constexpr const char* no_free_port =
    "no port is free: destroy objects of the connection manager that are no longer needed (see "
    "`rdma resource show cm_id`)";
constexpr const char* no_such_source =
    "no RDMA device of this host has the source address (see `rdma link` and `ip address`), or "
    "another identifier uses the source port on all addresses";
constexpr const char* no_such_local_address =
    "no RDMA device that this process can open has this address (see `rdma link`, `ibv_devices` "
    "and `ip address`), another identifier uses this port on all addresses, or (for port 0) no "
    "port is free";

std::size_t format_taken_port(const error& e, std::span<char> buffer) noexcept {
  const int length =
      std::snprintf(buffer.data(), buffer.size(),
                    "%s: port %u is already in use (see `rdma resource show cm_id`): %s",
                    e.operation(), static_cast<unsigned>(error_access::facts(e)[0]), e.hint());
  return length > 0 ? static_cast<std::size_t>(length) : 0;
}
int code_of_taken_port(const error& e) noexcept { return e.native_errno(); }
constexpr error_source source_of_taken_port{.format = &format_taken_port,
                                            .code = &code_of_taken_port};

/// Returns the error for a port that is in use or, for port 0, for the lack of a free port.
error taken_port(const char* operation, std::uint16_t port, int errnum, const char* hint) noexcept {
  if (port == 0) return error::from_errno(errnum, operation).as(error_kind::busy, no_free_port);
  return error_access::with_errno(
      error_access::made(source_of_taken_port, operation, hint, {port, 0, 0}, error_kind::busy),
      errnum);
}

/// Converts the return value of a librdmacm function, which leaves its errno in `errno`.
result<void> outcome_of(int returned, const char* operation, const char* hint = nullptr) noexcept {
  if (returned == 0) return success();
  return error::from_errno(errno != 0 ? errno : EIO, operation, hint);
}

/// True for an errno which means that there is no route to an address.
bool is_of_no_way(int errnum) noexcept {
  return errnum == ENODEV || errnum == ENETUNREACH || errnum == EHOSTUNREACH ||
         errnum == EADDRNOTAVAIL || errnum == ENOENT;
}

/// The remaining time in whole milliseconds, for librdmacm: at least one. It is at most an hour,
/// because librdmacm has no infinite timeout.
int milliseconds_to(const wait_limit& limit) noexcept {
  using namespace std::chrono;
  constexpr milliseconds longest = hours(1);
  if (limit.is_forever() || limit.deadline() == (wait_limit::time_point::max)())
    return static_cast<int>(longest.count());
  const auto left = ceil<milliseconds>(limit.deadline() - steady_clock::now());
  return static_cast<int>(std::clamp(left, milliseconds(1), longest).count());
}

/// Removes `const`, because librdmacm's functions require a pointer to a non-const address,
/// although they do not modify the address.
sockaddr* of_c(const cm_address& address) noexcept {
  return const_cast<sockaddr*>(address.native());
}

/// True for 0.0.0.0 and ::.
bool is_any(const cm_address& address) noexcept {
  return address == cm_address::any(address.port()) ||
         address == cm_address::from("0.0.0.0", address.port()).assume_value();
}

void destroy_channel(rdma_event_channel* channel) noexcept {
  rdma_destroy_event_channel(channel);
  trace("rdma_destroy_event_channel", channel);
}

result<rdma_event_channel*> create_channel() noexcept {
  errno = 0;
  rdma_event_channel* const channel = rdma_create_event_channel();
  if (channel == nullptr) {
    const int errnum = errno;
    const error failed = error::from_errno(errnum, "rdma_create_event_channel");
    if (errnum == ENODEV || errnum == ENOENT || errnum == ENOSYS || errnum == 0)
      return failed.as(error_kind::not_supported, no_manager);
    return failed;
  }
  const int flags = ::fcntl(channel->fd, F_GETFL);
  if (flags == -1 || ::fcntl(channel->fd, F_SETFL, flags | O_NONBLOCK) == -1) {
    const int errnum = errno;
    rdma_destroy_event_channel(channel);
    return error::from_errno(errnum, "fcntl");
  }
  trace("rdma_create_event_channel", channel);
  return channel;
}

bool is_of_datagrams(const rdma_cm_event& event) noexcept {
  return event.id->ps == RDMA_PS_UDP || event.id->ps == RDMA_PS_IPOIB;
}

cm_event_data copy_of(const rdma_cm_event& native) noexcept {
  cm_event_data event;
  event.event = static_cast<cm_event>(native.event);
  event.status = native.status;
  const void* data = nullptr;
  if (native.event == RDMA_CM_EVENT_MULTICAST_JOIN ||
      native.event == RDMA_CM_EVENT_MULTICAST_ERROR || is_of_datagrams(native)) {
    const rdma_ud_param& told = native.param.ud;
    event.path = told.ah_attr;
    event.queue_pair = told.qp_num;
    event.qkey = told.qkey;
    event.size = told.private_data_len;
    data = told.private_data;
  } else {
    const rdma_conn_param& told = native.param.conn;
    event.responder_resources = told.responder_resources;
    event.initiator_depth = told.initiator_depth;
    event.size = told.private_data_len;
    data = told.private_data;
  }
  if (native.event == RDMA_CM_EVENT_CONNECT_REQUEST) event.request = native.id;
  // In events about a multicast group, `private_data` is a pointer that was passed to the join, and
  // not data from a peer.
  if (data == nullptr || native.event == RDMA_CM_EVENT_MULTICAST_JOIN ||
      native.event == RDMA_CM_EVENT_MULTICAST_ERROR)
    event.size = 0;
  if (event.size != 0) std::memcpy(event.data.data(), data, event.size);
  return event;
}

}  // namespace

error cm_moved_from(const char* operation) noexcept {
  return {error_kind::invalid_input, operation,
          "an object that this call uses was moved from, or an earlier call has consumed it"};
}

error cm_failure(const cm_event_data& event, const char* step) noexcept {
  const int errnum = event.status < 0 ? -event.status : event.status;
  switch (event.event) {
    case cm_event::address_error: {
      const error failed = error::from_errno(errnum, step);
      if (errnum == ETIMEDOUT || errnum == EHOSTUNREACH)
        return failed.as(error_kind::timed_out,
                         "the address cannot be reached: no host has it, its host is down (check "
                         "with ping), no route leads to it (check `ip route get`), or the limit "
                         "was too short");
      return is_of_no_way(errnum) ? failed.as(error_kind::not_found, no_device) : failed;
    }
    case cm_event::route_error: {
      const error failed = error::from_errno(errnum, step);
      if (errnum == ETIMEDOUT)
        return failed.as(error_kind::timed_out,
                         "the subnet manager did not return the route in time: check that it is "
                         "running, or allow more time");
      return failed.as(
          error_kind::not_found,
          "the connection manager found no route: check `ip route get`, or on InfiniBand the "
          "subnet manager");
    }
    case cm_event::unreachable:
      // A positive status comes from the peer's response to the lookup of a service.
      if (event.status > 0)
        return {error_kind::not_connected, step,
                "no server listens at this address and port, or the server rejected or dropped the "
                "lookup of its service: start the server, check the address and port, or see its "
                "output"};
      return error::from_errno(errnum, step)
          .as(errnum == ETIMEDOUT || errnum == 0 ? error_kind::timed_out : error_kind::not_found,
              "the peer has not answered: check that its host is up (with ping), that no firewall "
              "blocks UDP port 4791 (RoCE v2), and that its program still takes requests (server) "
              "or waits for the connection (client)");
    case cm_event::rejected:
      // On iWARP, the status is a negative errno.
      if (event.status < 0)
        return error::from_errno(errnum, step)
            .as(error_kind::not_connected, to_string(cm_rejection_reason::unknown));
      return {error_kind::not_connected, step,
              to_string(static_cast<cm_rejection_reason>(event.status))};
    case cm_event::disconnected:
      return {error_kind::not_connected, step, "the peer has already closed the connection"};
    case cm_event::device_removal:
      return {error_kind::not_found, step,
              "the device was removed: destroy all objects that were created on it"};
    case cm_event::address_change:
      return {
          error_kind::not_connected, step,
          "the address has moved to another device: resolve the route again, accept a new request, "
          "or join the group again"};
    case cm_event::multicast_error:
      return error::from_errno(
          errnum, step,
          "the multicast group could not be joined: check that the port is active and, on "
          "InfiniBand, check the subnet manager");
    case cm_event::connect_error:
      return error::from_errno(errnum != 0 ? errnum : EPROTO, step,
                               "the device or the connection manager could not set up the "
                               "connection: try again, and see the kernel's log");
    default: {
      std::array<char, longest_words> words{};
      std::snprintf(words.data(), words.size(),
                    "the connection manager reported an unexpected event: %s (number %u, status "
                    "%d); see the kernel's log",
                    to_string(event.event), static_cast<unsigned>(event.event), event.status);
      const int code = errnum != 0 ? errnum : EPROTO;
      return error_in_words(kind_of_errno(code), step, words.data(), code);
    }
  }
}

result<cm_identifier> cm_identifier::create(cm_service service) noexcept {
  VERBSPP_TRY(channel, create_channel());
  rdma_cm_id* id = nullptr;
  errno = 0;
  if (rdma_create_id(channel, &id, nullptr,
                     service == cm_service::connections ? RDMA_PS_TCP : RDMA_PS_UDP) != 0) {
    const int errnum = errno;
    destroy_channel(channel);
    return error::from_errno(errnum, "rdma_create_id");
  }
  trace("rdma_create_id", id);
  return cm_identifier(channel, id);
}

result<cm_identifier> cm_identifier::adopt(rdma_cm_id* request) noexcept {
  const auto channel = create_channel();
  if (!channel.has_value()) {
    rdma_destroy_id(request);
    return channel.assume_error();
  }
  // Events that have already arrived for the request migrate with it.
  errno = 0;
  if (rdma_migrate_id(request, channel.assume_value()) != 0) {
    const int errnum = errno;
    rdma_destroy_id(request);
    destroy_channel(channel.assume_value());
    return error::from_errno(errnum, "rdma_migrate_id");
  }
  return cm_identifier(channel.assume_value(), request);
}

void cm_identifier::destroy() noexcept {
  // If this is a listener, the kernel rejects the connection requests that the program has not
  // taken from it.
  if (id_ != nullptr) report_destroy(id_, rdma_destroy_id(id_) != 0 ? errno : 0, "rdma_destroy_id");
  if (channel_ != nullptr) destroy_channel(channel_);
  id_ = nullptr;
  channel_ = nullptr;
}

result<void> cm_identifier::set_reuse_address() noexcept {
  int on = 1;
  return outcome_of(rdma_set_option(id_, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &on, sizeof on),
                    "rdma_set_option (reuse of the address)");
}

result<void> cm_identifier::set_only_ipv6() noexcept {
  int on = 1;
  return outcome_of(rdma_set_option(id_, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &on, sizeof on),
                    "rdma_set_option (only IPv6)");
}

result<void> cm_identifier::set_type_of_service(std::uint8_t type) noexcept {
  return outcome_of(rdma_set_option(id_, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &type, sizeof type),
                    "rdma_set_option (type of service)");
}

result<void> cm_identifier::bind(const cm_address& address) noexcept {
  constexpr const char* operation = "rdma_bind_addr";
  errno = 0;
  if (rdma_bind_addr(id_, of_c(address)) == 0) return success();
  const error failed = error::from_errno(errno, operation);
  const int errnum = failed.native_errno();
  // The kernel also reports EADDRNOTAVAIL for a port that another identifier uses, if one of the
  // two identifiers is bound to all addresses. The same errno also means that port 0 was requested,
  // but no port is free.
  if (errnum == EADDRINUSE || (errnum == EADDRNOTAVAIL && is_any(address)))
    return taken_port(operation, address.port(), errnum, "choose another port");
  if (is_of_no_way(errnum)) return failed.as(error_kind::not_found, no_such_local_address);
  return failed;
}

result<void> cm_identifier::listen(int backlog) noexcept {
  errno = 0;
  if (rdma_listen(id_, backlog) == 0) return success();
  const error failed = error::from_errno(errno, "rdma_listen");
  const int errnum = failed.native_errno();
  // The identifier is bound, so EADDRNOTAVAIL usually concerns the port (see `bind`).
  if (errnum == EADDRINUSE || errnum == EADDRNOTAVAIL)
    return taken_port("rdma_listen", local_address().port(), errnum, "choose another port");
  return failed;
}

result<void> cm_identifier::resolve_address(const cm_address& source, const cm_address& destination,
                                            const wait_limit& limit) noexcept {
  errno = 0;
  if (rdma_resolve_addr(id_, source.is_empty() ? nullptr : of_c(source), of_c(destination),
                        milliseconds_to(limit)) == 0)
    return success();
  const error failed = error::from_errno(errno, "rdma_resolve_addr");
  const int errnum = failed.native_errno();
  if (errnum == EADDRINUSE || (errnum == EADDRNOTAVAIL && is_any(source)))
    return taken_port("rdma_resolve_addr", source.port(), errnum, "choose another source port");
  if (errnum == EADDRNOTAVAIL)
    return failed.as(error_kind::not_found,
                     source.port() != 0 ? no_such_source : no_device_or_port);
  if (is_of_no_way(errnum)) return failed.as(error_kind::not_found, no_device);
  return failed;
}

result<void> cm_identifier::resolve_route(const wait_limit& limit) noexcept {
  errno = 0;
  return outcome_of(rdma_resolve_route(id_, milliseconds_to(limit)), "rdma_resolve_route");
}

result<void> cm_identifier::connect(rdma_conn_param& parameters) noexcept {
  errno = 0;
  return outcome_of(rdma_connect(id_, &parameters), "rdma_connect");
}

result<void> cm_identifier::accept(rdma_conn_param& parameters) noexcept {
  errno = 0;
  if (rdma_accept(id_, &parameters) == 0) return success();
  const error failed = error::from_errno(errno, "rdma_accept");
  // These errnos usually mean that the request can no longer be accepted.
  if (errno == EINVAL || errno == ENOTCONN || errno == ECONNRESET)
    return failed.as(
        error_kind::not_connected,
        "usually the peer gave up before its request was accepted (accept requests sooner, or let "
        "the peer wait longer), or the device was removed");
  return failed;
}

result<void> cm_identifier::establish() noexcept {
  errno = 0;
  if (rdma_establish(id_) == 0) return success();
  return error::from_errno(errno, "rdma_establish")
      .as(error_kind::not_connected,
          "the connection could not be established, usually because the peer gave up first: see "
          "the peer's output, or let the peer wait longer");
}

result<void> cm_identifier::reject(std::span<const std::byte> data) noexcept {
  errno = 0;
  return outcome_of(rdma_reject(id_, data.data(), static_cast<std::uint8_t>(data.size())),
                    "rdma_reject");
}

result<void> cm_identifier::disconnect() noexcept {
  errno = 0;
  return outcome_of(rdma_disconnect(id_), "rdma_disconnect");
}

result<void> cm_identifier::join(const cm_address& group) noexcept {
  errno = 0;
  return outcome_of(rdma_join_multicast(id_, of_c(group), nullptr), "rdma_join_multicast");
}

result<void> cm_identifier::leave(const cm_address& group) noexcept {
  errno = 0;
  return outcome_of(rdma_leave_multicast(id_, of_c(group)), "rdma_leave_multicast");
}

result<managed_attributes> cm_identifier::attributes() noexcept {
  managed_attributes made;
  const auto ask = [this](managed_attributes::step& step, ibv_qp_state state) {
    step.attributes.qp_state = state;
    errno = 0;
    return outcome_of(rdma_init_qp_attr(id_, &step.attributes, &step.mask), "rdma_init_qp_attr");
  };
  VERBSPP_TRYV(ask(made.init, IBV_QPS_INIT));
  VERBSPP_TRYV(ask(made.ready_to_receive, IBV_QPS_RTR));
  VERBSPP_TRYV(ask(made.ready_to_send, IBV_QPS_RTS));
  return made;
}

result<std::optional<cm_event_data>> cm_identifier::next_event() noexcept {
  constexpr const char* operation = "rdma_get_cm_event";
  if (id_ == nullptr) return cm_moved_from(operation);
  rdma_cm_event* native = nullptr;
  for (;;) {
    errno = 0;
    if (rdma_get_cm_event(channel_, &native) == 0) break;
    if (errno == EAGAIN) return std::nullopt;
    if (errno != EINTR) return error::from_errno(errno != 0 ? errno : EIO, operation);
  }
  cm_event_data event = copy_of(*native);
  // If a step of librdmacm itself has failed, the status is -1, and the cause is in errno.
  if (event.status == -1) event.status = errno != 0 ? -errno : -EPROTO;
  rdma_ack_cm_event(native);
  return event;
}

result<bool> cm_identifier::wait_readable(const wait_limit& limit) const noexcept {
  pollfd entry{.fd = file_descriptor(), .events = POLLIN, .revents = 0};
  return detail::wait_readable(std::span(&entry, 1), limit);
}

result<std::optional<cm_event_data>> cm_identifier::wait_event(const wait_limit& limit) noexcept {
  for (;;) {
    VERBSPP_TRY(event, next_event());
    if (event) return event;
    VERBSPP_TRY(is_readable, wait_readable(limit));
    if (!is_readable) return std::nullopt;
  }
}

int cm_identifier::file_descriptor() const noexcept {
  return channel_ != nullptr ? channel_->fd : -1;
}

ibv_context* cm_identifier::native_context() const noexcept {
  return id_ != nullptr ? id_->verbs : nullptr;
}

result<context> cm_identifier::device_context() const noexcept {
  if (id_ == nullptr) return cm_moved_from("get the device's context");
  return context::from_native(id_->verbs, ownership::borrowed);
}

port_number cm_identifier::port() const noexcept {
  return id_ != nullptr && id_->port_num != 0 ? port_number::assume(id_->port_num) : port_number();
}

cm_address cm_identifier::local_address() const noexcept {
  if (id_ == nullptr) return {};
  const auto address = cm_address::from_native(&id_->route.addr.src_addr);
  return address.has_value() ? address.assume_value() : cm_address();
}

cm_address cm_identifier::remote_address() const noexcept {
  if (id_ == nullptr) return {};
  const auto address = cm_address::from_native(&id_->route.addr.dst_addr);
  return address.has_value() ? address.assume_value() : cm_address();
}

}  // namespace verbspp::detail
