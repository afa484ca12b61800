// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/result.hpp>

#include <sys/socket.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>

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

/// An address as text, "192.0.2.1:4711" or "[2001:db8::1]:4711".
struct printed_address {
  explicit printed_address(const socket_address& address) noexcept;
  std::array<char, 80> text{};
};

/// The first 16 addresses of a host.
struct host_addresses {
  std::array<socket_address, 16> addresses{};
  std::size_t count = 0;
};

/// Parses a port number.
/// \errors `invalid_input` if the text is not a port number; 0 is valid only if `may_be_zero` is
/// true
[[nodiscard]] result<std::uint16_t> port_of(std::string_view text, bool may_be_zero) noexcept;
/// Parses a numeric address, without blocking; returns no address for a name.
/// \errors `invalid_input` if the text can be no name; `resource_exhausted` if memory is missing
[[nodiscard]] result<host_addresses> addresses_of_number(std::string_view host,
                                                         std::uint16_t port) noexcept;
struct lookup;

/// A name lookup with `getaddrinfo`, on a thread of its own. The destructor does not wait for that
/// thread, which exits when the lookup ends. A move-only owner.
class pending_lookup {
 public:
  pending_lookup() noexcept = default;
  pending_lookup(const pending_lookup&) = delete;
  pending_lookup& operator=(const pending_lookup&) = delete;
  pending_lookup(pending_lookup&& other) noexcept : asked_(std::exchange(other.asked_, nullptr)) {}
  pending_lookup& operator=(pending_lookup&& other) noexcept {
    std::swap(asked_, other.asked_);
    return *this;
  }
  ~pending_lookup();

  /// \errors `invalid_input` for an invalid name; `resource_exhausted`
  [[nodiscard]] static result<pending_lookup> start(std::string_view host,
                                                    std::uint16_t port) noexcept;
  [[nodiscard]] bool is_under_way() const noexcept { return asked_ != nullptr; }
  [[nodiscard]] bool is_answered() const noexcept;
  /// A file descriptor that becomes readable when the lookup has been answered.
  [[nodiscard]] int file_descriptor() const noexcept;
  /// Returns the addresses. \pre the lookup has been answered
  /// \errors `not_found` if the name has no address, or could not be resolved;
  /// `resource_exhausted`; the kinds of other system errors
  [[nodiscard]] result<host_addresses> addresses() const noexcept;

 private:
  explicit pending_lookup(lookup* asked) noexcept : asked_(asked) {}

  lookup* asked_ = nullptr;
};

}  // namespace verbspp::detail
#pragma GCC visibility pop
