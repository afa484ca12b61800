// SPDX-License-Identifier: Apache-2.0
/// \file
/// The options of listeners, routes and connections, and the answer of a peer that rejects.
#pragma once

#include <verbspp/base/bounded.hpp>
#include <verbspp/cm/cm_address.hpp>
#include <verbspp/cm/private_data.hpp>
#include <verbspp/qp/parameters.hpp>

#include <cstdint>
#include <optional>

namespace verbspp {

/// The reason for which a peer's manager rejects; the values are the InfiniBand specification's.
/// Others than these are numbers.
enum class cm_rejection_reason : std::uint16_t {
  unknown = 0,  ///< the link doesn't tell: iWARP
  no_queue_pair = 1,
  no_resources = 3,
  timeout = 4,
  unsupported_request = 5,
  no_listener = 8,
  stale_connection = 10,
  not_enough_responder_resources = 27,
  by_the_program = 28,  ///< the peer's program rejected, or let the request go
  vendor_option_not_supported = 35,
};

/// The reason in a sentence.
[[nodiscard]] const char* to_string(cm_rejection_reason reason) noexcept;

/// The answer of a peer that rejects.
struct cm_rejection {
  cm_rejection_reason reason = cm_rejection_reason::unknown;
  cm_rejection_data data{};
};

/// How a listener is set up.
struct cm_listener_options {
  /// Requests that wait to be accepted, 1 to 1024, which is the kernel's own limit
  /// (net.rdma_ucm.max_backlog). The kernel drops one more, and that of its sender asks again,
  /// every four seconds, until there is room.
  int backlog = 64;
  /// It may be bound where others are that say so, too. One of them may listen: on newer kernels
  /// (6.1) only if nobody else is left there, and nobody comes as long as it does.
  bool reuse_address = false;
  /// Of the wildcard address of IPv6: not IPv4's as well.
  bool only_ipv6 = false;
  /// Of what it accepts, in the terms of IPv4's header: the DSCP in the upper six bits.
  std::optional<std::uint8_t> type_of_service{};
};

/// How a route is looked for.
struct cm_route_options {
  /// The local address; without it, the one that the system's routing chooses. Its port may be 0.
  cm_address source{};
  bool reuse_address = false;
  /// In the terms of IPv4's header: the DSCP in the upper six bits.
  std::optional<std::uint8_t> type_of_service{};
};

/// What is asked of the peer's end; what the builder was given holds for one's own.
struct cm_connect_options {
  cm_request_data data{};
  /// How often the peer sends again what is not acknowledged.
  retry_count retries = 7;
  /// How often the peer sends again when this end has no receive posted.
  rnr_retry_count rnr_retries = rnr_retry_count::unlimited();
  /// If the peer rejects, what it says goes there, before the call returns.
  cm_rejection* rejection = nullptr;
};

/// The same of an end that accepts.
struct cm_accept_options {
  cm_acceptance_data data{};
  rnr_retry_count rnr_retries = rnr_retry_count::unlimited();
};

}  // namespace verbspp
