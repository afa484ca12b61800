// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/channel/detail/hub_reference.hpp>
#include <verbspp/channel/waiting.hpp>
#include <verbspp/qp/builder.hpp>
#include <verbspp/work/transport.hpp>

#include <chrono>

namespace verbspp::detail {

/// What the builder of a channel collects besides the queue pair's parameters.
struct channel_settings {
  hub_reference hub{};  ///< first, since it goes last: it wants to be the last to have the queues
  transport type = transport::rc;
  queue_pair_settings queue_pair{};
  std::chrono::nanoseconds default_limit = std::chrono::seconds(30);
  wait_mode waiting = wait_mode::spin();
};

}  // namespace verbspp::detail
