// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/result.hpp>
#include <verbspp/base/wait_limit.hpp>

#include <poll.h>

#include <span>

namespace verbspp::detail {

/// Sleeps until one of the file descriptors has one of its events, is hung up or in error, as
/// reported in their `revents`; returns false when the limit expires. Negative descriptors are
/// ignored. Every sleep of the library that a stop request has to end is here, except those on
/// condition variables.
[[nodiscard]] result<bool> wait_readable(std::span<pollfd> entries,
                                         const wait_limit& until) noexcept;

}  // namespace verbspp::detail
