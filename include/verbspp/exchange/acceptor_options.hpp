// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/detail/chrono.hpp>
#include <verbspp/exchange/exchange_options.hpp>

#include <cstdint>

namespace verbspp {

/// How an acceptor serves its clients.
struct acceptor_options {
  /// What both ends have to agree on. What it refers to has to live as long as the acceptor.
  exchange_options exchange{};
  /// The number of clients that may be on their way at once; 1 to 65536. More wait in the system's
  /// queue, until a place is free. A client that has said nothing yet costs a socket and some KiB.
  std::uint32_t clients = 512;
  /// How many of them may have a queue pair at a time: those that have said what they are. The rest
  /// wait for their turn, in the order in which they said it. 1 and more.
  std::uint32_t handshakes = 64;
  /// How long a client may take, from the moment that it is accepted.
  std::chrono::nanoseconds limit = std::chrono::seconds(5);
  /// How long a client may keep a place that another one waits for, before it has said what it is,
  /// and proven that it knows the secret. When all places are taken, the oldest such client has to
  /// go. So silent strangers can delay a client, but they can't keep it out.
  std::chrono::nanoseconds time_to_greet = std::chrono::milliseconds(500);
  /// How many are accepted in a second; 0 for as many as come.
  std::uint32_t accepts_per_second = 0;
};

}  // namespace verbspp
