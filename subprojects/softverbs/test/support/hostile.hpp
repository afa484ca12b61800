// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "wire/packet.hpp"

#include <cstddef>
#include <cstdint>

/// Other processes of the same user that mean no good.
namespace hostile {

/// What the test asks a liar for.
struct order {
  enum class kind : std::uint8_t {
    leave,
    /// To say something untrue in its tables: the one of that number.
    lie,
    /// To announce for ever that it is using `pair` and `region`, by their places in the tables.
    announce,
    /// To write, for `milliseconds`, what `number` makes of it to all memory that it shares, and to
    /// say something through all connections.
    scribble,
    /// To say, for `milliseconds` and without a pause, that there is room in a ring.
    chatter,
  };
  kind what;
  std::uint32_t number;
  std::uint32_t pair;
  std::uint32_t region;
  std::uint32_t milliseconds;
};

/// How many lies there are.
std::size_t lies();

/// Connects to the test's endpoint as anybody does, and then does what it is told to.
int liar();
/// Opens connections to a process, and closes them, one after the other: as many as the test asks
/// for, by the number of a queue pair there.
int caller();
/// Opens connections to a process, says nothing, and keeps them until the test tells it something:
/// `number` of them in each of `region` processes, by the number of a queue pair there.
int holder();
/// Sends the packets that the test gives it, whoever they are said to be from.
int forger();

}  // namespace hostile
