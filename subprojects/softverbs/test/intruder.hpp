// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "catch.hpp"
#include "fabric.hpp"
#include "wire/packet.hpp"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>
#include <cstdio>

/// A connection to the process that a queue pair belongs to.
class intruder {
 public:
  explicit intruder(std::uint32_t qpn) {
    sockaddr_un name{};
    name.sun_family = AF_UNIX;
    const int length =
        std::snprintf(name.sun_path + 1, sizeof(name.sun_path) - 1, "softverbs/2/%u", qpn >> 14);
    socket_ = ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    REQUIRE(::connect(socket_, reinterpret_cast<const sockaddr*>(&name),
                      static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 +
                                             static_cast<std::size_t>(length))) == 0);
  }
  intruder(const intruder&) = delete;
  intruder& operator=(const intruder&) = delete;
  ~intruder() { ::close(socket_); }

  void send(const void* bytes, std::size_t length) {
    // The device may have closed the connection by now.
    [[maybe_unused]] const ssize_t sent =
        ::send(socket_, bytes, length, MSG_NOSIGNAL | MSG_DONTWAIT);
  }

 private:
  int socket_ = -1;
};

/// As if it came from the left end.
inline softverbs::packet_header forged(const connection& link) {
  softverbs::packet_header header{};
  header.kind = softverbs::packet_kind::write;
  header.flags = softverbs::packet_flag::first | softverbs::packet_flag::last;
  header.network = on_ethernet() ? 2 : 0;
  header.target_qpn = link.right.pair->qp_num;
  header.source_qpn = link.left.pair->qp_num;
  return header;
}
