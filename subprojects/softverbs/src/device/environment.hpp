// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "device/configuration.hpp"

namespace softverbs {

/// Read from the environment at the first call; a value that makes no sense is
/// reported on stderr once and leaves no soft device, because a test that runs on
/// something else than it asked for is worse than one that doesn't run.
const configuration& configured() noexcept;

/// A device of that number as any process has it: this one's own, or without a file the usual one.
/// Null if no process can have it.
const device_description* described(unsigned number) noexcept;

}  // namespace softverbs
