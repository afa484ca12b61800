// SPDX-License-Identifier: Apache-2.0
/// \file
/// The interface of the soak, in which two ends, or a server and its clients, send each other
/// random requests, and check every byte.
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
  /// The soak ends when all ends together have posted this many operations, or after `time`.
  std::uint64_t operations = 1'000'000;
  std::chrono::seconds time = std::chrono::hours(24);
  /// The minimum number of operations. On a busy machine, the soak continues beyond `time` until
  /// this number is reached.
  std::uint64_t at_least = 0;
  /// The time limit with which an end usually waits for its own requests. It is long because an
  /// emulated machine is slow. An end waits three times as long for the other end to reach a step.
  std::chrono::seconds patience{60};
  /// True if the peer is a separate process, which is killed at random.
  bool kills = false;
  /// The code for the ACK timeout. It can be raised because Linux's software driver may hang when
  /// it retransmits reads and atomics, so a slow machine must not cause retransmissions.
  unsigned ack_timeout = 14;
  /// If this is not negative, the peer is a process that is started separately, and this is the
  /// descriptor for the memory that both share. The memory initially contains zeros.
  int board = -1;
  /// Injects random faults, which requires softverbs.
  bool faults = false;
  /// If this is not 0, a server runs with this many clients, at most 8, instead of two ends. If
  /// `kills` is set, the clients are processes.
  unsigned clients = 0;
  /// Prints the progress at intervals.
  bool talks = false;
};

/// The result of the soak.
struct summary {
  std::string failure;  ///< a description of the failure, or an empty string if there was none
  std::string text;     ///< counts of events and other observations, one per line
  std::uint64_t operations = 0;
};

[[nodiscard]] summary run(const options& wanted);
[[nodiscard]] summary run_clients(const options& wanted);

/// The main functions of processes that are started with `--peer`.
[[nodiscard]] int run_peer(const options& wanted, int board_descriptor);
[[nodiscard]] int run_client(const options& wanted, unsigned number, int hall_descriptor);

}  // namespace verbspp::soak
