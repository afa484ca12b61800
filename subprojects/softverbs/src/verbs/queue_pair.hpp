// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace softverbs {

class device_context;
class queue_pair;

/// A new queue pair becomes one of the device's, and gets its number; 0 or an errno.
int enter(device_context& device, queue_pair& pair);

}  // namespace softverbs
