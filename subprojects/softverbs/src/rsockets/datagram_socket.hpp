// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "rsockets/rdma_socket.hpp"

#include <optional>

namespace softverbs {

/// A socket for datagrams. A datagram is lost if no socket has the target address, or if the
/// receiver's queue stays full.
class datagram_socket final : public rdma_socket {
 public:
  datagram_socket(int descriptor, sa_family_t family) noexcept;

  ip_address local() const override;
  std::optional<ip_address> peer() const override { return peer_; }
  int get_option(int level, int name, void* value, socklen_t* length) override;
  int connect(const sockaddr* address) override;
  ssize_t send(const msghdr& message, int flags) override;
  ssize_t receive(msghdr& message, int flags) override;

 private:
  struct header;

  int name_socket() override;
  int prepare(const msghdr& message, socket_way& way);

  std::optional<ip_address> peer_;
};

}  // namespace softverbs
