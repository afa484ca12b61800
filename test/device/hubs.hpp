// SPDX-License-Identifier: Apache-2.0
/// \file
/// Shared code of the hub tests.
#pragma once

#include "channels.hpp"

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

}  // namespace verbspp::test
