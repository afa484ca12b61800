// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "device/configuration.hpp"

namespace softverbs {

/// Returns the configuration, which the first call reads from the environment. An invalid value is
/// reported once on stderr, and leaves the process without soft devices, because a test that runs
/// on an unintended device is worse than one that doesn't run.
const configuration& configured() noexcept;

/// Returns the description of the device with this number. If this process doesn't have that
/// device, returns the default description if there is no configuration file, because another
/// process may have the device, and otherwise null.
const device_description* described(unsigned number) noexcept;

}  // namespace softverbs
