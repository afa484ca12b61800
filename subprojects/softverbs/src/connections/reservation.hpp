// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "connections/place.hpp"

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace softverbs {

/// Ports of one do not collide with those of another.
using port_space = std::uint16_t;

struct reservation_options {
  /// With others of this process that say so, too, unless one of them listens.
  bool reusable = false;
  /// :: stands for all addresses of IPv4, too, otherwise.
  bool only_ipv6 = false;
};

/// That an address and port are this process' own: an abstract Unix socket of that name, or two,
/// which go with the process. All of it under the lock of connections.
class reservation {
 public:
  /// Sets the port if it was 0. Null with errno.
  static std::shared_ptr<reservation> make(port_space space, ip_address& address,
                                           reservation_options options);
  reservation() = default;
  reservation(const reservation&) = delete;
  reservation& operator=(const reservation&) = delete;
  ~reservation();

  /// From here on, `connect_to` finds it; false with errno.
  bool listen(int backlog) noexcept;

  static constexpr int none = -1;
  std::array<int, 2> sockets{none, none};

  /// In a child of fork: they are its parent's.
  void abandon() noexcept;
  static void abandon_all() noexcept;

 private:
  bool bind(port_space space, const ip_address& address, reservation_options options);

  bool reusable_ = false;
  bool listens_ = false;
  std::string key_;
};

/// A socket to who listens at this address, or at all; -1 with errno: ECONNREFUSED if nobody does,
/// EAGAIN if so many wait there that there is no room for one more.
int connect_to(port_space space, const ip_address& address) noexcept;

}  // namespace softverbs
