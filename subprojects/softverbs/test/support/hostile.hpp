// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "wire/packet.hpp"

#include <cstddef>
#include <cstdint>

/// Malicious processes of the same user, which attack the device of another process.
namespace hostile {

/// A command of the test to a `liar`.
struct order {
  enum class kind : std::uint8_t {
    leave,
    /// Writes false data to the liar's own tables. `number` selects the data.
    lie,
    /// Announces that the liar uses the queue pair and region with these indices in the tables, and
    /// never ends the announcement.
    announce,
    /// For `milliseconds`, writes random data to all memory that the liar shares, and sends notices
    /// through all connections. `number` is the seed.
    scribble,
    /// For `milliseconds`, continuously sends notices that a ring has room.
    chatter,
  };
  kind what;
  std::uint32_t number;
  std::uint32_t pair;
  std::uint32_t region;
  std::uint32_t milliseconds;
};

/// The number of different false data.
std::size_t lies();

/// Connects to the test's endpoint correctly, and then executes commands.
int liar();
/// Opens and closes connections to a process, one after another. The test sends the number of
/// connections, and the number of a queue pair of that process.
int caller();
/// Opens connections to the process of the queue pair `order::pair`: `order::number` from each of
/// `order::region` processes. Sends nothing through them, and keeps them open until the test sends
/// something.
int holder();
/// Sends packets that the test passes to this process. The packets may name any sender.
int forger();

}  // namespace hostile
