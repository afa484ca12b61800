// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace softverbs::faults {

/// What a fault waits for.
enum class occasion : std::uint8_t { at_once, time, verb, work, send, receive, packet };

enum class effect_kind : std::uint8_t {
  error,
  status,
  delay,
  loss,
  twice,
  swap,
  port_down,
  port_up,
  device_fatal,
  peer_lost,
  peer_back,
  seed,
  must_strike,
};

/// How the error of a verb is told, if not as is usual for that verb.
enum class form : std::uint8_t { usual, positive, negative, minus_one };

struct effect {
  effect_kind kind{};
  form told{};
  int number = 0;  ///< errno or status
  std::uint32_t vendor_code = 0;
  std::int64_t span = 0;     ///< nanoseconds
  std::int64_t longest = 0;  ///< anything from the span on to this
  bool overtakable = false;  ///< by completions of other queue pairs
  std::uint64_t seed = 0;
  /// The soft device or queue pair that a change of state is about, none for all.
  std::optional<std::uint32_t> target;
  /// The device that it is about, by its name, where devices have any; empty for all.
  std::string device;
  std::optional<unsigned> port;  ///< of the device, none for all
};

struct fault {
  occasion when{};
  std::size_t verb = 0;
  std::optional<std::uint32_t> pair;  ///< its number, none for all
  std::uint64_t first = 1;
  bool repeats = false;
  std::uint32_t chance = 0;  ///< of a million; 0: counted instead
  std::int64_t span = 0;     ///< nanoseconds from when it was set
  effect what;
};

/// Whose faults they are: `softN`, whose packets can be lost, too, or devices of any name, of which
/// only calls and completions can be had.
enum class device_names : std::uint8_t { soft, any };

/// Reads one fault. If that fails, `problem` says why.
std::optional<fault> read_fault(std::string_view text, device_names names, const char*& problem);

/// Without blanks at both ends.
std::string_view trimmed(std::string_view text) noexcept;

}  // namespace softverbs::faults
