// SPDX-License-Identifier: Apache-2.0
/// \file
/// TCP sockets for those who have none: an exchange takes any stream socket.
#pragma once

#include <verbspp/base/result.hpp>
#include <verbspp/base/wait_limit.hpp>
#include <verbspp/device/gid.hpp>

#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>

namespace verbspp {

/// A connected socket, closed at its end. It does not block, and is not inherited by programs that
/// are executed.
///
/// A move-only owner; a default constructed one is not open. Thread rule: as a plain value.
class tcp_socket {
 public:
  tcp_socket() noexcept = default;
  tcp_socket(const tcp_socket&) = delete;
  tcp_socket& operator=(const tcp_socket&) = delete;
  tcp_socket(tcp_socket&& other) noexcept : descriptor_(other.release()) {}
  tcp_socket& operator=(tcp_socket&& other) noexcept {
    if (this != &other) {
      close();
      descriptor_ = other.release();
    }
    return *this;
  }
  ~tcp_socket() { close(); }

  /// Connects to a host, by its name or address (IPv4 or IPv6), and the number of a port.
  ///
  /// Each address of a name is tried, in the order in which the system gives them, for its share of
  /// the time that is left. Names are looked up by a thread that lasts as long as that, since the
  /// system's own call knows no limit: where the limit comes first, it goes on, and its answer is
  /// dropped. At most 16 such threads are there at a time. Addresses take none.
  /// \errors `invalid_input` for what is no host or port; `not_found` if the name has no address;
  /// `not_connected` with what became of each address; `timed_out` and `cancelled` at the limit;
  /// `resource_exhausted`
  [[nodiscard]] static result<tcp_socket> connect(std::string_view host, std::string_view port,
                                                  const wait_limit& limit) noexcept;
  /// Takes over a socket that is connected.
  [[nodiscard]] static tcp_socket from_native(int descriptor) noexcept {
    tcp_socket made;
    made.descriptor_ = descriptor;
    return made;
  }

  /// The address of the other end, IPv4 as ::ffff:a.b.c.d: for `open_device_towards`.
  /// \errors `not_connected`, and the errno with the call otherwise
  [[nodiscard]] result<gid> peer_address() const noexcept;

  /// -1 if it is not open.
  [[nodiscard]] int descriptor() const noexcept { return descriptor_; }
  [[nodiscard]] bool is_open() const noexcept { return descriptor_ >= 0; }
  void close() noexcept;
  /// Gives the socket away: it is not closed here any more.
  [[nodiscard]] int release() noexcept { return std::exchange(descriptor_, -1); }

 private:
  int descriptor_ = -1;
};

/// Waits for those who connect.
///
/// A move-only owner. Thread rule: several threads may accept.
class tcp_listener {
 public:
  tcp_listener() noexcept = default;
  /// Listens at the port, "0" for one that is free; at one address of this host's (IPv4 or IPv6, no
  /// name), or at all of them, IPv6 and IPv4 alike.
  /// \errors `invalid_input` if `port` or `address` is none; `busy` if another socket has the
  /// port; the errno with the call otherwise
  [[nodiscard]] static result<tcp_listener> open(std::string_view port,
                                                 std::string_view address = {}) noexcept;

  /// The next one that connects.
  /// \errors `timed_out` and `cancelled` at the limit; `resource_exhausted` if no descriptor is
  /// left
  [[nodiscard]] result<tcp_socket> accept(const wait_limit& limit) const noexcept;
  /// The same without waiting: nothing if nobody is there.
  [[nodiscard]] result<std::optional<tcp_socket>> try_accept() const noexcept;

  /// The number of the port; 0 if it is not open.
  [[nodiscard]] std::uint16_t port() const noexcept;
  /// For epoll and poll: readable if somebody is there. -1 if it is not open.
  [[nodiscard]] int descriptor() const noexcept { return socket_.descriptor(); }
  [[nodiscard]] bool is_open() const noexcept { return socket_.is_open(); }
  /// Whoever connects from now on is refused by the system.
  void close() noexcept { socket_.close(); }

 private:
  explicit tcp_listener(tcp_socket socket) noexcept : socket_(std::move(socket)) {}
  tcp_socket socket_{};
};

}  // namespace verbspp
