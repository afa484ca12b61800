// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "support/fabric.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

/// Code that the XRC tests share. A connection has two halves: a sending queue pair, which belongs
/// to an endpoint, and a receiving queue pair, which belongs to an XRC domain.

ibv_xrcd* open_domain(ibv_context* verbs, int descriptor, int flags);
ibv_qp* create_target(ibv_xrcd* domain);
std::uint32_t number_of(ibv_srq* queue);
/// The attributes for opening this queue pair.
ibv_qp_open_attr to_open(const ibv_qp* made, ibv_xrcd* domain);
/// Returns attributes with which to create a shared receive queue.
ibv_srq_init_attr_ex to_share(ibv_pd* protection, ibv_xrcd* domain, ibv_cq* queue);

/// The sending half of a connection. If `operations` is not 0, its requests can be built with
/// function calls.
struct xrc_sender : endpoint {
  explicit xrc_sender(options wanted = {}, std::uint64_t operations = 0);
  /// Sends to the shared receive queue with this number.
  int send_to(std::uint64_t id, std::uint32_t shared_queue, std::uint32_t length);
};

/// The receiving half of a connection, with a shared receive queue. Its protection domain,
/// completion queue and memory belong to an endpoint.
struct xrc_receiver {
  /// If a descriptor is given, the XRC domain belongs to that file.
  explicit xrc_receiver(const options& wanted = {}, int descriptor = -1);
  xrc_receiver(const xrc_receiver&) = delete;
  xrc_receiver& operator=(const xrc_receiver&) = delete;
  ~xrc_receiver();

  /// The address to which senders connect.
  address here() const;
  /// Moves the queue pair from RESET to RTS. Returns 0 or an errno value.
  int connect(const address& peer) const;
  ibv_qp_attr attributes(const address& peer) const;
  ibv_qp_state state() const;
  ibv_srq* create_shared() const;
  int post(ibv_srq* into, std::uint64_t id, std::size_t offset, std::uint32_t length) const;

  endpoint end;
  ibv_xrcd* domain = nullptr;
  ibv_srq* shared = nullptr;
  ibv_qp* target = nullptr;
};

/// Both halves of a connection. They are in this process, and connected to each other.
struct xrc_connection {
  explicit xrc_connection(const options& wanted = {}, std::uint64_t operations = 0,
                          int descriptor = -1);
  xrc_sender sender;
  xrc_receiver receiver;
};
