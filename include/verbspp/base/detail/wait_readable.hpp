// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/result.hpp>
#include <verbspp/base/wait_limit.hpp>

#include <poll.h>

#include <span>

namespace verbspp::detail {

/// Sleeps until a descriptor has an event that it asks for, a hang-up or an error, which its
/// `revents` reports. Returns false when the limit expires. Negative descriptors are ignored. Every
/// sleep that a stop request must be able to end uses this function, except waits for condition
/// variables.
[[nodiscard]] result<bool> wait_readable(std::span<pollfd> entries,
                                         const wait_limit& until) noexcept;

}  // namespace verbspp::detail
