// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "device/device.hpp"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace softverbs {

/// The counters of one port in this process. Thread-safe.
class port_traffic {
 public:
  struct amounts {
    std::uint64_t bytes = 0;
    std::uint64_t packets = 0;
  };
  enum class way : std::uint8_t { sent, received };

  static port_traffic& of(station port) noexcept { return all_[port]; }

  void add(way which, const amounts& more) noexcept {
    counters& mine = parts_[part_of_thread()][static_cast<std::size_t>(which)];
    mine.bytes.fetch_add(more.bytes, std::memory_order_relaxed);
    mine.packets.fetch_add(more.packets, std::memory_order_relaxed);
  }
  amounts read(way which) const noexcept;

  /// The number of times that the port went down.
  std::atomic<std::uint64_t> failures{0};
  /// The numbers of RNR NAKs that the port's queue pairs have received and sent. An RNR NAK refuses
  /// a message for which no receive is posted.
  std::atomic<std::uint64_t> refusals_received{0};
  std::atomic<std::uint64_t> refusals_sent{0};

 private:
  struct counters {
    std::atomic<std::uint64_t> bytes{0};
    std::atomic<std::uint64_t> packets{0};
  };
  /// The counters are divided into parts, so that threads that post at the same time rarely use the
  /// same cache line.
  struct alignas(64) part : std::array<counters, 2> {};

  static std::size_t part_of_thread() noexcept;

  static constexpr std::size_t parts = 16;
  std::array<part, parts> parts_{};
  static std::array<port_traffic, std::size_t{max_ports} * max_devices> all_;
};

}  // namespace softverbs
