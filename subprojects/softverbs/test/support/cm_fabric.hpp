// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "support/fabric.hpp"

#include <rdma/rdma_cma.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

/// Shared code of the tests of connections by IP address.

/// Converts an address of a soft device, or a loopback address, from text.
sockaddr_in6 ip(const char* text, std::uint16_t port = 0);
sockaddr* of_c(sockaddr_in6& address);
std::uint16_t port_of(rdma_cm_id* id);
std::string text_of(const sockaddr* address);
/// Returns an address of soft0 that rdma_create_ep accepts.
rdma_addrinfo* look_up(std::uint16_t port, int flags, rdma_port_space space = RDMA_PS_TCP,
                       ibv_qp_type type = IBV_QPT_RC);

/// An event channel.
struct event_source {
  event_source();
  event_source(const event_source&) = delete;
  event_source& operator=(const event_source&) = delete;
  ~event_source();

  /// Returns a copy of the next event, which is acknowledged. It is valid until the next call. The
  /// test fails if no event arrives within a minute.
  rdma_cm_event* next();
  /// Does the same as `next()`, and fails the test if the event has another type.
  rdma_cm_event* next(rdma_cm_event_type wanted);
  bool is_readable(int milliseconds = 0) const;

  rdma_event_channel* channel;

 private:
  rdma_cm_event last_{};
  std::array<char, 256> private_data_{};
};

/// An identifier, with a queue pair if requested.
struct one_id {
  explicit one_id(event_source& events, rdma_port_space space = RDMA_PS_TCP);
  /// Takes ownership of the identifier of a request.
  explicit one_id(rdma_cm_id* made) : id(made) {}
  one_id(const one_id&) = delete;
  one_id& operator=(const one_id&) = delete;
  ~one_id() { destroy(); }

  void destroy();
  void create_queue_pair();
  /// Requests the connection, with a queue pair. Returns the result of rdma_connect.
  int connect(const void* data = nullptr, std::size_t length = 0);
  /// Accepts a request, with a queue pair. Returns the result of rdma_accept.
  int accept(const void* data = nullptr, std::size_t length = 0);

  rdma_cm_id* id = nullptr;
};

/// A listener, at an address of soft0 by default.
struct cm_listener : one_id {
  explicit cm_listener(event_source& events, const char* address = "198.18.83.1",
                       rdma_port_space space = RDMA_PS_TCP, int backlog = 0);
  sockaddr_in6 address(const char* text = "198.18.83.1") const;
};

/// Resolves the address and the route, so that rdma_connect can be called.
void resolve(event_source& events, one_id& client, sockaddr_in6 target);

rdma_conn_param parameters_with(const void* data = nullptr, std::size_t length = 0);

/// Two connected ends in one process, each with its own channel.
struct cm_pair {
  explicit cm_pair(const char* address = "198.18.83.1");

  event_source client_events;
  event_source server_events;
  cm_listener listener;
  one_id client;
  one_id server{nullptr};
};
