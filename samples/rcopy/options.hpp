// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "common/tcp.hpp"
#include <verbspp/verbspp.hpp>

#include <cstdint>
#include <optional>
#include <string>

namespace rcopy {

struct in_flight_traits {
  using value_type = std::uint32_t;
  static constexpr value_type minimum = 1, maximum = 1024;
  static constexpr const char* name = "writes in flight (1..1024)";
};
struct chunk_size_traits {
  using value_type = std::uint32_t;
  static constexpr value_type minimum = 1, maximum = 1U << 30;
  static constexpr const char* name = "bytes per write (1..2^30)";
};
struct seconds_traits {
  using value_type = std::uint32_t;
  static constexpr value_type minimum = 1, maximum = 1U << 30;
  static constexpr const char* name = "time limit, seconds (1..2^30)";
};
struct rate_traits {
  using value_type = std::uint32_t;
  static constexpr value_type minimum = 1, maximum = 1U << 30;
  static constexpr const char* name = "MB per second (1..2^30)";
};

struct options {
  std::string file;
  std::optional<std::string> host;  ///< the server's host; empty if this process is the server
  tcp::port tcp_port = 18516;
  std::optional<std::string> device;  ///< the first one if not given
  verbspp::bounded<in_flight_traits> in_flight = 16;
  verbspp::bounded<chunk_size_traits> chunk = 256 << 10;
  verbspp::bounded<seconds_traits> limit = 3600;
  std::optional<verbspp::bounded<rate_traits>> rate;
  bool help = false;
};

/// The output of `--help`.
extern const char* const help_text;

/// Returns the options. If one of them is wrong, prints the reason to stderr and returns nothing.
[[nodiscard]] std::optional<options> parse_options(int argc, char** argv);

}  // namespace rcopy
