// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "device/configuration.hpp"

namespace softverbs {

/// Returns the configuration, which the first call reads from the environment. An invalid value is
/// reported once on stderr, and leaves the process without soft devices, because a test that runs
/// on an unintended device is worse than one that doesn't run.
const configuration& configured() noexcept;

/// Returns the description of the device with this number. For a device that this process doesn't
/// have, returns null if there is a configuration file or an invalid value. Otherwise, returns the
/// default description, because another process may have the device.
const device_description* described(unsigned number) noexcept;

}  // namespace softverbs
