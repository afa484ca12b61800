// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace softverbs {

enum class link_layer : std::uint8_t { ethernet, infiniband };

/// What the environment asks for.
struct configuration {
  unsigned devices = 1;
  link_layer layer = link_layer::ethernet;
};

/// The most devices that one process may have.
inline constexpr unsigned max_devices = 64;

/// Read from the environment at the first call; a value that makes no sense is
/// reported on stderr once and leaves no soft device, because a test that runs on
/// something else than it asked for is worse than one that doesn't run.
const configuration& configured() noexcept;

}  // namespace softverbs
