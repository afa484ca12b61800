// SPDX-License-Identifier: Apache-2.0
#include "machine/progress_thread.hpp"

#include "base/user_memory.hpp"

#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <mutex>

namespace softverbs {
namespace {

constexpr nanoseconds standby = 500'000;

/// The engine's thread takes over from a program that polls its completion queue less often than
/// once in this time, on average, for example because it spins on memory that a peer writes.
constexpr nanoseconds longest_between_polls = 20'000;
constexpr nanoseconds shortest_window = 200'000;
constexpr nanoseconds long_between_polls = 50'000;
constexpr nanoseconds neglect_remembered = 100'000'000;

/// The kernel's sched_attr, which older versions of libc don't declare.
struct scheduling {
  std::uint32_t size;
  std::uint32_t policy;
  std::uint64_t flags;
  std::int32_t nice;
  std::uint32_t priority;
  std::uint64_t runtime;
  std::uint64_t deadline;
  std::uint64_t period;
};

/// Requests a short time slice. In return, the scheduler (since Linux 6.12) runs this thread sooner
/// after it wakes up, so that a program that spins on memory doesn't delay it for milliseconds.
/// Older kernels ignore the slice. Does nothing if the scheduling policy is neither SCHED_OTHER nor
/// SCHED_BATCH.
void ask_for_short_slices() noexcept {
  scheduling wish{};
  if (::syscall(SYS_sched_getattr, 0, &wish, sizeof(wish), 0U) != 0) return;
  if (wish.policy != SCHED_OTHER && wish.policy != SCHED_BATCH) return;
  wish.runtime = 100'000;
  ::syscall(SYS_sched_setattr, 0, &wish, 0U);
}

}  // namespace

int progress_thread::start() noexcept {
  doorbell_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (doorbell_ < 0) return errno;
  stopping_ = false;
  // Signals must be handled by the threads of the program.
  sigset_t all;
  sigset_t before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  const int error = ::pthread_create(&thread_, nullptr, &progress_thread::enter, this);
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (error != 0) {
    std::fprintf(stderr,
                 "softverbs: can't start the device's thread: %s; the limit on threads "
                 "(RLIMIT_NPROC, pids.max) or on memory (RLIMIT_AS) may have been reached\n",
                 std::strerror(error));
    ::close(doorbell_);
    doorbell_ = -1;
    return error;
  }
  ::pthread_setname_np(thread_, "softverbs");
  running_ = true;
  return 0;
}

void progress_thread::stop() noexcept {
  if (!running_) return;
  stopping_ = true;
  wake();
  ::pthread_join(thread_, nullptr);
  running_ = false;
  ::close(doorbell_);
  doorbell_ = -1;
}

void progress_thread::forget() noexcept {
  if (doorbell_ >= 0) ::close(doorbell_);
  doorbell_ = -1;
  running_ = false;
}

void progress_thread::wake() noexcept {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(doorbell_, &one, sizeof(one));
}

void* progress_thread::enter(void* self) noexcept {
  static_cast<progress_thread*>(self)->run();
  return nullptr;
}

void progress_thread::sleep(int extra_descriptor, nanoseconds timeout) noexcept {
  std::array<pollfd, 2> descriptors{pollfd{doorbell_, POLLIN, 0},
                                    pollfd{extra_descriptor, POLLIN, 0}};
  timespec time{};
  time.tv_sec = timeout / 1'000'000'000;
  time.tv_nsec = timeout % 1'000'000'000;
  ::ppoll(descriptors.data(), extra_descriptor < 0 ? 1 : 2, timeout < 0 ? nullptr : &time, nullptr);
  if (descriptors[0].revents != 0) {
    std::uint64_t rings = 0;
    [[maybe_unused]] const ssize_t taken = ::read(doorbell_, &rings, sizeof(rings));
  }
}

bool progress_thread::program_polls() noexcept {
  const nanoseconds time = now();
  const nanoseconds window = time - window_start_;
  if (time < neglected_until_) return false;
  if (window < shortest_window) return busy_polled_;
  const std::uint32_t polls = polls_.load(std::memory_order_relaxed);
  busy_polled_ = nanoseconds{polls - polls_seen_} * longest_between_polls >= window;
  polls_seen_ = polls;
  window_start_ = time;
  return busy_polled_;
}

void progress_thread::notice_neglect() noexcept {
  // The program holds the lock while it makes progress, and for long if it copies much data. This
  // thread must not wait for the lock, because polls make no progress while another thread waits.
  const auto is_neglected = [this] {
    const std::unique_lock held(work_.lock(), std::try_to_lock);
    return held && (work_.has_arrived() || work_.was_rung());
  };
  const std::uint32_t before = polls_.load(std::memory_order_relaxed);
  if (!is_neglected()) return;
  sleep(-1, long_between_polls);
  if (polls_.load(std::memory_order_relaxed) == before && is_neglected())
    neglected_until_ = now() + neglect_remembered;
}

void progress_thread::run() noexcept {
  ask_for_short_slices();
  user_memory::prepare_thread();
  while (!stopping_) {
    if (!work_.has_sleepers() && program_polls()) {
      doing_.store(activity::standby);
      // A thread that is about to sleep first registers as a sleeper, and then checks the activity
      // of this thread. Therefore, either the check here finds the sleeper, or the sleeper wakes
      // this thread.
      if (!work_.has_sleepers()) sleep(-1, standby);
      notice_neglect();
      doing_.store(activity::working, std::memory_order_relaxed);
      continue;
    }
    std::unique_lock held(work_.lock());
    if (work_.progress(true)) {
      held.unlock();
      // A peer on the same processor may have to run before more packets arrive.
      ::sched_yield();
      continue;
    }
    if (!work_.may_sleep()) continue;
    wakes_at_ = work_.next_deadline();
    const nanoseconds timeout =
        wakes_at_ == 0 ? nanoseconds{-1} : std::max(wakes_at_ - now(), nanoseconds{0});
    // A thread that sets a deadline holds the lock, so it sees this state. A thread that calls
    // `ring` without the lock either did so before the following check, or sees this state, too.
    doing_.store(activity::asleep);
    held.unlock();
    if (!work_.was_rung()) sleep(work_.descriptor(), timeout);
    doing_.store(activity::working, std::memory_order_relaxed);
  }
}

}  // namespace softverbs
