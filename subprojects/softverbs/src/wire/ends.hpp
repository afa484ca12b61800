// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "wire/greeting.hpp"
#include "wire/packet.hpp"
#include "wire/ring.hpp"

#include <sys/types.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

namespace softverbs {

/// The way to the process of a slot.
struct outlet {
  int socket = -1;
  pid_t process = 0;  ///< that it led to, also if it is gone; 0 if there was none, or unknown
  bool blocked = false;
  bool short_of_means = false;          ///< to connect: that is tried again
  std::shared_ptr<remote_process> end;  ///< null without a greeting
  bool answered = false;
  std::optional<ring_writer> ring;
  std::array<std::vector<std::uint32_t>, 3> waiting;  ///< by `turn`
  std::deque<packet_header> owed;

  outlet() = default;
  outlet(const outlet&) = delete;
  outlet& operator=(const outlet&) = delete;
  ~outlet() { disconnect(); }
  void disconnect() noexcept {
    if (socket >= 0) ::close(socket);
    socket = -1;
    answered = false;
    ring.reset();
    if (end) end->gone = true;
    end.reset();
  }
};

/// A connection that somebody has opened to this process.
struct inlet {
  explicit inlet(int connected) noexcept : socket(connected), process(process_behind(connected)) {}
  inlet(const inlet&) = delete;
  inlet& operator=(const inlet&) = delete;
  ~inlet() {
    ::close(socket);
    if (end) end->gone = true;
  }

  int socket;
  pid_t process;           ///< 0 if it can't be told
  std::uint32_t slot = 0;  ///< of that process, once it is known
  bool heard = false;
  std::optional<ring_reader> ring;
  unsigned in_vain = 0;  ///< looks into the ring
  bool watched = false;
  bool ended = false;                   ///< and may have left something in the ring
  std::shared_ptr<remote_process> end;  ///< null without a greeting
  unsigned in_a_row = 0;
  bool ready = false;
};

/// Whose events they are, where an inlet's are told by its address.
inline constexpr std::uint64_t listener_tag = ~std::uint64_t{0};
/// With the slot below it.
inline constexpr std::uint64_t outlet_tag = std::uint64_t{1} << 63;

}  // namespace softverbs
