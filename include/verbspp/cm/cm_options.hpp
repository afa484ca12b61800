// SPDX-License-Identifier: Apache-2.0
/// \file
/// The options of listeners, routes and connections, and the rejection of a request by the peer.
#pragma once

#include <verbspp/base/bounded.hpp>
#include <verbspp/cm/cm_address.hpp>
#include <verbspp/cm/private_data.hpp>
#include <verbspp/qp/parameters.hpp>

#include <cstdint>
#include <optional>

namespace verbspp {

/// The reason why a peer's connection manager rejected a request, with the values of the InfiniBand
/// specification. A reason that is not in this list is kept as a number.
enum class cm_rejection_reason : std::uint16_t {
  unknown = 0,  ///< the link does not report a reason (iWARP)
  no_queue_pair = 1,
  no_resources = 3,
  timeout = 4,
  unsupported_request = 5,
  no_listener = 8,
  stale_connection = 10,
  not_enough_responder_resources = 27,
  /// The peer's program rejected the request, or destroyed it. The kernel also uses this reason if
  /// the program listens on the port, but on another address.
  by_the_program = 28,
  vendor_option_not_supported = 35,
};

/// Returns a sentence that explains the reason.
[[nodiscard]] const char* to_string(cm_rejection_reason reason) noexcept;

/// The peer's rejection of a connection request.
struct cm_rejection {
  cm_rejection_reason reason = cm_rejection_reason::unknown;
  cm_rejection_data data{};
};

/// The options of a listener.
struct cm_listener_options {
  /// The maximum number of requests that can wait to be accepted: 1 to 1024. The kernel's own limit
  /// (net.rdma_ucm.max_backlog) is 1024 by default. The kernel drops any further requests, which
  /// the kernels of their senders retransmit every few seconds.
  int backlog = 64;
  /// Permits binding an address that other identifiers have bound with this option. An identifier
  /// can listen only while no other identifier is bound to the address, and while it listens, no
  /// other identifier can bind the address.
  bool reuse_address = false;
  /// If the listener is opened on the IPv6 wildcard address, it listens only on the IPv6 addresses
  /// of this host, and not on the IPv4 addresses. Without this option, the kernel's setting
  /// net.ipv6.bindv6only decides; by default, it admits both.
  bool only_ipv6 = false;
};

/// The options for resolving a route.
struct cm_route_options {
  /// The local address. If this is empty, the kernel's routing table determines the address. The
  /// port may be 0.
  cm_address source{};
  bool reuse_address = false;
  /// The type of service, as in the IPv4 header: the DSCP is in the upper six bits.
  std::optional<std::uint8_t> type_of_service{};
};

/// The options of a connection request. The peer is asked to use the parameters `retries` and
/// `rnr_retries`. A queue pair or channel of this library, at either end, uses the parameters of
/// its builder instead.
struct cm_connect_options {
  cm_request_data data{};
  /// The number of times that the peer should retransmit a packet that is not acknowledged.
  retry_count retries = 7;
  /// The number of times that the peer should retry a send when this end has no receive posted.
  rnr_retry_count rnr_retries = rnr_retry_count::unlimited();
  /// The object in which the peer's rejection is stored if the peer rejects the request; null if
  /// the rejection is not needed.
  cm_rejection* rejection = nullptr;
};

/// The options of an acceptance, with the same meanings as in `cm_connect_options`.
struct cm_accept_options {
  cm_acceptance_data data{};
  rnr_retry_count rnr_retries = rnr_retry_count::unlimited();
};

}  // namespace verbspp
