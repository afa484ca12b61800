// SPDX-License-Identifier: Apache-2.0
#include "machine/port_traffic.hpp"

namespace softverbs {

constinit std::array<port_traffic, std::size_t{max_ports} * max_devices> port_traffic::all_{};

std::size_t port_traffic::part_of_thread() noexcept {
  static std::atomic<std::size_t> next{0};
  static thread_local const std::size_t mine = next.fetch_add(1) % parts;
  return mine;
}

port_traffic::amounts port_traffic::read(way which) const noexcept {
  amounts sum;
  for (const part& each : parts_) {
    const counters& its = each[static_cast<std::size_t>(which)];
    sum.bytes += its.bytes.load(std::memory_order_relaxed);
    sum.packets += its.packets.load(std::memory_order_relaxed);
  }
  return sum;
}

}  // namespace softverbs
