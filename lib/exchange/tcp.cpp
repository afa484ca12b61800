// SPDX-License-Identifier: Apache-2.0
#include "base/readable.hpp"
#include "device/socket_gid.hpp"
#include "exchange/lookup.hpp"
#include "exchange/tcp_attempt.hpp"
#include <verbspp/base/detail/words.hpp>
#include <verbspp/exchange/tcp.hpp>

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <span>

namespace verbspp {

namespace {

using detail::socket_address;

constexpr const char* listening = "listen on TCP";
constexpr const char* accepting = "accept over TCP";

/// True if accepting again may succeed, because the error concerns only one client, or a signal
/// interrupted the call.
bool is_passing(int errnum) noexcept {
  constexpr std::array passing{EINTR,       ECONNABORTED, EPROTO,    ENETDOWN,
                               ENOPROTOOPT, ENONET,       EHOSTDOWN, EHOSTUNREACH,
                               EOPNOTSUPP,  ENETUNREACH,  EPERM};
  return std::ranges::find(passing, errnum) != passing.end();
}

/// Returns the port, which is at the same offset in both address families.
std::uint16_t port_in(const socket_address& address) noexcept {
  in_port_t number = 0;
  std::memcpy(&number,
              reinterpret_cast<const char*>(&address.storage) + offsetof(sockaddr_in, sin_port),
              sizeof number);
  return ntohs(number);
}

/// Returns the error for a port that is in use or, for port 0, for the lack of a free port.
error taken_port(const socket_address& address) noexcept {
  if (port_in(address) == 0)
    return detail::error_in_words(
        error_kind::busy, listening,
        "no port is free (EADDRINUSE): close sockets that are no longer needed", EADDRINUSE);
  std::array<char, detail::longest_words> words{};
  std::snprintf(
      words.data(), words.size(),
      "another socket uses the port of %s (EADDRINUSE): choose another port, or close that socket",
      detail::printed_address(address).text.data());
  return detail::error_in_words(error_kind::busy, listening, words.data(), EADDRINUSE);
}

result<tcp_socket> listen_at(const socket_address& address, bool takes_both) noexcept {
  tcp_socket socket = tcp_socket::from_native(
      ::socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.is_open()) return error::from_errno(errno, listening);
  const int on = 1;
  const int off = 0;
  ::setsockopt(socket.descriptor(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (takes_both) ::setsockopt(socket.descriptor(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  if (::bind(socket.descriptor(), address.get(), address.size) != 0)
    return errno == EADDRINUSE
               ? taken_port(address)
               : error::from_errno(
                     errno, listening,
                     "usually the port is reserved for privileged programs, or this host does not "
                     "have the address: choose another port or address");
  if (::listen(socket.descriptor(), SOMAXCONN) != 0)
    return errno == EADDRINUSE ? taken_port(address) : error::from_errno(errno, listening);
  return socket;
}

}  // namespace

void tcp_socket::close() noexcept {
  if (is_open()) ::close(release());
}

result<void> tcp_socket::shutdown() const noexcept {
  constexpr const char* ending = "shutdown of a socket";
  if (::shutdown(descriptor_, SHUT_WR) == 0) return success();
  constexpr const char* unconnected =
      "the socket is not open, was not connected, or has lost its connection";
  if (errno == EBADF || errno == ENOTCONN)
    return error(error_kind::not_connected, ending, unconnected);
  return error::from_errno(errno, ending);
}

result<tcp_socket> tcp_socket::connect(std::string_view host, std::string_view port,
                                       const wait_limit& limit) noexcept {
  detail::tcp_attempt attempt(limit);
  VERBSPP_TRYV(attempt.start(host, port));
  for (;;) {
    VERBSPP_TRY(connected, attempt.advance());
    if (connected) return std::move(*connected);
    VERBSPP_TRYV(attempt.wait());
  }
}

result<gid> tcp_socket::peer_address() const noexcept {
  constexpr const char* naming = "getpeername";
  socket_address peer;
  peer.size = sizeof peer.storage;
  if (::getpeername(descriptor_, reinterpret_cast<sockaddr*>(&peer.storage), &peer.size) != 0) {
    if (errno != EBADF) return error::from_errno(errno, naming);
    return error(error_kind::not_connected, naming,
                 "the socket is not open: use one that connect or accept has returned");
  }
  const auto address = detail::gid_of(peer.get());
  if (!address)
    return error(error_kind::driver, naming,
                 "the peer has no IP address: the socket is neither an IPv4 nor an IPv6 socket");
  return *address;
}

result<tcp_listener> tcp_listener::open(std::string_view port, std::string_view address) noexcept {
  VERBSPP_TRY(number, detail::port_of(port, true));
  if (!address.empty()) {
    const auto found = detail::addresses_of_number(address, number);
    if (found.has_error() && found.assume_error() == error_kind::resource_exhausted)
      return found.assume_error();
    if (found.has_error() || found.assume_value().count == 0)
      return error(error_kind::invalid_input, listening,
                   "this is not a numeric IPv4 or IPv6 address, or its network interface (after %) "
                   "does not exist: use an address of this host, or an empty string to listen on "
                   "all addresses");
    VERBSPP_TRY(socket, listen_at(found.assume_value().addresses[0], false));
    return tcp_listener(std::move(socket));
  }
  VERBSPP_TRY(any6, detail::addresses_of_number("::", number));
  result<tcp_socket> socket = listen_at(any6.addresses[0], true);
  // If the kernel has no IPv6, the socket listens only on the IPv4 addresses.
  if (!socket.has_value() && socket.error().native_errno() == EAFNOSUPPORT) {
    VERBSPP_TRY(any4, detail::addresses_of_number("0.0.0.0", number));
    socket = listen_at(any4.addresses[0], false);
  }
  if (!socket.has_value()) return socket.assume_error();
  return tcp_listener(std::move(socket).assume_value());
}

result<std::optional<tcp_socket>> tcp_listener::try_accept() const noexcept {
  for (;;) {
    const int accepted =
        ::accept4(socket_.descriptor(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (accepted >= 0) {
      detail::send_at_once(accepted);
      return std::optional(tcp_socket::from_native(accepted));
    }
    if (errno == EAGAIN) return std::optional<tcp_socket>();
    if (!is_passing(errno)) return error::from_errno(errno, accepting);
  }
}

result<tcp_socket> tcp_listener::accept(const wait_limit& limit) const noexcept {
  for (;;) {
    VERBSPP_TRY(accepted, try_accept());
    if (accepted) return std::move(*accepted);
    pollfd entry{.fd = socket_.descriptor(), .events = POLLIN, .revents = 0};
    VERBSPP_TRY(is_ready, detail::wait_readable(std::span(&entry, 1), limit));
    if (!is_ready)
      return limit.failure(accepting,
                           "no connection arrived within the limit: start the peer, check the host "
                           "and port that it was given, or allow more time");
  }
}

std::uint16_t tcp_listener::port() const noexcept {
  socket_address own;
  own.size = sizeof own.storage;
  if (::getsockname(socket_.descriptor(), reinterpret_cast<sockaddr*>(&own.storage), &own.size) !=
      0)
    return 0;
  return port_in(own);
}

}  // namespace verbspp
