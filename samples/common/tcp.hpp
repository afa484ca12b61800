// SPDX-License-Identifier: Apache-2.0
/// \file
/// A TCP connection, which the two ends need before they have an RDMA connection.
#pragma once

#include <verbspp/verbspp.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

namespace tcp {

struct port_traits {
  using value_type = std::uint16_t;
  static constexpr value_type minimum = 1, maximum = 65535;
  static constexpr const char* name = "TCP port (1..65535)";
};
using port = verbspp::bounded<port_traits>;

/// An owned file descriptor.
class descriptor {
 public:
  explicit descriptor(int number) noexcept : number_(number) {}
  descriptor(descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  descriptor& operator=(descriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  ~descriptor();
  [[nodiscard]] int number() const noexcept { return number_; }
  [[nodiscard]] bool is_open() const noexcept { return number_ >= 0; }

 private:
  int number_;
};

/// The TCP connection to the peer. All of its waits have a limit, except for the resolution of the
/// host's name.
class connection {
 public:
  [[nodiscard]] static verbspp::result<connection> connect(const std::string& host, port number,
                                                           const verbspp::wait_limit& limit);

  [[nodiscard]] verbspp::result<void> send(std::span<const std::byte> bytes) const;
  /// Fills `bytes` completely.
  [[nodiscard]] verbspp::result<void> receive(std::span<std::byte> bytes,
                                              const verbspp::wait_limit& limit) const;
  /// True if there is data to receive, or the peer has closed the connection.
  [[nodiscard]] bool has_news() const;
  /// True if the peer has closed the connection, for instance because its process has exited or was
  /// killed.
  [[nodiscard]] bool is_closed_by_peer() const noexcept;
  void close() noexcept { const descriptor closing = std::move(socket_); }
  [[nodiscard]] bool is_open() const noexcept { return socket_.is_open(); }

 private:
  friend class listener;
  explicit connection(descriptor socket) noexcept : socket_(std::move(socket)) {}
  descriptor socket_;
};

/// Receives an encoded endpoint or remote memory.
template <class Object>
[[nodiscard]] verbspp::result<Object> receive_object(const connection& peer,
                                                     const verbspp::wait_limit& limit) {
  std::array<std::byte, Object::encoded_size> bytes{};
  VERBSPP_TRYV(peer.receive(bytes, limit));
  return Object::decode(bytes);
}

/// Listens for clients.
class listener {
 public:
  [[nodiscard]] static verbspp::result<listener> open(port number);
  [[nodiscard]] verbspp::result<connection> accept(const verbspp::wait_limit& limit) const;

 private:
  explicit listener(descriptor socket) noexcept : socket_(std::move(socket)) {}
  descriptor socket_;
};

}  // namespace tcp
