// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "wire/packet.hpp"

#include <cstddef>
#include <cstdint>

/// Malicious processes of the same user.
namespace hostile {

/// An order of the test to a liar.
struct order {
  enum class kind : std::uint8_t {
    leave,
    /// Writes false data to its tables: lie number `number`.
    lie,
    /// Announces endlessly that it is using `pair` and `region`, by their indices in the tables.
    announce,
    /// For `milliseconds`, writes random data with the seed `number` to all memory that it shares,
    /// and sends notices through all connections.
    scribble,
    /// For `milliseconds`, sends notices without a pause that there is room in a ring.
    chatter,
  };
  kind what;
  std::uint32_t number;
  std::uint32_t pair;
  std::uint32_t region;
  std::uint32_t milliseconds;
};

/// The number of different lies.
std::size_t lies();

/// Connects to the test's endpoint correctly, and then follows orders.
int liar();
/// Opens and closes connections to a process, one after the other. The test sends the number of
/// connections, and the number of a queue pair in the process.
int caller();
/// Opens connections to a process, sends nothing, and keeps them until the test sends something:
/// `number` of them in each of `region` processes, by the number of a queue pair there.
int holder();
/// Sends the packets that the test passes, whatever sender they name.
int forger();

}  // namespace hostile
