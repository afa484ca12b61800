// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/result.hpp>
#include <verbspp/base/wait_limit.hpp>

#include <poll.h>

#include <span>

namespace verbspp::detail {

/// Sleeps until one of the descriptors is ready for its requested `events`, or has a hang-up or an
/// error, which `revents` then reports. Returns false if the limit is reached first. Negative
/// descriptors are ignored. Use this for each sleep on descriptors, so that a stop request can end
/// the sleep.
[[nodiscard]] result<bool> wait_readable(std::span<pollfd> entries,
                                         const wait_limit& until) noexcept;

}  // namespace verbspp::detail
