// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/detail/wait_readable.hpp>
#include <verbspp/base/result.hpp>
#include <verbspp/base/wait_limit.hpp>

#include <poll.h>

#include <cerrno>

#pragma GCC visibility push(hidden)
namespace verbspp::detail {

inline constexpr const char* device_is_gone =
    "usually the device no longer exists, or its driver has abandoned it: see the kernel's log";

/// Makes an event descriptor non-blocking, so that reading it never blocks.
/// \returns the errno, 0 on success
[[nodiscard]] int make_nonblocking(int file_descriptor) noexcept;

/// Fails if `seen`, the result of polling a device's event descriptor, shows that the descriptor no
/// longer works.
[[nodiscard]] result<void> check_alive(const pollfd& seen, const char* operation) noexcept;
/// Waits until one event descriptor is readable, and checks it with `check_alive`. Returns false if
/// the limit expires first.
[[nodiscard]] result<bool> wait_readable(int file_descriptor, const wait_limit& until,
                                         const char* operation) noexcept;

/// Reads one event by calling `read()`, which returns the same values as `ibv_get_cq_event` and
/// `ibv_get_async_event`.
/// \returns true if an event was read
template <class Read>
[[nodiscard]] result<bool> read_event(Read read, const char* operation) noexcept {
  for (;;) {
    errno = 0;
    if (read() == 0) return true;
    const int errnum = errno;
    if (errnum == EAGAIN) return false;
    if (errnum == EINTR) continue;
    // If the descriptor was readable, but holds only a part of an event or none at all, errno is
    // not set.
    return error::from_errno(errnum != 0 ? errnum : EIO, operation, device_is_gone);
  }
}

}  // namespace verbspp::detail
#pragma GCC visibility pop
