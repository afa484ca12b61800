// SPDX-License-Identifier: Apache-2.0
/// \file
/// Shared code of the hub tests.
#pragma once

#include "channels.hpp"

#include <array>
#include <optional>
#include <utility>

namespace verbspp::test {

/// Returns a builder for a channel with small queues, so that small hubs have room for several.
[[nodiscard]] inline auto small_channel(const testbed& bed) {
  return bed.domain.build_channel().max_send_work_requests(4).max_receive_work_requests(4);
}

/// Connects a channel of the hub to a peer that does not belong to a hub.
[[nodiscard]] inline channel_pair connect_to_hub(const testbed& bed, const channel_hub& hub) {
  auto served = must(small_channel(bed).hub(hub).build());
  auto client = must(small_channel(bed).build());
  const endpoint served_end = served.endpoint();
  const endpoint client_end = client.endpoint();
  return {.left = must(std::move(served).handshake(client_end)),
          .right = must(std::move(client).handshake(served_end))};
}

/// Creates a hub that uses a pool. Skips the test if the device has no shared receive queues. The
/// result is an optional so that a test can destroy the hub early.
[[nodiscard]] inline std::optional<channel_hub> hub_with(const testbed& bed,
                                                         const message_pool& pool,
                                                         const hub_options& options) {
  return supported(channel_hub::create(bed.domain, pool, options), shared_receive_queues);
}

/// Waits for the next message, and returns it. Calls `told` for arrivals that have no message.
template <class Told>
[[nodiscard]] arrival next_message(const channel_hub& hub, Told told) {
  for (;;) {
    std::array<arrival, 1> slot;
    static_cast<void>(must(hub.wait(slot, patience)));
    if (slot[0].message) return std::move(slot[0]);
    told(slot[0].source);
  }
}

}  // namespace verbspp::test
