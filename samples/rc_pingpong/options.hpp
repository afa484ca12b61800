// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "common/tcp.hpp"
#include <verbspp/verbspp.hpp>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

namespace rc_pingpong {

// Bounded numbers of this program, which are checked like those of the library.
struct message_size_traits {
  using value_type = std::uint32_t;
  static constexpr value_type minimum = 1, maximum = 0x80000000;
  static constexpr const char* name = "message size, bytes (1..2^31)";
};
struct iteration_count_traits {
  using value_type = std::uint32_t;
  static constexpr value_type minimum = 1, maximum = 0x7fffffff;
  static constexpr const char* name = "iterations (1..2^31-1)";
};
struct receive_depth_traits {
  using value_type = std::uint32_t;
  static constexpr value_type minimum = 1, maximum = 0x7ffffffe;
  static constexpr const char* name = "receives to keep posted (1..2^31-2)";
};

struct options {
  std::optional<std::string> host;  ///< the server's host; empty if this process is the server
  tcp::port tcp_port = 18515;
  std::optional<std::string> device;         ///< the first one if not given
  std::optional<verbspp::port_number> port;  ///< the first active one if not given
  std::optional<verbspp::gid_index> gid_index;
  std::optional<verbspp::path_mtu> mtu;
  verbspp::bounded<message_size_traits> size = 4096;
  verbspp::bounded<iteration_count_traits> iterations = 1000;
  verbspp::bounded<receive_depth_traits> receive_depth = 500;
  verbspp::service_level service_level;
  verbspp::ack_timeout ack_timeout;
  verbspp::retry_count retries = 7;
  bool check = false;
  bool ibv_exchange = false;
  bool help = false;

  /// The time after which a silent peer is presumed dead: the longest time that the device needs to
  /// detect a dead peer, but at least one second, because a peer on a busy machine may be silent
  /// for a while.
  [[nodiscard]] std::chrono::nanoseconds patience() const noexcept;
};

/// The output of `--help`.
extern const char* const help_text;

/// Returns the options. If one of them is wrong, prints the reason to stderr and returns nothing.
[[nodiscard]] std::optional<options> parse_options(int argc, char** argv);

}  // namespace rc_pingpong
