// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "connections/calls.hpp"
#include "rsockets/rdma_socket.hpp"

#include <rdma/rsocket.h>

#include <memory>

namespace softverbs {

/// Calls `work` with the socket and under the lock. `work` returns 0 or an errno value.
template <typename Work>
int locked_call(int descriptor, Work work) {
  return guarded([&] {
    const std::shared_ptr<rdma_socket> socket = rdma_socket::find(descriptor);
    if (!socket) return EBADF;
    const connections_lock held;
    return work(*socket);
  });
}

/// Calls `work` with the socket and without the lock. `work` returns a number, or -1 with errno.
template <typename Work>
ssize_t waiting_call(int descriptor, Work work) {
  try {
    const std::shared_ptr<rdma_socket> socket = rdma_socket::find(descriptor);
    return socket ? work(*socket) : -1;
  } catch (const std::bad_alloc&) {
    return outcome(ENOMEM);
  }
}

}  // namespace softverbs
