// SPDX-License-Identifier: Apache-2.0
/// \file
/// Two channels that do everything at random to each other, and check every byte.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace verbspp::soak {

using clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

struct options {
  std::string device = "soft0";
  std::uint64_t seed = 1;
  /// Ends when this much was posted by both ends together, or this long has passed.
  std::uint64_t operations = 1'000'000;
  std::chrono::seconds time = std::chrono::hours(24);
  /// But not before this much was done, on a machine that is busy.
  std::uint64_t at_least = 0;
  /// The most that an end waits for a request of its own; an emulated machine is slow. For a step
  /// of the other end it waits three times as long.
  std::chrono::seconds patience{60};
  /// The peer is a process of its own, which is killed now and then.
  bool kills = false;
  /// The code of the ACK timeout. Linux' software driver may hang where it sends reads and atomics
  /// again, which is not to happen because a machine is slow.
  unsigned ack_timeout = 14;
  /// The peer is started elsewhere, as another process, and this is the descriptor of the memory
  /// that both share, all zero at first; below 0 if there is none.
  int board = -1;
  /// Faults are set at random, where the device is softverbs.
  bool faults = false;
  /// Instead of two ends a server and so many clients, at most 8. With `kills` they are processes.
  unsigned clients = 0;
  /// Prints what goes on every so often.
  bool talks = false;
};

/// What came of it. Anything wrong is in `failure`.
struct summary {
  std::string failure;  ///< empty if all is well
  std::string text;     ///< counts, in lines
  std::uint64_t operations = 0;
};

[[nodiscard]] summary run(const options& wanted);
[[nodiscard]] summary run_clients(const options& wanted);

/// The main functions of other processes.
[[nodiscard]] int run_peer(const options& wanted, int board_descriptor);
[[nodiscard]] int run_client(const options& wanted, unsigned number, int hall_descriptor);

}  // namespace verbspp::soak
