// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/socket.h>
#include <unistd.h>

#pragma GCC visibility push(hidden)
namespace verbspp::detail {

/// A UDP socket for queries to the kernel, through which nothing is sent.
class udp_socket {
 public:
  explicit udp_socket(int family) noexcept
      : descriptor_(::socket(family, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {}
  udp_socket(const udp_socket&) = delete;
  udp_socket& operator=(const udp_socket&) = delete;
  ~udp_socket() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }

  /// The descriptor. Negative if the socket could not be created; errno then still has the cause.
  [[nodiscard]] int descriptor() const noexcept { return descriptor_; }

 private:
  int descriptor_;
};

}  // namespace verbspp::detail
#pragma GCC visibility pop
