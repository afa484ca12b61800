// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "wire/packet.hpp"

#include <cstddef>
#include <cstdint>

/// Malicious processes that belong to the same user, and attack the device of another process.
namespace hostile {

/// A command that the test sends to a malicious process. Only a `liar` uses `what`.
struct order {
  enum class kind : std::uint8_t {
    leave,
    /// Writes false data to the liar's own tables, or to other memory that it shares. `number`
    /// selects the data.
    lie,
    /// Changes the mark by which peers verify that the tables belong to the liar's process.
    change_mark,
    /// Announces that the liar uses the queue pair and the region at the indices `pair` and
    /// `region` of the test process's tables, and never revokes the announcement.
    announce,
    /// Writes random values to random places in the memory that the liar shares, and sends random
    /// messages through its connections, for `milliseconds`. `number` is the seed.
    scribble,
    /// Continuously sends notices that a ring has room, for `milliseconds`.
    chatter,
  };
  kind what;
  std::uint32_t number;
  std::uint32_t pair;
  std::uint32_t region;
  std::uint32_t milliseconds;
};

/// The number of kinds of false data.
std::size_t lies();

/// Connects to the test's endpoint correctly, and then executes the commands that the test sends.
int liar();
/// Opens and closes connections to a process, one after the other. The test sends the number of
/// connections, and the number of a queue pair that belongs to that process.
int caller();
/// Opens connections to the process to which the queue pair `order::pair` belongs. There are
/// `order::region` processes, each of which opens `order::number` connections. The processes send
/// nothing through their connections, and keep them open until the test sends something.
int holder();
/// Sends packets whose headers the test passes to this process. These packets may name any sender.
int forger();

}  // namespace hostile
