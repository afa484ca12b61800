// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/result.hpp>

#include <netinet/in.h>

#include <array>
#include <cstdint>
#include <iosfwd>
#include <string_view>

namespace verbspp {

/// An IP address and a port number for the connection manager, whose port numbers are separate from
/// those of TCP.
///
/// A plain value. A default-constructed address is empty.
class cm_address {
 public:
  cm_address() noexcept = default;
  /// Parses a numeric IPv4 or IPv6 address. A link-local address includes the interface
  /// ("fe80::1%eth0"). To use a host name, look it up with `getaddrinfo`, and pass the result to
  /// `from_native`.
  /// \errors `invalid_input` if the text is not such an address; `resource_exhausted`
  [[nodiscard]] static result<cm_address> from(std::string_view address,
                                               std::uint16_t port) noexcept;
  /// Returns the wildcard address, on which a listener accepts requests to all IPv6 and IPv4
  /// addresses of this host, unless the listener is limited to IPv6 (see
  /// `cm_listener_options::only_ipv6`). Port 0 selects a free port.
  [[nodiscard]] static cm_address any(std::uint16_t port) noexcept;
  /// Copies an address.
  /// \errors `invalid_input` for null, and for families other than IPv4 and IPv6
  [[nodiscard]] static result<cm_address> from_native(const sockaddr* native) noexcept;

  /// The address as a `sockaddr`; its family is AF_UNSPEC if this is empty.
  [[nodiscard]] const sockaddr* native() const noexcept {
    return reinterpret_cast<const sockaddr*>(&storage_);
  }
  [[nodiscard]] bool is_empty() const noexcept { return native()->sa_family == AF_UNSPEC; }
  [[nodiscard]] std::uint16_t port() const noexcept;
  /// Returns the same address with a different port.
  [[nodiscard]] cm_address with_port(std::uint16_t port) const noexcept;

  friend bool operator==(const cm_address& a, const cm_address& b) noexcept;
  /// Prints "192.0.2.1:7174" or "[2001:db8::1]:7174", or "no address" if the address is empty.
  friend std::ostream& operator<<(std::ostream& out, const cm_address& address);

 private:
  /// This is large enough for either family; an IPv4 address occupies the first bytes.
  sockaddr_in6 storage_{};
};

}  // namespace verbspp
