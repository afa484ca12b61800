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

/// The connection to the process of a slot.
struct outlet {
  int socket = -1;
  pid_t process = 0;  ///< the process it leads to or led to; 0 if there was none, or unknown
  bool blocked = false;
  bool short_of_means = false;          ///< too few resources to connect: retried later
  std::shared_ptr<remote_process> end;  ///< null without a handshake
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

/// A connection that another process has opened to this one.
struct inlet {
  explicit inlet(int connected) noexcept : socket(connected), process(process_behind(connected)) {}
  inlet(const inlet&) = delete;
  inlet& operator=(const inlet&) = delete;
  ~inlet() {
    ::close(socket);
    if (end) end->gone = true;
  }

  int socket;
  pid_t process;           ///< 0 if unknown
  std::uint32_t slot = 0;  ///< the process' slot; 0 until known
  bool heard = false;
  std::optional<ring_reader> ring;
  unsigned in_vain = 0;  ///< the number of polls that found the ring empty
  bool watched = false;
  bool ended = false;                   ///< the connection has ended, but the ring may not be empty
  std::shared_ptr<remote_process> end;  ///< null without a handshake
  unsigned in_a_row = 0;
  bool ready = false;
};

/// The epoll data of events of the listener. An event of an inlet has the inlet's address.
inline constexpr std::uint64_t listener_tag = ~std::uint64_t{0};
/// The epoll data of events of an outlet, combined with the slot in the lower bits.
inline constexpr std::uint64_t outlet_tag = std::uint64_t{1} << 63;

}  // namespace softverbs
