// SPDX-License-Identifier: Apache-2.0
// The entry points that create, bind and connect sockets, listen, accept, shut down and close.
#include "rsockets/datagram_socket.hpp"
#include "rsockets/rsocket_calls.hpp"
#include "rsockets/stream_socket.hpp"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

using namespace softverbs;

namespace {

bool is_supported(int domain, int kind, int protocol) noexcept {
  if (domain != AF_INET && domain != AF_INET6) return false;
  if (kind == SOCK_STREAM) return protocol == 0 || protocol == IPPROTO_TCP;
  return kind == SOCK_DGRAM && (protocol == 0 || protocol == IPPROTO_UDP);
}

/// True if the length is sufficient for an address of its family.
bool is_whole(const sockaddr* address, socklen_t length) noexcept {
  if (address == nullptr || length < sizeof(sa_family_t)) return false;
  return length >= (address->sa_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in));
}

}  // namespace

SOFTVERBS_EXPORT int rsocket(int domain, int type, int protocol) {
  SOFTVERBS_PASS_ON(rsocket, domain, type, protocol);
  constexpr int flags = SOCK_CLOEXEC | SOCK_NONBLOCK;
  const int kind = type & ~flags;
  if (!is_supported(domain, kind, protocol)) return outcome(ENOTSUP);
  prepare_for_fork();
  const int made = ::socket(AF_UNIX, type, 0);
  if (made < 0) return -1;
  const int result = locked([&] {
    const auto family = static_cast<sa_family_t>(domain);
    if (kind == SOCK_STREAM)
      rdma_socket::add(std::make_shared<stream_socket>(made, family));
    else
      rdma_socket::add(std::make_shared<datagram_socket>(made, family));
    return 0;
  });
  if (result == 0) return made;
  ::close(made);
  return outcome(ENOMEM);
}

SOFTVERBS_EXPORT int rbind(int socket, const sockaddr* address, socklen_t length) {
  SOFTVERBS_PASS_ON(rbind, socket, address, length);
  return locked_call(socket, [&](rdma_socket& ours) {
    return is_whole(address, length) ? ours.bind(address) : EINVAL;
  });
}

SOFTVERBS_EXPORT int rlisten(int socket, int backlog) {
  SOFTVERBS_PASS_ON(rlisten, socket, backlog);
  return locked_call(socket, [&](rdma_socket& ours) { return ours.listen(backlog); });
}

SOFTVERBS_EXPORT int raccept(int socket, sockaddr* address, socklen_t* length) {
  SOFTVERBS_PASS_ON(raccept, socket, address, length);
  const auto made = static_cast<int>(
      waiting_call(socket, [](rdma_socket& ours) { return ssize_t{ours.accept()}; }));
  if (made >= 0 && address != nullptr && length != nullptr) rgetpeername(made, address, length);
  return made;
}

SOFTVERBS_EXPORT int rconnect(int socket, const sockaddr* address, socklen_t length) {
  SOFTVERBS_PASS_ON(rconnect, socket, address, length);
  return static_cast<int>(waiting_call(socket, [&](rdma_socket& ours) {
    return ssize_t{outcome(is_whole(address, length) ? ours.connect(address) : EINVAL)};
  }));
}

SOFTVERBS_EXPORT int rshutdown(int socket, int how) {
  SOFTVERBS_PASS_ON(rshutdown, socket, how);
  return locked_call(socket, [&](rdma_socket& ours) { return ours.shut_down(how); });
}

SOFTVERBS_EXPORT int rclose(int socket) {
  SOFTVERBS_PASS_ON(rclose, socket);
  return locked_call(socket, [](rdma_socket& ours) {
    ours.close();
    return 0;
  });
}
