// SPDX-License-Identifier: Apache-2.0
#include "tcp.hpp"

#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <climits>
#include <memory>

namespace tcp {

using verbspp::error;
using verbspp::error_kind;
using verbspp::result;
using verbspp::success;
using verbspp::wait_limit;

namespace {

/// Waits until the socket is ready for these events. Returns false if the limit is reached first,
/// or if polling fails.
bool wait_for(int socket, short events, const wait_limit& limit) {
  for (;;) {
    pollfd entry{socket, events, 0};
    // The time from now to a limit in the distant past would overflow, so such a limit counts as
    // now.
    const auto now = std::chrono::steady_clock::now();
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(std::max(limit.sleep_until(), now) - now);
    const int ready =
        ::poll(&entry, 1, static_cast<int>(std::min<std::int64_t>(left.count(), INT_MAX)));
    if (ready > 0) return true;
    if ((ready < 0 && errno != EINTR) || limit.has_passed()) return false;
  }
}

/// Creates a socket that is bound to this port for both IPv6 and IPv4, or for IPv4 alone if the
/// machine has no IPv6.
result<descriptor> bind_to(std::uint16_t number) {
  descriptor socket(::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const bool dual = socket.is_open();
  if (!dual) socket = descriptor(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.is_open()) return error::from_errno(errno, "socket");
  const int on = 1;
  const int off = 0;
  ::setsockopt(socket.number(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (dual) ::setsockopt(socket.number(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  sockaddr_in6 any6{};
  any6.sin6_family = AF_INET6;
  any6.sin6_port = htons(number);
  sockaddr_in any4{};
  any4.sin_family = AF_INET;
  any4.sin_port = htons(number);
  const int bound = dual ? ::bind(socket.number(), reinterpret_cast<sockaddr*>(&any6), sizeof any6)
                         : ::bind(socket.number(), reinterpret_cast<sockaddr*>(&any4), sizeof any4);
  if (bound != 0)
    return error::from_errno(errno, "bind",
                             "the TCP port is taken or reserved; choose another with --port");
  return socket;
}

/// Connects to one address. Returns 0, or the errno value of the failure.
int connect_within(int socket, const addrinfo& address, const wait_limit& limit) {
  if (::connect(socket, address.ai_addr, address.ai_addrlen) == 0) return 0;
  if (errno != EINPROGRESS) return errno;
  if (!wait_for(socket, POLLOUT, limit)) return ETIMEDOUT;
  int outcome = 0;
  socklen_t size = sizeof outcome;
  return ::getsockopt(socket, SOL_SOCKET, SO_ERROR, &outcome, &size) == 0 ? outcome : errno;
}

}  // namespace

descriptor::~descriptor() {
  if (is_open()) ::close(number_);
}

result<listener> listener::open(port number) {
  VERBSPP_TRY(socket, bind_to(number.value()));
  if (::listen(socket.number(), 1) != 0) return error::from_errno(errno, "listen");
  return listener(std::move(socket));
}

result<connection> listener::accept(const wait_limit& limit) const {
  for (;;) {
    if (!wait_for(socket_.number(), POLLIN, limit))
      return limit.failure("accept",
                           "no client connected: start it, and check its host and --port");
    const int client = ::accept4(socket_.number(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (client >= 0) return connection(descriptor(client));
    // The client may have disconnected already.
    if (errno != EINTR && errno != ECONNABORTED && errno != EAGAIN)
      return error::from_errno(errno, "accept");
  }
}

result<connection> connection::connect(const std::string& host, port number,
                                       const wait_limit& limit) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (::getaddrinfo(host.c_str(), std::to_string(number.value()).c_str(), &hints, &found) != 0)
    return error(error_kind::not_found, "getaddrinfo",
                 "no such host, or the name server does not answer; check the server's name");
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> addresses(found, &::freeaddrinfo);

  int failure = 0;
  for (const addrinfo* address = found; address != nullptr; address = address->ai_next) {
    descriptor socket(::socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    failure = socket.is_open() ? connect_within(socket.number(), *address, limit) : errno;
    if (failure == 0) return connection(std::move(socket));
  }
  return error::from_errno(
      failure, "connect",
      "start the server if it is not running, and check the host's name and --port");
}

result<void> connection::send(std::span<const std::byte> bytes) const {
  // The samples send so few bytes that they always fit into the socket's buffer. MSG_NOSIGNAL
  // prevents a SIGPIPE if the peer has exited.
  if (::send(socket_.number(), bytes.data(), bytes.size(), MSG_NOSIGNAL) != std::ssize(bytes))
    return error::from_errno(errno, "send over TCP", "the peer has exited: see its output");
  return success();
}

result<void> connection::receive(std::span<std::byte> bytes, const wait_limit& limit) const {
  constexpr const char* operation = "receive over TCP";
  while (!bytes.empty()) {
    if (!wait_for(socket_.number(), POLLIN, limit))
      return limit.failure(operation,
                           "the peer is silent, or sent less than expected: it hangs, or is "
                           "another program, or has other options");
    const ssize_t count = ::recv(socket_.number(), bytes.data(), bytes.size(), 0);
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    // If the peer closes the connection before all bytes have arrived, this is reported as a
    // connection reset.
    if (count <= 0)
      return error::from_errno(count < 0 ? errno : ECONNRESET, operation,
                               "the peer has exited or was killed: see its output");
    bytes = bytes.subspan(static_cast<std::size_t>(count));
  }
  return success();
}

bool connection::is_closed_by_peer() const noexcept {
  pollfd entry{socket_.number(), POLLRDHUP, 0};
  return ::poll(&entry, 1, 0) > 0;
}

bool connection::has_news() const {
  pollfd entry{socket_.number(), POLLIN, 0};
  return ::poll(&entry, 1, 0) > 0;
}

}  // namespace tcp
