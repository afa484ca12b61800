// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "device/device.hpp"

#include <array>
#include <atomic>
#include <cstdint>

namespace softverbs {

/// The counters of one port in this process. Thread-safe.
class port_traffic {
 public:
  static port_traffic& of(station port) noexcept { return all_[port]; }

  struct direction {
    std::atomic<std::uint64_t> bytes{0};
    std::atomic<std::uint64_t> packets{0};

    /// Adds the payload of some packets.
    void add(std::uint64_t more, std::uint64_t packets_of_it) noexcept {
      bytes.fetch_add(more, std::memory_order_relaxed);
      packets.fetch_add(packets_of_it, std::memory_order_relaxed);
    }
  };
  direction sent;
  direction received;
  /// The number of times that the port went down.
  std::atomic<std::uint64_t> failures{0};

 private:
  static std::array<port_traffic, std::size_t{max_ports} * max_devices> all_;
};

}  // namespace softverbs
