// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "device/configuration.hpp"

namespace softverbs {

/// Returns the configuration, which is read from the environment at the first call. An invalid
/// value is reported once on stderr, and results in no soft device: a test that runs on another
/// device than intended is worse than one that doesn't run.
const configuration& configured() noexcept;

/// Returns the description of the device with this number in any process: this process' own, or,
/// without a file, the usual one. Returns null if no process can have the device.
const device_description* described(unsigned number) noexcept;

}  // namespace softverbs
