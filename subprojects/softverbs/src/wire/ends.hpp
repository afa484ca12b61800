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

/// The connection that this process opens to the process of a slot. It carries all packets to that
/// process.
struct outlet {
  int socket = -1;
  pid_t process = 0;  ///< the last process at the other end; 0 if none or unknown
  bool blocked = false;
  bool short_of_means = false;          ///< too few resources to connect, so a retry follows later
  std::shared_ptr<remote_process> end;  ///< null unless a handshake has begun
  bool answered = false;
  std::optional<ring_writer> ring;
  std::array<std::vector<std::uint32_t>, 3> waiting;  ///< the waiting queue pairs, by `turn`
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

/// A connection that a process, which may be this one, has opened to this process. It carries
/// packets from that process.
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
  std::uint32_t slot = 0;  ///< the process's slot; 0 until it is known
  bool heard = false;
  std::optional<ring_reader> ring;
  unsigned in_vain = 0;  ///< the number of successive polls that found the ring empty
  bool watched = false;
  bool ended = false;                   ///< disconnected; its ring may still contain messages
  std::shared_ptr<remote_process> end;  ///< null unless a handshake succeeded
  unsigned in_a_row = 0;
  bool ready = false;
};

/// The epoll data of the listener's events. The epoll data of an inlet's events is its address.
inline constexpr std::uint64_t listener_tag = ~std::uint64_t{0};
/// Set in the epoll data of an outlet's events, whose lower bits are the slot.
inline constexpr std::uint64_t outlet_tag = std::uint64_t{1} << 63;

}  // namespace softverbs
