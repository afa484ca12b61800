// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/result.hpp>

#include <netinet/in.h>

#include <array>
#include <cstdint>
#include <iosfwd>
#include <string_view>

namespace verbspp {

/// An IP address and the number of a port, as a connection manager knows them. The ports are its
/// own: TCP's of the same number are others.
///
/// A plain value; a default constructed one is none.
class cm_address {
 public:
  cm_address() noexcept = default;
  /// Of an address in numbers: IPv4, or IPv6, a link-local one with its interface
  /// ("fe80::1%eth0"). Names are for `getaddrinfo`, whose results `from_native` takes.
  /// \errors `invalid_input` for what is no such address
  [[nodiscard]] static result<cm_address> from(std::string_view address,
                                               std::uint16_t port) noexcept;
  /// All addresses of this host, IPv6 and IPv4 alike: for listeners. Port 0 is one that is free.
  [[nodiscard]] static cm_address any(std::uint16_t port) noexcept;
  /// \errors `invalid_input` for null, and other families than IPv4 and IPv6
  [[nodiscard]] static result<cm_address> from_native(const sockaddr* native) noexcept;

  /// As sockets take it; of the family AF_UNSPEC if it is none.
  [[nodiscard]] const sockaddr* native() const noexcept {
    return reinterpret_cast<const sockaddr*>(&storage_);
  }
  [[nodiscard]] bool is_empty() const noexcept { return native()->sa_family == AF_UNSPEC; }
  [[nodiscard]] std::uint16_t port() const noexcept;
  /// The same address with another port.
  [[nodiscard]] cm_address with_port(std::uint16_t port) const noexcept;

  friend bool operator==(const cm_address& a, const cm_address& b) noexcept;
  /// As "192.0.2.1:7174" or "[2001:db8::1]:7174".
  friend std::ostream& operator<<(std::ostream& out, const cm_address& address);

 private:
  /// The larger of the two; IPv4's is in its first bytes.
  sockaddr_in6 storage_{};
};

}  // namespace verbspp
