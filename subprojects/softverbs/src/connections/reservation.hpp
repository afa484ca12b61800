// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "connections/place.hpp"

#include <array>
#include <cstdint>
#include <memory>
#include <string>

namespace softverbs {

/// A port space of librdmacm. Equal port numbers in different port spaces don't collide.
using port_space = std::uint16_t;

struct reservation_options {
  /// True if other reservations of this process that also set `reusable` may have the same address
  /// and port, unless one of them listens. The wildcard address and specific addresses then don't
  /// exclude each other.
  bool reusable = false;
  /// True if :: represents IPv6 addresses only. Otherwise, it includes all IPv4 addresses.
  bool only_ipv6 = false;
};

/// Reserves an address and port for this process. It binds one or two abstract Unix sockets, whose
/// names represent the address and port, and which vanish with the process. Everything here
/// requires the lock of connections.
class reservation : public std::enable_shared_from_this<reservation> {
 public:
  /// Makes a reservation, or returns an existing one that may be shared. If the port is 0, chooses
  /// an ephemeral port that is free for the address, and stores it in `address`. Returns null with
  /// errno on failure. As in the kernel, errno is EADDRINUSE if the same specific address and port
  /// are reserved, and EADDRNOTAVAIL if a wildcard address is involved or no port is free.
  static std::shared_ptr<reservation> make(port_space space, ip_address& address,
                                           reservation_options options);
  reservation(port_space space, const ip_address& address, reservation_options options);
  reservation(const reservation&) = delete;
  reservation& operator=(const reservation&) = delete;
  ~reservation();

  /// Sets `reusable` later. The reservation must not listen yet.
  void permit_sharing() noexcept { options_.reusable = true; }

  /// Starts to accept connections, so that `connect_to` finds this reservation. As in the kernel,
  /// the reservation must not be shared. Returns false with errno on failure.
  bool listen(int backlog);

  static constexpr int none = -1;
  std::array<int, 2> sockets{none, none};

  /// Closes the sockets in a forked child, because they belong to the parent.
  void abandon() noexcept;
  static void abandon_all() noexcept;

 private:
  bool bind(bool shares);
  /// Returns false with errno if a conflicting address is reserved with the same port. For a
  /// specific address, that is the wildcard address; for the wildcard address, each specific
  /// address that it includes. If `shares` is true, ignores reservations that may be shared.
  bool others_are_free(bool shares) const;
  bool may_be_shared() const noexcept { return options_.reusable && !listens_ && !is_abandoned_; }

  port_space space_;
  ip_address address_;
  reservation_options options_;
  /// The names of the sockets; the second one may be empty.
  std::array<std::string, 2> names_;
  bool listens_ = false;
  bool is_abandoned_ = false;  ///< by a forked child
};

/// Returns a socket that is connected to the listener at this address, or at the wildcard address.
/// Returns -1 with errno on failure, for example ECONNREFUSED if there is no listener, or EAGAIN if
/// its backlog is full.
int connect_to(port_space space, const ip_address& address) noexcept;

}  // namespace softverbs
