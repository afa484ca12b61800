// SPDX-License-Identifier: Apache-2.0
#include "rsockets/rdma_socket.hpp"

#include "connections/event_channel.hpp"
#include "faults/faults.hpp"

#include <fcntl.h>
#include <netinet/in.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <unordered_map>
#include <utility>

namespace softverbs {
namespace {

using socket_table = std::unordered_map<int, std::shared_ptr<rdma_socket>>;

socket_table& own_sockets() {
  static auto* all = new socket_table;  // never freed: threads may still use it at exit
  return *all;
}

}  // namespace

socklen_t copy_address(const ip_address& address, void* to, socklen_t room) noexcept {
  sockaddr_storage native{};
  write_address(address, native);
  const socklen_t length = address.family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  std::memcpy(to, &native, std::min(room, length));
  return length;
}

rdma_socket::rdma_socket(int descriptor, port_space space, sa_family_t family) noexcept
    : descriptor_(descriptor), space_(space), family_(family) {
  local_.family = family;
  if (family == AF_INET) local_.ip.raw[10] = local_.ip.raw[11] = 0xff;
}

std::shared_ptr<rdma_socket> rdma_socket::find(int descriptor) {
  const connections_lock held;
  const auto found = own_sockets().find(descriptor);
  if (found != own_sockets().end()) return found->second;
  errno = EBADF;
  return nullptr;
}

void rdma_socket::add(std::shared_ptr<rdma_socket> made) {
  const int descriptor = made->descriptor();
  own_sockets()[descriptor] = std::move(made);
}

void rdma_socket::close() {
  reserved_.reset();
  // The entry is removed first, because as soon as the descriptor is closed, another thread may get
  // the same number.
  own_sockets().erase(descriptor_);
  ::close(descriptor_);
}

bool rdma_socket::is_nonblocking() const noexcept {
  return (::fcntl(descriptor_, F_GETFL) & O_NONBLOCK) != 0;
}

int rdma_socket::listen(int /*backlog*/) { return EOPNOTSUPP; }

int rdma_socket::accept() {
  errno = EOPNOTSUPP;
  return -1;
}

int rdma_socket::shut_down(int how) { return ::shutdown(descriptor_, how) == 0 ? 0 : errno; }

int rdma_socket::set_option(int level, int name, const void* value, socklen_t length) {
  if (const int error = options_.set(level, name, value, length)) return error;
  if (level == SOL_SOCKET && (name == SO_RCVBUF || name == SO_SNDBUF)) {
    // The stored value is halved, because the kernel doubles it.
    const int half = options_.value(level, name) / 2;
    ::setsockopt(descriptor_, SOL_SOCKET, name, &half, sizeof(half));
  }
  return 0;
}

int rdma_socket::get_option(int level, int name, void* value, socklen_t* length) {
  return options_.get(level, name, value, length);
}

int rdma_socket::reserve(ip_address address) {
  const reservation_options wanted{
      .reusable = options_.value(SOL_SOCKET, SO_REUSEADDR) != 0,
      .only_ipv6 = options_.value(IPPROTO_IPV6, IPV6_V6ONLY) != 0,
  };
  reserved_ = reservation::make(space_, address, wanted);
  if (!reserved_)
    // librdmacm's datagram rsockets use UDP sockets, for which the kernel reports only EADDRINUSE.
    return errno == EADDRNOTAVAIL && space_ != RDMA_PS_TCP ? EADDRINUSE : errno;
  const ip_address before = std::exchange(local_, address);
  const int error = name_socket();
  if (error == 0) return 0;
  local_ = before;
  reserved_.reset();
  return error;
}

int rdma_socket::bind(const sockaddr* address) {
  if (is_bound()) return EINVAL;
  const auto asked = read_address(address);
  if (!asked) return EINVAL;
  if (asked->family != family_) return EAFNOSUPPORT;
  std::optional<place> at;
  if (!asked->is_any()) {
    at = place_of(*asked);
    if (!at || !at->is_of_this_process()) return EADDRNOTAVAIL;
    if (faults::is_broken(at->device)) return ENODEV;
  }
  if (const int error = reserve(*asked)) return error;
  here_ = at;
  return 0;
}

int rdma_socket::find_way(const ip_address& target, socket_way& found) const {
  if (is_bound() && !local_.is_any() && local_.is_ipv4() != target.is_ipv4()) return EINVAL;
  const bool is_here = target.is_loopback() || target.is_any();
  const auto there = here_ && is_here ? here_ : place_of(target);
  if (!there) return ENODEV;
  const auto from = here_ ? here_ : place_towards(*there);
  if (!from || from->type != there->type) return ENETUNREACH;
  if (faults::is_broken(from->device)) return ENODEV;
  if (faults::port_is_down(station_of(from->device, from->port))) return ENETDOWN;
  found = {.from = *from, .source = local_, .target = target};
  if (local_.is_any()) found.source.ip = target.is_loopback() ? target.ip : from->ip;
  // A loopback address identifies the first device. If the route leads to another device, that
  // device's address replaces the loopback address.
  if (target.is_any() || (target.is_loopback() && there->device != 0)) found.target.ip = there->ip;
  return 0;
}

ip_address rdma_socket::as_own(ip_address address) const noexcept {
  address.family = family_;
  return address;
}

}  // namespace softverbs
