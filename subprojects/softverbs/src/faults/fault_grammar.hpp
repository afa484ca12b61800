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

/// The occasion that a fault waits for.
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

/// The form in which a verb reports the error: in its usual way, as a positive errno value, as a
/// negative one, or by returning -1 with errno set.
enum class form : std::uint8_t { usual, positive, negative, minus_one };

struct effect {
  effect_kind kind{};
  form told{};
  int number = 0;  ///< an errno value or a status
  std::uint32_t vendor_code = 0;
  std::int64_t span = 0;     ///< nanoseconds
  std::int64_t longest = 0;  ///< the maximum if the delay is random; `span` is then the minimum
  bool overtakable = false;  ///< true if the delay doesn't hold up completions of other queue pairs
  std::uint64_t seed = 0;
  /// The number of the soft device or queue pair that a change of state affects; empty if the
  /// change affects all of them.
  std::optional<std::uint32_t> target;
  /// The name of the device that a change of state affects, if devices are identified by name;
  /// empty if the change affects all devices.
  std::string device;
  std::optional<unsigned> port;  ///< the affected port; empty for all ports
};

struct fault {
  occasion when{};
  std::size_t verb = 0;
  std::optional<std::uint32_t> pair;  ///< the number of the queue pair; empty for any
  std::uint64_t first = 1;
  bool repeats = false;
  /// The probability in millionths that the fault strikes on an occasion. If it is 0, `first` and
  /// `repeats` determine on which occasions the fault strikes.
  std::uint32_t chance = 0;
  std::int64_t span = 0;  ///< nanoseconds to wait after the fault was set
  effect what;
};

/// The devices that faults affect: either the devices `softN`, or devices of any name. With `any`,
/// faults of packets and peers are not possible.
enum class device_names : std::uint8_t { soft, any };

/// Reads one fault. On failure, returns nothing and sets `problem` to the reason.
std::optional<fault> read_fault(std::string_view text, device_names names, const char*& problem);

/// Returns the text without blanks at both ends.
std::string_view trimmed(std::string_view text) noexcept;

}  // namespace softverbs::faults
