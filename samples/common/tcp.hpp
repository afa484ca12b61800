// SPDX-License-Identifier: Apache-2.0
/// \file
/// What the two ends of an RDMA connection need before there is one: a TCP connection.
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

/// A file descriptor, closed at its end.
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

/// The TCP connection to the peer. Whatever it waits for, it waits only so long.
class connection {
 public:
  [[nodiscard]] static verbspp::result<connection> connect(const std::string& host, port number,
                                                           const verbspp::wait_limit& limit);

  [[nodiscard]] verbspp::result<void> send(std::span<const std::byte> bytes) const;
  /// Fills `bytes`, neither less nor more.
  [[nodiscard]] verbspp::result<void> receive(std::span<std::byte> bytes,
                                              const verbspp::wait_limit& limit) const;
  /// Whether there is something to receive, be it that the peer has closed.
  [[nodiscard]] bool has_news() const;
  /// Whether the peer has closed: its process has ended, whatever ended it.
  [[nodiscard]] bool is_closed_by_peer() const noexcept;
  void close() noexcept { const descriptor closing = std::move(socket_); }
  [[nodiscard]] bool is_open() const noexcept { return socket_.is_open(); }

 private:
  friend class listener;
  explicit connection(descriptor socket) noexcept : socket_(std::move(socket)) {}
  descriptor socket_;
};

/// An endpoint or a remote memory, which the peer has sent encoded.
template <class Object>
[[nodiscard]] verbspp::result<Object> receive_object(const connection& peer,
                                                     const verbspp::wait_limit& limit) {
  std::array<std::byte, Object::encoded_size> bytes{};
  VERBSPP_TRYV(peer.receive(bytes, limit));
  return Object::decode(bytes);
}

/// Waits for clients.
class listener {
 public:
  [[nodiscard]] static verbspp::result<listener> open(port number);
  [[nodiscard]] verbspp::result<connection> accept(const verbspp::wait_limit& limit) const;

 private:
  explicit listener(descriptor socket) noexcept : socket_(std::move(socket)) {}
  descriptor socket_;
};

}  // namespace tcp
