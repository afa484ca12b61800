// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "connections/place.hpp"

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace softverbs {

/// Ports in different port spaces don't collide.
using port_space = std::uint16_t;

struct reservation_options {
  /// True to share the port with other reservations of this process that also set this, unless one
  /// of them listens.
  bool reusable = false;
  /// Otherwise, :: includes all IPv4 addresses.
  bool only_ipv6 = false;
};

/// Reserves an address and port for this process by one or two abstract Unix sockets with that
/// name, which vanish with the process. Everything here requires the lock of connections.
class reservation {
 public:
  /// Sets the port if it was 0. Returns null with errno on failure.
  static std::shared_ptr<reservation> make(port_space space, ip_address& address,
                                           reservation_options options);
  reservation() = default;
  reservation(const reservation&) = delete;
  reservation& operator=(const reservation&) = delete;
  ~reservation();

  /// Makes `connect_to` find it. Returns false with errno on failure.
  bool listen(int backlog) noexcept;

  static constexpr int none = -1;
  std::array<int, 2> sockets{none, none};

  /// Closes the sockets in a child of fork, because they belong to the parent.
  void abandon() noexcept;
  static void abandon_all() noexcept;

 private:
  bool bind(port_space space, const ip_address& address, reservation_options options);

  bool reusable_ = false;
  bool listens_ = false;
  std::string key_;
};

/// Returns a socket that is connected to the listener at this address, or at the wildcard address.
/// Returns -1 with errno on failure: ECONNREFUSED if there is no listener, EAGAIN if its backlog is
/// full.
int connect_to(port_space space, const ip_address& address) noexcept;

}  // namespace softverbs
