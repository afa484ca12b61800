// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/clock.hpp"

#include <sys/socket.h>
#include <sys/un.h>

#include <cstdint>

namespace softverbs {

/// Under which a process is found.
struct slot_name {
  explicit slot_name(std::uint32_t slot) noexcept;
  const sockaddr* get() const noexcept { return reinterpret_cast<const sockaddr*>(&name); }

  sockaddr_un name{};
  socklen_t length = 0;
};

/// A socket between processes, which packets and connections use; negative, with errno, if there
/// can be none.
int open_socket() noexcept;

/// Whether what failed with this errno can work a little later.
bool may_pass(int error) noexcept;
/// Says, once, that this process has no descriptor left.
void tell_of_descriptors() noexcept;

/// How long to wait for what another one has to give back first: a descriptor, say.
inline constexpr nanoseconds before_next_try = 20'000'000;

}  // namespace softverbs
