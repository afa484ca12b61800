// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "connections/event_channel.hpp"

#include <memory>

namespace softverbs {

/// Opens a channel that also detects when a device breaks, and notifies all identifiers of that
/// device. Returns null with errno on failure. Requires the lock of connections.
std::unique_ptr<event_channel> open_channel();

}  // namespace softverbs
