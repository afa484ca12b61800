// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace softverbs {

class device_context;
class queue_pair;

/// Adds a new queue pair to the device, and assigns its number. Returns 0 or an errno value.
int enter(device_context& device, queue_pair& pair);

}  // namespace softverbs
