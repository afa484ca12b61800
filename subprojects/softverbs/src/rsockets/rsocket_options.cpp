// SPDX-License-Identifier: Apache-2.0
// The entry points for addresses, options and flags.
#include "rsockets/rsocket_calls.hpp"

#include <fcntl.h>

#include <cerrno>
#include <cstdarg>

using namespace softverbs;

SOFTVERBS_EXPORT int rgetpeername(int socket, sockaddr* address, socklen_t* length) {
  SOFTVERBS_PASS_ON(rgetpeername, socket, address, length);
  return locked_call(socket, [&](rdma_socket& ours) {
    if (address == nullptr || length == nullptr) return EFAULT;
    const auto peer = ours.peer();
    if (!peer) return ENOTCONN;
    *length = copy_address(*peer, address, *length);
    return 0;
  });
}

SOFTVERBS_EXPORT int rgetsockname(int socket, sockaddr* address, socklen_t* length) {
  SOFTVERBS_PASS_ON(rgetsockname, socket, address, length);
  return locked_call(socket, [&](rdma_socket& ours) {
    if (address == nullptr || length == nullptr) return EFAULT;
    *length = copy_address(ours.local(), address, *length);
    return 0;
  });
}

SOFTVERBS_EXPORT int rsetsockopt(int socket, int level, int name, const void* value,
                                 socklen_t length) {
  SOFTVERBS_PASS_ON(rsetsockopt, socket, level, name, value, length);
  return locked_call(
      socket, [&](rdma_socket& ours) { return ours.set_option(level, name, value, length); });
}

SOFTVERBS_EXPORT int rgetsockopt(int socket, int level, int name, void* value, socklen_t* length) {
  SOFTVERBS_PASS_ON(rgetsockopt, socket, level, name, value, length);
  return locked_call(
      socket, [&](rdma_socket& ours) { return ours.get_option(level, name, value, length); });
}

SOFTVERBS_EXPORT int rfcntl(int socket, int command, ...) {
  int argument = 0;
  if (command == F_SETFL || command == F_SETFD) {
    std::va_list arguments;
    va_start(arguments, command);
    argument = va_arg(arguments, int);
    va_end(arguments);
  }
  if (!serves_connections()) {
    if (void* const found = next_symbol("rfcntl"))
      return reinterpret_cast<int (*)(int, int, ...)>(found)(socket, command, argument);
    return outcome(ENOSYS);
  }
  return static_cast<int>(waiting_call(socket, [&](rdma_socket&) -> ssize_t {
    switch (command) {
      case F_GETFL:
      case F_SETFL:
      case F_GETFD:
      case F_SETFD:
        return ::fcntl(socket, command, argument);
      default:
        return outcome(ENOTSUP);
    }
  }));
}
