// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/clock.hpp"

#include <sys/socket.h>
#include <sys/un.h>

#include <cstdint>

namespace softverbs {

/// The socket address on which a process listens.
struct slot_name {
  explicit slot_name(std::uint32_t slot) noexcept;
  const sockaddr* get() const noexcept { return reinterpret_cast<const sockaddr*>(&name); }

  sockaddr_un name{};
  socklen_t length = 0;
};

/// Creates a socket for packets and connections between processes. Returns a negative number, with
/// errno, on failure.
int open_socket() noexcept;

/// True if an operation that failed with this errno value may succeed a little later.
bool may_pass(int error) noexcept;
/// Reports on stderr, once, that this process has no descriptors left.
void tell_of_descriptors() noexcept;

/// The delay before a retry if another process or thread must first free a resource, such as a
/// descriptor.
inline constexpr nanoseconds before_next_try = 20'000'000;

}  // namespace softverbs
