// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "options.hpp"
#include <verbspp/verbspp.hpp>

#include <chrono>
#include <cstddef>
#include <span>
#include <string>
#include <utility>

namespace rc_pingpong {

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
class tcp_connection {
 public:
  /// Waits, without limit, for one client.
  [[nodiscard]] static verbspp::result<tcp_connection> accept(
      verbspp::bounded<tcp_port_traits> port);
  [[nodiscard]] static verbspp::result<tcp_connection> connect(
      const std::string& host, verbspp::bounded<tcp_port_traits> port,
      std::chrono::nanoseconds limit);

  [[nodiscard]] verbspp::result<void> send(std::span<const std::byte> bytes) const;
  /// Fills `bytes`, neither less nor more.
  [[nodiscard]] verbspp::result<void> receive(std::span<std::byte> bytes,
                                              std::chrono::nanoseconds limit) const;
  /// Whether there is something to receive, be it that the peer has closed.
  [[nodiscard]] bool has_news() const;
  void close() noexcept { const descriptor closing = std::move(socket_); }
  [[nodiscard]] bool is_open() const noexcept { return socket_.is_open(); }

 private:
  explicit tcp_connection(descriptor socket) noexcept : socket_(std::move(socket)) {}
  descriptor socket_;
};

}  // namespace rc_pingpong
