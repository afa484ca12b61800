// SPDX-License-Identifier: Apache-2.0
#include "base/readable.hpp"

#include <fcntl.h>
#include <poll.h>

#include <cerrno>
#include <ctime>

namespace verbspp::detail {

int make_nonblocking(int file_descriptor) noexcept {
  const int flags = ::fcntl(file_descriptor, F_GETFL);
  if (flags == -1 || ::fcntl(file_descriptor, F_SETFL, flags | O_NONBLOCK) == -1) return errno;
  return 0;
}

result<bool> wait_readable(std::span<pollfd> entries, const wait_limit& until) noexcept {
  using std::chrono::steady_clock;
  for (;;) {
    // With a token, this sleeps only for a short time, and not at all once a stop was requested.
    const steady_clock::time_point sleep_until = until.sleep_until();
    timespec remaining{};
    if (const auto now = steady_clock::now(); now < sleep_until) {
      const auto whole = std::chrono::duration_cast<std::chrono::seconds>(sleep_until - now);
      const std::chrono::nanoseconds rest = sleep_until - now - whole;
      remaining.tv_sec = static_cast<std::time_t>(whole.count());
      remaining.tv_nsec = static_cast<long>(rest.count());
    }
    const int ready = ::ppoll(entries.data(), static_cast<nfds_t>(entries.size()),
                              until.is_forever() ? nullptr : &remaining, nullptr);
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) return error::from_errno(errno, "ppoll");
    if (ready == 0 && until.has_passed()) return false;
  }
}

result<void> check_alive(const pollfd& seen, const char* operation) noexcept {
  if (seen.revents == 0 || (seen.revents & POLLIN) != 0) return success();
  return error::from_errno(EIO, operation, device_is_gone);
}

result<bool> wait_readable(int file_descriptor, const wait_limit& until,
                           const char* operation) noexcept {
  pollfd entry{.fd = file_descriptor, .events = POLLIN, .revents = 0};
  VERBSPP_TRY(is_readable, wait_readable(std::span(&entry, 1), until));
  VERBSPP_TRYV(check_alive(entry, operation));
  return is_readable;
}

}  // namespace verbspp::detail
