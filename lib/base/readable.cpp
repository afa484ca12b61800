// SPDX-License-Identifier: Apache-2.0
#include "base/readable.hpp"

#include "base/wake_signal.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <ctime>
#include <span>

namespace verbspp::detail {

int make_nonblocking(int file_descriptor) noexcept {
  const int flags = ::fcntl(file_descriptor, F_GETFL);
  if (flags == -1 || ::fcntl(file_descriptor, F_SETFL, flags | O_NONBLOCK) == -1) return errno;
  return 0;
}

namespace {

/// The maximum number of file descriptors, besides the eventfd, on which a thread can sleep so that
/// a stop request wakes it. If there are more, the thread polls the stop token instead.
constexpr std::size_t most_with_callback = 6;

/// The eventfd through which a stop request wakes a thread.
struct thread_signal {
  int descriptor = -1;
  pid_t creator = 0;
  bool has_ended = false;  ///< the thread is ending, and has closed its eventfd
};
constinit thread_local thread_signal signal_of_thread;

struct closes_signal {
  closes_signal() noexcept = default;
  closes_signal(const closes_signal&) = delete;
  closes_signal& operator=(const closes_signal&) = delete;
  ~closes_signal() {
    if (signal_of_thread.descriptor != -1) ::close(signal_of_thread.descriptor);
    signal_of_thread = {.has_ended = true};
  }
};

/// Returns this thread's eventfd, and creates it if necessary; -1 if it could not be created, or if
/// the thread is ending.
int descriptor_of_stops() noexcept {
  thread_signal& mine = signal_of_thread;
  if (mine.has_ended) return -1;
  static const thread_local closes_signal at_end;
  // A forked child shares the descriptor with its parent, so it creates one of its own.
  if (const pid_t process = ::getpid(); mine.creator != process) {
    if (mine.descriptor != -1) ::close(mine.descriptor);
    mine = {.creator = process};
  }
  if (mine.descriptor == -1) mine.descriptor = make_event_descriptor();
  return mine.descriptor;
}

/// Calls `ppoll` with a timeout that ends at the time `until`.
int poll_until(std::span<pollfd> entries, std::chrono::steady_clock::time_point until) noexcept {
  using std::chrono::steady_clock;
  timespec remaining{};
  if (const auto now = steady_clock::now(); now < until) {
    const auto whole = std::chrono::duration_cast<std::chrono::seconds>(until - now);
    const std::chrono::nanoseconds rest = until - now - whole;
    remaining.tv_sec = static_cast<std::time_t>(whole.count());
    remaining.tv_nsec = static_cast<long>(rest.count());
  }
  return ::ppoll(entries.data(), static_cast<nfds_t>(entries.size()),
                 until == (steady_clock::time_point::max)() ? nullptr : &remaining, nullptr);
}

/// A sleep on file descriptors. The thread's eventfd is watched as well, so that a stop request can
/// end the sleep.
class sleep_on_descriptors : stoppable_sleep {
 public:
  sleep_on_descriptors(std::span<pollfd> entries, const wait_limit& until, int signal) noexcept
      : stoppable_sleep{.wake =
                            [](stoppable_sleep& self) noexcept {
                              static_cast<sleep_on_descriptors&>(self).end();
                            }},
        given_(entries),
        until_(until),
        signal_(signal) {}

  /// \returns true if one of the given descriptors is ready, false if the wait ended for another
  /// reason
  [[nodiscard]] result<bool> run_with_callback() noexcept {
    stop_registration stopping;
    until_.watch(stopping, *this);
    run();
    stopping.end();
    // At this point, the stop callback has returned, or will never be called. Its signal must not
    // end a later sleep.
    if (was_raised_) lower(signal_);
    if (errnum_ != 0) return error::from_errno(errnum_, "ppoll");
    return is_ready_;
  }

 private:
  void run() noexcept {
    std::array<pollfd, most_with_callback + 1> all{};
    std::ranges::copy(given_, all.begin());
    pollfd& signal = all[given_.size()];
    signal = {.fd = signal_, .events = POLLIN, .revents = 0};
    const std::span watched = std::span(all).first(given_.size() + 1);
    for (;;) {
      const int ready = poll_until(watched, until_.deadline());
      if (ready > 0) {
        is_ready_ = ready > (signal.revents != 0 ? 1 : 0);
        break;
      }
      if (ready < 0 && errno != EINTR) {
        errnum_ = errno;
        break;
      }
      if (ready == 0 && std::chrono::steady_clock::now() >= until_.deadline()) break;
    }
    std::ranges::copy(watched.first(given_.size()), given_.begin());
  }
  void end() noexcept {
    was_raised_ = true;
    raise(signal_);
  }

  std::span<pollfd> given_;
  const wait_limit& until_;
  int signal_;
  int errnum_ = 0;
  bool is_ready_ = false;
  bool was_raised_ = false;
};

}  // namespace

result<bool> wait_readable(std::span<pollfd> entries, const wait_limit& until) noexcept {
  if (until.has_callbacks() && entries.size() <= most_with_callback && !until.has_passed()) {
    const int signal = descriptor_of_stops();
    if (signal != -1) return sleep_on_descriptors(entries, until, signal).run_with_callback();
  }
  for (;;) {
    // If the limit has a stop token, each sleep is short, so a stop request is noticed soon.
    const int ready = poll_until(entries, until.sleep_until());
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
