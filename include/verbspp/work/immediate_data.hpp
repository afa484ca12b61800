// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <arpa/inet.h>
#include <infiniband/verbs.h>

#include <cstdint>

namespace verbspp {

/// 32 bits that travel with a send or an RDMA write and arrive in the receiver's completion.
///
/// Held in host byte order, sent in network byte order: both ends see the same number.
class immediate_data {
 public:
  constexpr explicit immediate_data(std::uint32_t value) noexcept : value_(value) {}
  [[nodiscard]] static immediate_data from_network(__be32 value) noexcept {
    return immediate_data(ntohl(value));
  }
  [[nodiscard]] constexpr std::uint32_t value() const noexcept { return value_; }
  [[nodiscard]] __be32 network() const noexcept { return htonl(value_); }
  friend constexpr bool operator==(immediate_data, immediate_data) noexcept = default;

 private:
  std::uint32_t value_;
};

}  // namespace verbspp
