// SPDX-License-Identifier: Apache-2.0
/// \file
/// TCP sockets, for programs that do not have their own. An exchange works over any stream socket.
#pragma once

#include <verbspp/base/result.hpp>
#include <verbspp/base/wait_limit.hpp>
#include <verbspp/device/gid.hpp>

#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>

namespace verbspp {

/// A connected socket, which the destructor closes. Sockets that the library opens or accepts are
/// non-blocking, and are closed on exec.
///
/// A move-only owner. A default-constructed socket is not open. Thread rule: as for a plain value.
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

  /// Connects to a port of a host. The host is given by its name or its address (IPv4 or IPv6).
  ///
  /// If a name has several addresses, the first 16 are tried one after another, in the order in
  /// which the system returns them. Each address is tried for an equal share of the remaining time.
  /// The system's lookup function accepts no limit, so a separate thread looks up the name, and
  /// exits when the lookup ends. If the limit is reached first, the thread continues, and its
  /// answer is discarded. At most 16 lookups proceed at a time. A numeric address needs no thread.
  /// \errors `invalid_input` if the host or port is not valid; `not_found` if the name has no
  /// address, or could not be resolved; `not_connected` with the outcome for each address;
  /// `timed_out` and `cancelled` when the limit is reached; `resource_exhausted`; otherwise the
  /// errno of the failed lookup
  [[nodiscard]] static result<tcp_socket> connect(std::string_view host, std::string_view port,
                                                  const wait_limit& limit) noexcept;
  /// Takes ownership of a connected socket, whose flags stay unchanged.
  [[nodiscard]] static tcp_socket from_native(int descriptor) noexcept {
    tcp_socket made;
    made.descriptor_ = descriptor;
    return made;
  }

  /// The address of the other end, which can be passed to `open_device_towards`. An IPv4 address
  /// has the form ::ffff:a.b.c.d.
  /// \errors `not_connected` if the socket is not open or not connected; `driver` if the peer has
  /// no IP address; otherwise the errno of the failed system call
  [[nodiscard]] result<gid> peer_address() const noexcept;

  /// The file descriptor; -1 if the socket is not open.
  [[nodiscard]] int descriptor() const noexcept { return descriptor_; }
  [[nodiscard]] bool is_open() const noexcept { return descriptor_ >= 0; }
  void close() noexcept;
  /// Shuts the socket down for sending, which also affects other descriptors of the same socket.
  /// The other end can still read the bytes that were sent before, and then reads the end of the
  /// stream; a channel there that watches the socket breaks. Receiving still works at this end.
  /// \errors `not_connected` if the socket is not open or not connected; otherwise the errno of the
  /// failed system call
  [[nodiscard]] result<void> shutdown() const noexcept;
  /// Releases ownership of the socket without closing it.
  [[nodiscard]] int release() noexcept { return std::exchange(descriptor_, -1); }

 private:
  int descriptor_ = -1;
};

/// Listens for connections.
///
/// A move-only owner. Thread rule: several threads may accept at the same time.
class tcp_listener {
 public:
  tcp_listener() noexcept = default;
  /// Listens on a port, or on any free port if `port` is "0". `address` is one address of this host
  /// (IPv4 or IPv6, but not a name). If it is empty, the listener listens on all addresses, both
  /// IPv6 and IPv4.
  /// \errors `invalid_input` if `port` or `address` is not valid; `busy` if another socket uses the
  /// port, or no port is free; `resource_exhausted`; otherwise the errno of the failed system call
  [[nodiscard]] static result<tcp_listener> open(std::string_view port,
                                                 std::string_view address = {}) noexcept;

  /// Waits for the next connection.
  /// \errors `timed_out` and `cancelled` when the limit is reached; as `try_accept`
  [[nodiscard]] result<tcp_socket> accept(const wait_limit& limit) const noexcept;
  /// Returns the next connection without waiting, or nothing if none is pending.
  /// \errors `resource_exhausted` if no descriptor is left; otherwise the errno of the failed
  /// system call
  [[nodiscard]] result<std::optional<tcp_socket>> try_accept() const noexcept;

  /// The port number; 0 if the listener is not open.
  [[nodiscard]] std::uint16_t port() const noexcept;
  /// The descriptor for epoll and poll, which is readable while a connection is pending; -1 if the
  /// listener is not open.
  [[nodiscard]] int descriptor() const noexcept { return socket_.descriptor(); }
  [[nodiscard]] bool is_open() const noexcept { return socket_.is_open(); }
  /// Closes the listener; the system refuses later connections.
  void close() noexcept { socket_.close(); }

 private:
  explicit tcp_listener(tcp_socket socket) noexcept : socket_(std::move(socket)) {}
  tcp_socket socket_{};
};

}  // namespace verbspp
