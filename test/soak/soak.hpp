// SPDX-License-Identifier: Apache-2.0
/// \file
/// Two channels that send each other random requests, and check every byte.
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
  /// The soak ends when both ends together have posted this many operations, or after this time.
  std::uint64_t operations = 1'000'000;
  std::chrono::seconds time = std::chrono::hours(24);
  /// On a busy machine, it does not end before this many operations.
  std::uint64_t at_least = 0;
  /// The longest wait of an end for its own request; an emulated machine is slow. For a step of the
  /// other end, it waits three times as long.
  std::chrono::seconds patience{60};
  /// The peer is a separate process, which is killed at random.
  bool kills = false;
  /// The code of the ACK timeout. Linux's software driver may hang when it retransmits reads and
  /// atomics, which must not happen only because a machine is slow.
  unsigned ack_timeout = 14;
  /// The peer is started separately, as another process, and this is the descriptor of the memory
  /// that both share, initially all zero; negative if there is none.
  int board = -1;
  /// Sets faults at random if the device is softverbs.
  bool faults = false;
  /// Runs a server with this many clients, at most 8, instead of two ends. With `kills`, the
  /// clients are processes.
  unsigned clients = 0;
  /// Prints the progress at intervals.
  bool talks = false;
};

/// The result. Any failure is described in `failure`.
struct summary {
  std::string failure;  ///< empty if there was no failure
  std::string text;     ///< counts, one in each line
  std::uint64_t operations = 0;
};

[[nodiscard]] summary run(const options& wanted);
[[nodiscard]] summary run_clients(const options& wanted);

/// The main functions of the other processes.
[[nodiscard]] int run_peer(const options& wanted, int board_descriptor);
[[nodiscard]] int run_client(const options& wanted, unsigned number, int hall_descriptor);

}  // namespace verbspp::soak
