// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "support/fabric.hpp"

#include <rdma/rdma_cma.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

/// Code that is shared by the tests that connect by IP address.

/// Parses an IPv4 or IPv6 address. The result holds a `sockaddr_in` if it is an IPv4 address.
sockaddr_in6 ip(const char* text, std::uint16_t port = 0);
sockaddr* of_c(sockaddr_in6& address);
std::uint16_t port_of(rdma_cm_id* id);
std::string text_of(const sockaddr* address);
/// Returns one of soft0's addresses, in the form that rdma_create_ep accepts.
rdma_addrinfo* look_up(std::uint16_t port, int flags, rdma_port_space space = RDMA_PS_TCP,
                       ibv_qp_type type = IBV_QPT_RC);

/// An event channel.
struct event_source {
  event_source();
  event_source(const event_source&) = delete;
  event_source& operator=(const event_source&) = delete;
  ~event_source();

  /// Returns a copy of the next event, and acknowledges that event. The copy is valid until the
  /// next call. Fails the test if no event arrives within a minute.
  rdma_cm_event* next();
  /// Does the same as `next()`, but also fails the test if the event has a different type.
  rdma_cm_event* next(rdma_cm_event_type wanted);
  bool is_readable(int milliseconds = 0) const;

  rdma_event_channel* channel;

 private:
  rdma_cm_event last_{};
  std::array<char, 256> private_data_{};
};

/// Returns true if no event is available. A channel may be readable once without having an event.
bool is_silent(const event_source& events);

/// An identifier, which has a queue pair if one is requested.
struct one_id {
  explicit one_id(event_source& events, rdma_port_space space = RDMA_PS_TCP);
  /// Takes ownership of an identifier that came with a connection request.
  explicit one_id(rdma_cm_id* made) : id(made) {}
  one_id(const one_id&) = delete;
  one_id& operator=(const one_id&) = delete;
  ~one_id() { destroy(); }

  void destroy();
  void create_queue_pair();
  /// Creates a queue pair unless there is one, and requests the connection for it. Returns the
  /// result of rdma_connect.
  int connect(const void* data = nullptr, std::size_t length = 0);
  /// Creates a queue pair unless there is one, and accepts a request with it. Returns the result of
  /// rdma_accept.
  int accept(const void* data = nullptr, std::size_t length = 0);

  rdma_cm_id* id = nullptr;
};

/// A listener, which uses an address of soft0 unless another one is given.
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
