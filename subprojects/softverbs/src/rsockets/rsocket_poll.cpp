// SPDX-License-Identifier: Apache-2.0
// The entry points that wait for sockets and other descriptors.
#include "base/clock.hpp"
#include "connections/protocol.hpp"
#include "rsockets/rsocket_calls.hpp"

#include <poll.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/select.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <span>
#include <vector>

using namespace softverbs;

namespace {

constexpr nanoseconds without_end = -1;

/// Returns the time until `end` in milliseconds, as a timeout for poll.
int time_left(nanoseconds end) noexcept {
  if (end == without_end) return -1;
  const nanoseconds left = std::max<nanoseconds>(end - now(), 0);
  return static_cast<int>((left + millisecond - 1) / millisecond);
}

/// True if a socket is reported as readable or writable, and has unread data. POLLHUP is then
/// reported only after the program has read all data.
bool has_unread(const pollfd& polled) {
  int unread = 0;
  return (polled.revents & (POLLIN | POLLOUT)) != 0 && rdma_socket::find(polled.fd) != nullptr &&
         ::ioctl(polled.fd, FIONREAD, &unread) == 0 && unread != 0;
}

/// Polls once. Returns the number of ready entries, or -1 with errno on failure.
int poll_once(std::span<pollfd> asked, int timeout) {
  std::vector<pollfd> known(asked.begin(), asked.end());
  int ready = 0;
  bool has_to_look = false;
  for (pollfd& each : known) {
    each.revents = 0;
    const auto socket = each.fd < 0 ? nullptr : rdma_socket::find(each.fd);
    const auto found = socket ? socket->readiness(each.events) : std::nullopt;
    if (!found) continue;
    each.fd = -1;
    each.revents = *found;
    ready += *found != 0 ? 1 : 0;
    has_to_look = has_to_look || *found == 0;
  }
  constexpr int between_looks = static_cast<int>(between_attempts / millisecond);
  if (ready != 0)
    timeout = 0;
  else if (has_to_look && (timeout < 0 || timeout > between_looks))
    timeout = between_looks;
  std::vector<pollfd> polled = known;
  const int result = ::poll(polled.data(), polled.size(), timeout);
  if (result < 0) return result;
  for (pollfd& each : polled)
    if ((each.revents & POLLHUP) != 0 && has_unread(each)) each.revents &= ~POLLHUP;
  // Yields, so that a program that polls in a loop doesn't keep the processor from its peer.
  if (ready + result == 0 && timeout == 0) ::sched_yield();
  for (std::size_t at = 0; at < asked.size(); ++at)
    asked[at].revents = known[at].revents != 0 ? known[at].revents : polled[at].revents;
  return ready + result;
}

int poll_all(std::span<pollfd> asked, int timeout) {
  const nanoseconds end = timeout < 0 ? without_end : now() + timeout * millisecond;
  for (;;) {
    const int left = time_left(end);
    const int result = poll_once(asked, left);
    if (result != 0 || (left == 0)) return result;
  }
}

struct wanted {
  fd_set* set;
  short events;
};

}  // namespace

SOFTVERBS_EXPORT int rpoll(pollfd* asked, nfds_t count, int timeout) {
  SOFTVERBS_PASS_ON(rpoll, asked, count, timeout);
  try {
    return poll_all({asked, count}, timeout);
  } catch (const std::bad_alloc&) {
    return outcome(ENOMEM);
  }
}

SOFTVERBS_EXPORT int rselect(int count, fd_set* readable, fd_set* writable, fd_set* exceptional,
                             timeval* timeout) {
  SOFTVERBS_PASS_ON(rselect, count, readable, writable, exceptional, timeout);
  const std::array sets{wanted{readable, POLLIN | POLLHUP | POLLERR},
                        wanted{writable, POLLOUT | POLLERR}, wanted{exceptional, POLLPRI}};
  try {
    std::vector<pollfd> asked;
    for (int descriptor = 0; descriptor < count; ++descriptor) {
      pollfd entry{descriptor, 0, 0};
      for (const auto& [set, events] : sets)
        if (set != nullptr && FD_ISSET(descriptor, set))
          entry.events = static_cast<short>(entry.events | events);
      if (entry.events != 0) asked.push_back(entry);
    }
    const int milliseconds =
        timeout == nullptr
            ? -1
            : static_cast<int>(timeout->tv_sec * 1000 + (timeout->tv_usec + 999) / 1000);
    if (poll_all(asked, milliseconds) < 0) return -1;
    int found = 0;
    for (const pollfd& each : asked) {
      if ((each.revents & POLLNVAL) != 0) return outcome(EBADF);
      for (const auto& [set, events] : sets) {
        if (set == nullptr || !FD_ISSET(each.fd, set)) continue;
        if ((each.revents & events) != 0)
          ++found;
        else
          FD_CLR(each.fd, set);
      }
    }
    return found;
  } catch (const std::bad_alloc&) {
    return outcome(ENOMEM);
  }
}

// The entry points of the symbol version RDMACM_1.5, which fail with EOPNOTSUPP if the process has
// soft devices. They are defined by symbol name, because older headers don't declare them.

SOFTVERBS_EXPORT int softverbs_repoll_create(int flags) __asm__("repoll_create");
SOFTVERBS_EXPORT int softverbs_repoll_ctl(int poller, int operation, int descriptor,
                                          epoll_event* event) __asm__("repoll_ctl");
SOFTVERBS_EXPORT int softverbs_repoll_wait(int poller, epoll_event* events, int most,
                                           int timeout) __asm__("repoll_wait");

int softverbs_repoll_create(int flags) {
  if (!serves_connections()) return pass_on(&softverbs_repoll_create, "repoll_create", flags);
  return outcome(EOPNOTSUPP);
}

int softverbs_repoll_ctl(int poller, int operation, int descriptor, epoll_event* event) {
  if (!serves_connections())
    return pass_on(&softverbs_repoll_ctl, "repoll_ctl", poller, operation, descriptor, event);
  return outcome(EOPNOTSUPP);
}

int softverbs_repoll_wait(int poller, epoll_event* events, int most, int timeout) {
  if (!serves_connections())
    return pass_on(&softverbs_repoll_wait, "repoll_wait", poller, events, most, timeout);
  return outcome(EOPNOTSUPP);
}
