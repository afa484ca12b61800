// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "support/cm_fabric.hpp"

#include <rdma/rsocket.h>
#include <sys/socket.h>

#include <cstddef>
#include <cstdint>
#include <string>

/// An rsocket, which the destructor closes.
struct one_rsocket {
  explicit one_rsocket(int type = SOCK_STREAM, int domain = AF_INET);
  /// Takes ownership of an accepted rsocket.
  static one_rsocket of(int descriptor);
  one_rsocket(one_rsocket&& from) noexcept;
  one_rsocket& operator=(one_rsocket&&) = delete;
  ~one_rsocket() { close(); }

  void close();
  int bind(const char* address, std::uint16_t port = 0) const;
  int connect(const char* address, std::uint16_t port) const;
  std::uint16_t port() const;
  /// Returns the address and the port of this end, in the form "198.18.83.1 1234".
  std::string name() const;
  std::string peer_name() const;

  // `send` blocks until all of the text has been sent, and `receive` until `length` bytes or one
  // datagram have arrived, or the peer sends no more.
  void send(const std::string& text) const;
  std::string receive(std::size_t length) const;

  void set(int level, int option, int value) const;
  int get(int level, int option) const;
  void make_nonblocking() const;
  /// Returns the events that are available now.
  int ready(int events) const;
  /// Waits for at least one of the events, and returns those that have occurred.
  int wait_for(int events) const;

  int descriptor = -1;

 private:
  struct adopted {};
  one_rsocket(adopted, int given) noexcept : descriptor(given) {}
};

/// A listener on a free port. Its options are set before it starts to listen.
struct rsocket_listener : one_rsocket {
  explicit rsocket_listener(const char* address = "198.18.83.1", int mappings = 0);
  one_rsocket accept() const;
};

/// Both ends of a connection, and the listener that accepted it. Each end permits the other to
/// create up to `mappings` mappings.
struct rsocket_pair {
  explicit rsocket_pair(int mappings = 0);

  rsocket_listener listener;
  one_rsocket client;
  one_rsocket server;
};
