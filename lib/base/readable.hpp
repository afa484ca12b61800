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
    "the device no longer exists, or its driver has abandoned it: see the kernel's log";

/// Makes a file descriptor of events non-blocking, so that reading it never blocks.
/// \returns the errno, 0 on success
[[nodiscard]] int make_nonblocking(int file_descriptor) noexcept;

/// Checks that the file descriptor of a device's events, as a wait has seen it, still works.
[[nodiscard]] result<void> check_alive(const pollfd& seen, const char* operation) noexcept;
/// Waits for one descriptor of events, and then checks that it still works, as `check_alive`.
[[nodiscard]] result<bool> wait_readable(int file_descriptor, const wait_limit& until,
                                         const char* operation) noexcept;

/// Reads one event by `read()`, which has the return values of `ibv_get_cq_event` and
/// `ibv_get_async_event`.
/// \returns true if there was one
template <class Read>
[[nodiscard]] result<bool> read_event(Read read, const char* operation) noexcept {
  for (;;) {
    errno = 0;
    if (read() == 0) return true;
    const int errnum = errno;
    if (errnum == EAGAIN) return false;
    if (errnum == EINTR) continue;
    // Half an event, or none although the descriptor was readable, sets no errno.
    return error::from_errno(errnum != 0 ? errnum : EIO, operation, device_is_gone);
  }
}

}  // namespace verbspp::detail
#pragma GCC visibility pop
