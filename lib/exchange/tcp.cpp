// SPDX-License-Identifier: Apache-2.0
#include "base/readable.hpp"
#include "device/socket_gid.hpp"
#include "exchange/lookup.hpp"
#include "exchange/words.hpp"
#include <verbspp/exchange/tcp.hpp>

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <span>

namespace verbspp {

namespace {

using detail::socket_address;
using std::chrono::steady_clock;

constexpr const char* connecting = "connect over TCP";
constexpr const char* listening = "listen at TCP";
constexpr const char* accepting = "accept over TCP";

/// Frames are small, and waited for.
void send_at_once(int descriptor) noexcept {
  const int on = 1;
  ::setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

/// Until when this address may take, so that those behind it have their share.
steady_clock::time_point end_of_share(const wait_limit& limit, std::size_t left) noexcept {
  if (limit.deadline() == (steady_clock::time_point::max)()) return limit.deadline();
  const auto now = steady_clock::now();
  return now + (std::max(limit.deadline(), now) - now) / static_cast<int>(left);
}

/// 0, or the errno; ETIMEDOUT at the end of its share.
int connect_to(const tcp_socket& socket, const socket_address& address, const wait_limit& limit,
               steady_clock::time_point until) noexcept {
  if (::connect(socket.descriptor(), address.get(), address.size) == 0) return 0;
  if (errno != EINPROGRESS) return errno;
  pollfd entry{.fd = socket.descriptor(), .events = POLLOUT, .revents = 0};
  for (;;) {
    const auto ready =
        detail::wait_readable(std::span(&entry, 1), std::min(until, limit.sleep_until()));
    if (!ready.has_value()) return ready.assume_error().native_errno();
    if (ready.assume_value()) break;
    if (limit.has_passed() || steady_clock::now() >= until) return ETIMEDOUT;
  }
  int outcome = 0;
  socklen_t size = sizeof outcome;
  return ::getsockopt(socket.descriptor(), SOL_SOCKET, SO_ERROR, &outcome, &size) == 0 ? outcome
                                                                                       : errno;
}

/// What became of the addresses, one behind the other.
class account {
 public:
  void add(const socket_address& address, int errnum) noexcept {
    std::array<char, 64> other{};
    const char* what = other.data();
    if (errnum == ECONNREFUSED)
      what = "nobody listens there";
    else if (errnum == ETIMEDOUT)
      what = "no answer in its share of the time";
    else
      what = ::strerror_r(errnum, other.data(), other.size());
    const int added =
        std::snprintf(text_.data() + size_, text_.size() - size_, "%s%s: %s",
                      size_ == 0 ? "" : "; ", detail::printed_address(address).text.data(), what);
    size_ = std::min(size_ + static_cast<std::size_t>(std::max(added, 0)), text_.size() - 1);
  }
  [[nodiscard]] std::string_view text() const noexcept { return {text_.data(), size_}; }

 private:
  std::array<char, detail::longest_words> text_{};
  std::size_t size_ = 0;
};

/// Whether accepting again may succeed: what is told there is of one who has gone.
bool is_passing(int errnum) noexcept {
  constexpr std::array passing{EINTR,       ECONNABORTED, EPROTO,    ENETDOWN,
                               ENOPROTOOPT, ENONET,       EHOSTDOWN, EHOSTUNREACH,
                               EOPNOTSUPP,  ENETUNREACH,  EPERM};
  return std::ranges::find(passing, errnum) != passing.end();
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
    return error::from_errno(errno, listening,
                             "the port is taken or reserved, or the address is none of this host");
  if (::listen(socket.descriptor(), SOMAXCONN) != 0) return error::from_errno(errno, listening);
  return socket;
}

}  // namespace

void tcp_socket::close() noexcept {
  if (is_open()) ::close(release());
}

result<tcp_socket> tcp_socket::connect(std::string_view host, std::string_view port,
                                       const wait_limit& limit) noexcept {
  VERBSPP_TRY(number, detail::port_of(port, false));
  VERBSPP_TRY(found, detail::look_up(host, number, limit));
  account tried;
  int last = 0;
  for (std::size_t i = 0; i < found.count; ++i) {
    const socket_address& address = found.addresses[i];
    tcp_socket socket =
        from_native(::socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    last = socket.is_open()
               ? connect_to(socket, address, limit, end_of_share(limit, found.count - i))
               : errno;
    if (last == 0) {
      send_at_once(socket.descriptor());
      return socket;
    }
    tried.add(address, last);
    if (limit.has_passed()) break;
  }
  if (limit.has_passed())
    return detail::error_in_words(limit.failure(connecting).kind(), connecting, tried.text());
  return detail::error_in_words(error_kind::not_connected, connecting, tried.text(), last);
}

result<gid> tcp_socket::peer_address() const noexcept {
  constexpr const char* naming = "getpeername";
  socket_address peer;
  peer.size = sizeof peer.storage;
  if (::getpeername(descriptor_, reinterpret_cast<sockaddr*>(&peer.storage), &peer.size) != 0) {
    if (errno != EBADF) return error::from_errno(errno, naming);
    return error(error_kind::not_connected, naming, "the socket is not open");
  }
  const auto address = detail::gid_of(peer.get());
  if (!address) return error(error_kind::driver, naming, "the peer has no IP address");
  return *address;
}

result<tcp_listener> tcp_listener::open(std::string_view port, std::string_view address) noexcept {
  VERBSPP_TRY(number, detail::port_of(port, true));
  if (!address.empty()) {
    VERBSPP_TRY(found, detail::addresses_of_number(address, number));
    if (found.count == 0)
      return error(error_kind::invalid_input, listening,
                   "this is no address of IPv4 or IPv6: give one of this host's, or none");
    VERBSPP_TRY(socket, listen_at(found.addresses[0], false));
    return tcp_listener(std::move(socket));
  }
  VERBSPP_TRY(any6, detail::addresses_of_number("::", number));
  result<tcp_socket> socket = listen_at(any6.addresses[0], true);
  // Where the kernel has no IPv6.
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
      send_at_once(accepted);
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
                           "nobody connected: start the peer, and check the host and "
                           "port that it was given");
  }
}

std::uint16_t tcp_listener::port() const noexcept {
  socket_address own;
  own.size = sizeof own.storage;
  if (::getsockname(socket_.descriptor(), reinterpret_cast<sockaddr*>(&own.storage), &own.size) !=
      0)
    return 0;
  in_port_t number = 0;
  std::memcpy(&number,
              reinterpret_cast<const char*>(&own.storage) + offsetof(sockaddr_in, sin_port),
              sizeof number);
  return ntohs(number);
}

}  // namespace verbspp
