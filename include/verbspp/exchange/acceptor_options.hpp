// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/detail/chrono.hpp>
#include <verbspp/exchange/exchange_options.hpp>

#include <cstdint>

namespace verbspp {

/// The options of an acceptor.
struct acceptor_options {
  /// The options of each exchange. The text and bytes that they refer to must stay valid as long as
  /// the acceptor exists.
  exchange_options exchange{};
  /// The maximum number of clients that have a place, 1 to 65536. A client has a place from the
  /// moment that it is accepted until its exchange fails, or the program takes it. Further clients
  /// wait in the system's queue until a place is free. A client that has not sent anything yet
  /// costs a socket and a few KiB.
  std::uint32_t clients = 512;
  /// The maximum number of clients in the handshake at a time, at least 1: those that have a queue
  /// pair and are not connected yet. The queue pair is created after the client has introduced
  /// itself. When the maximum is reached, clients wait in the order in which they introduced
  /// themselves.
  std::uint32_t handshakes = 64;
  /// The time limit of each exchange, from the moment that its client is accepted.
  std::chrono::nanoseconds limit = std::chrono::seconds(5);
  /// The time in which a client should introduce itself, and prove that it knows the secret if
  /// there is one. If all places are taken and another client needs one, the oldest client that has
  /// exceeded this time is refused. So silent strangers can delay a client, but they can't keep it
  /// out.
  std::chrono::nanoseconds time_to_greet = std::chrono::milliseconds(500);
  /// The maximum number of clients accepted per second; 0 for no limit.
  std::uint32_t accepts_per_second = 0;
};

}  // namespace verbspp
