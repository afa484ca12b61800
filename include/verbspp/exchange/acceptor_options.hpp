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
  /// How many clients may be on their way at once; 1 to 65536. More wait in the system's queue. One
  /// that has said nothing yet costs a socket and some KiB.
  std::uint32_t clients = 512;
  /// How many of them may have a queue pair at a time: those that have said what they are. The rest
  /// wait for their turn, in the order in which they said it. 1 and more.
  std::uint32_t handshakes = 64;
  /// How long a client may take, from the moment that it is accepted.
  std::chrono::nanoseconds limit = std::chrono::seconds(5);
  /// How many are accepted in a second; 0 for as many as come.
  std::uint32_t accepts_per_second = 0;
};

}  // namespace verbspp
