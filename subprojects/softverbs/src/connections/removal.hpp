// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "connections/event_channel.hpp"

#include <memory>

namespace softverbs {

/// A channel that also looks when a device breaks, and tells all identifiers of that device; null
/// with errno. Under the lock of connections.
std::unique_ptr<event_channel> open_channel();

}  // namespace softverbs
