// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/detail/chrono.hpp>
#include <verbspp/exchange/exchange_options.hpp>

#include <cstdint>

namespace verbspp {

/// The options of an acceptor.
struct acceptor_options {
  /// The options for each exchange. The text and bytes that these options refer to must stay valid
  /// as long as the acceptor exists.
  exchange_options exchange{};
  /// The maximum number of clients that the acceptor serves at the same time, 1 to 65536. A client
  /// counts from the moment that it is accepted until its exchange fails, or until the program
  /// takes it. Further clients wait in the listener's queue. A client that has not sent anything
  /// yet costs a socket and a few KiB, or more if the values are large.
  std::uint32_t clients = 512;
  /// The maximum number of clients that can be in the handshake at the same time, at least 1. A
  /// client is in the handshake from the creation of its queue pair, which happens after the client
  /// has introduced itself, until it is connected. When the maximum is reached, further clients
  /// wait in the order in which they introduced themselves.
  std::uint32_t handshakes = 64;
  /// The time limit of each exchange, which starts when the acceptor accepts the client.
  std::chrono::nanoseconds limit = std::chrono::seconds(5);
  /// The time within which a client should introduce itself and, if there is a secret, prove that
  /// it knows the secret. If a new client connects while the acceptor already serves the maximum
  /// number of clients, the oldest client that has exceeded this time is refused. Silent clients
  /// can therefore delay another client, but can keep it out only by taking each place that becomes
  /// free.
  std::chrono::nanoseconds time_to_greet = std::chrono::milliseconds(500);
  /// The maximum number of clients that are accepted per second, on average; 0 means no limit.
  /// After a pause, up to a tenth of this number, plus one, may be accepted in one burst.
  std::uint32_t accepts_per_second = 0;
};

}  // namespace verbspp
