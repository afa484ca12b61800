// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/result.hpp>
#include <verbspp/base/wait_limit.hpp>

#include <sys/socket.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#pragma GCC visibility push(hidden)
namespace verbspp::detail {

struct socket_address {
  sockaddr_storage storage{};
  socklen_t size = 0;

  [[nodiscard]] const sockaddr* get() const noexcept {
    return reinterpret_cast<const sockaddr*>(&storage);
  }
  [[nodiscard]] int family() const noexcept { return storage.ss_family; }
};

/// As "192.0.2.1:4711" or "[2001:db8::1]:4711".
struct printed_address {
  explicit printed_address(const socket_address& address) noexcept;
  std::array<char, 80> text{};
};

/// A host's addresses; of more than 16, the first.
struct host_addresses {
  std::array<socket_address, 16> addresses{};
  std::size_t count = 0;
};

/// The number of a port.
/// \errors `invalid_input` if it is none; 0 is one only if it may be
[[nodiscard]] result<std::uint16_t> port_of(std::string_view text, bool may_be_zero) noexcept;
/// Of an address in numbers, which takes no time: none if it is a name.
[[nodiscard]] result<host_addresses> addresses_of_number(std::string_view host,
                                                         std::uint16_t port) noexcept;
/// Of a name or address.
/// \errors as `tcp_socket::connect`
[[nodiscard]] result<host_addresses> look_up(std::string_view host, std::uint16_t port,
                                             const wait_limit& limit) noexcept;

}  // namespace verbspp::detail
#pragma GCC visibility pop
