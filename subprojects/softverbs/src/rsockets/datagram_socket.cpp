// SPDX-License-Identifier: Apache-2.0
#include "rsockets/datagram_socket.hpp"

#include "connections/event_channel.hpp"
#include "connections/unix_name.hpp"
#include "wire/strangers.hpp"

#include <netinet/in.h>
#include <sys/uio.h>
#include <time.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace softverbs {
namespace {

/// The port space of datagrams. It is separate from the connection manager's port spaces.
constexpr port_space datagram_space = IPPROTO_UDP;

/// The number of attempts to send a datagram while the receiver's queue is full. By default, the
/// kernel queues few datagrams. Together, the attempts take a few milliseconds, in which a running
/// receiver makes room for a datagram.
constexpr int most_attempts = 20;
constexpr timespec before_next_attempt{0, 100'000};

constexpr const char* any_family = "any";

std::string datagram_name(const std::string& host, std::uint16_t port) {
  return std::string("softverbs-datagrams/") + own_kind() + "/" + host + "/" + std::to_string(port);
}

/// Sends a datagram to the socket that has this host and port. Returns false on failure, for
/// example if there is no such socket. If the receiver's queue stays full, the datagram is lost,
/// and the result is true.
bool deliver(int descriptor, msghdr& message, const std::string& host, std::uint16_t port) {
  unix_address to(datagram_name(host, port));
  message.msg_name = &to.address;
  message.msg_namelen = to.length;
  for (int attempt = 0; attempt < most_attempts; ++attempt) {
    if (::sendmsg(descriptor, &message, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0) return true;
    if (errno != EAGAIN && errno != EINTR) return false;
    ::nanosleep(&before_next_attempt, nullptr);
  }
  return true;
}

}  // namespace

/// The header that precedes the data in each datagram.
struct datagram_socket::header {
  static constexpr std::uint32_t expected_mark = 0x53565244;

  std::uint32_t mark = expected_mark;
  std::uint16_t port = 0;
  std::uint16_t reserved = 0;
  ibv_gid source{};
};

datagram_socket::datagram_socket(int descriptor, sa_family_t family) noexcept
    : rdma_socket(descriptor, datagram_space, family) {}

int datagram_socket::name_socket() {
  std::string host = host_of(canonical(local_));
  if (local_.is_any()) {
    const bool has_both = !local_.is_ipv4() && options_.value(IPPROTO_IPV6, IPV6_V6ONLY) == 0;
    host = has_both ? any_family : any_host(local_.is_ipv4());
  }
  const unix_address name(datagram_name(host, local_.port));
  return ::bind(descriptor_, name.native(), name.length) == 0 ? 0 : errno;
}

ip_address datagram_socket::local() const {
  socket_way way{};
  if (!peer_ || !local_.is_any() || find_way(*peer_, way) != 0) return local_;
  return as_own(way.source);
}

int datagram_socket::connect(const sockaddr* address) {
  const connections_lock held;
  const auto target = read_address(address);
  if (!target) return EINVAL;
  if (target->family != family_) return EAFNOSUPPORT;
  socket_way way{};
  if (const int error = find_way(*target, way)) return error;
  if (!is_bound())
    if (const int error = reserve(local_)) return error;
  peer_ = target;
  return 0;
}

int datagram_socket::prepare(const msghdr& message, socket_way& way) {
  const connections_lock held;
  std::optional<ip_address> target = peer_;
  if (message.msg_name != nullptr) {
    target = read_address(static_cast<const sockaddr*>(message.msg_name));
    if (!target) return EINVAL;
    if (target->family != family_) return EAFNOSUPPORT;
  }
  if (!target) return EDESTADDRREQ;
  if (!is_bound())
    if (const int error = reserve(local_)) return error;
  return find_way(*target, way);
}

ssize_t datagram_socket::send(const msghdr& message, int /*flags*/) {
  socket_way way{};
  if (const int error = prepare(message, way)) {
    errno = error;
    return -1;
  }
  const std::span<const iovec> data(message.msg_iov, message.msg_iovlen);
  const auto length =
      std::accumulate(data.begin(), data.end(), std::size_t{0},
                      [](std::size_t sum, const iovec& each) { return sum + each.iov_len; });
  const std::size_t most = std::size_t{128} << way.from.description().mtu;
  if (length > most) {
    errno = EMSGSIZE;
    return -1;
  }
  header head;
  head.source = way.source.ip;
  head.port = way.source.port;
  std::vector<iovec> parts{iovec{&head, sizeof(head)}};
  parts.insert(parts.end(), data.begin(), data.end());
  msghdr out{};
  out.msg_iov = parts.data();
  out.msg_iovlen = parts.size();
  const int error = errno;
  for (const std::string& host :
       {host_of(canonical(way.target)), any_host(way.target.is_ipv4()), std::string(any_family)})
    if (deliver(descriptor_, out, host, way.target.port)) break;
  errno = error;
  return static_cast<ssize_t>(length);
}

ssize_t datagram_socket::receive(msghdr& message, int flags) {
  header head;
  std::vector<iovec> parts{iovec{&head, sizeof(head)}};
  parts.insert(parts.end(), message.msg_iov, message.msg_iov + message.msg_iovlen);
  for (;;) {
    msghdr in{};
    in.msg_iov = parts.data();
    in.msg_iovlen = parts.size();
    const ssize_t got = ::recvmsg(descriptor_, &in, flags & (MSG_PEEK | MSG_DONTWAIT));
    if (got < 0) return -1;
    const bool is_ours =
        got >= static_cast<ssize_t>(sizeof(head)) && head.mark == header::expected_mark;
    if (is_ours) {
      if (message.msg_name != nullptr)
        message.msg_namelen = copy_address(as_own({.ip = head.source, .port = head.port}),
                                           message.msg_name, message.msg_namelen);
      message.msg_flags = in.msg_flags;
      return got - static_cast<ssize_t>(sizeof(head));
    }
    if ((flags & MSG_PEEK) != 0) ::recv(descriptor_, nullptr, 0, MSG_DONTWAIT);
  }
}

int datagram_socket::get_option(int level, int name, void* value, socklen_t* length) {
  if (level != SOL_SOCKET || name != SO_ERROR)
    return rdma_socket::get_option(level, name, value, length);
  if (value == nullptr || length == nullptr) return EFAULT;
  const int none = 0;
  *length = static_cast<socklen_t>(std::min<std::size_t>(*length, sizeof(none)));
  std::memcpy(value, &none, *length);
  return 0;
}

}  // namespace softverbs
