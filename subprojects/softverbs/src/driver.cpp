// SPDX-License-Identifier: Apache-2.0
#include "driver.hpp"

#include "engine.hpp"

#include <poll.h>
#include <signal.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <mutex>

namespace softverbs {
namespace {

constexpr std::int64_t standby = 1'000'000;

}  // namespace

int driver::start() noexcept {
  doorbell_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (doorbell_ < 0) return errno;
  stopping_ = false;
  // Signals are the program's business, and so are the threads that handle them.
  sigset_t all;
  sigset_t before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  const int error = ::pthread_create(&thread_, nullptr, &driver::enter, this);
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (error != 0) {
    ::close(doorbell_);
    doorbell_ = -1;
    return error;
  }
  ::pthread_setname_np(thread_, "softverbs");
  running_ = true;
  return 0;
}

void driver::stop() noexcept {
  if (!running_) return;
  stopping_ = true;
  wake();
  ::pthread_join(thread_, nullptr);
  running_ = false;
  ::close(doorbell_);
  doorbell_ = -1;
}

void driver::forget() noexcept {
  if (doorbell_ >= 0) ::close(doorbell_);
  doorbell_ = -1;
  running_ = false;
}

void driver::wake() noexcept {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(doorbell_, &one, sizeof(one));
}

void* driver::enter(void* self) noexcept {
  static_cast<driver*>(self)->run();
  return nullptr;
}

void driver::sleep(int extra_descriptor, std::int64_t timeout) noexcept {
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

void driver::run() noexcept {
  unsigned seen = polls_.load(std::memory_order_relaxed);
  while (!stopping_) {
    std::unique_lock held(engine_.lock);
    const unsigned polls = polls_.load(std::memory_order_relaxed);
    if (polls != seen && !engine_.has_sleepers()) {
      seen = polls;
      doing_.store(activity::standby, std::memory_order_relaxed);
      held.unlock();
      sleep(-1, standby);
      doing_.store(activity::working, std::memory_order_relaxed);
      continue;
    }
    seen = polls;
    if (engine_.progress(true)) {
      held.unlock();
      // A peer on the same processor may have to run for more to come.
      ::sched_yield();
      continue;
    }
    std::int64_t timeout = -1;
    if (const nanoseconds deadline = engine_.next_deadline(); deadline != 0) {
      const nanoseconds left = deadline - now();
      timeout = left > 0 ? left : 0;
    }
    // Set under the lock: whoever posts later sees it, whoever posted before has
    // been served.
    doing_.store(activity::asleep, std::memory_order_relaxed);
    held.unlock();
    sleep(engine_.wire.descriptor(), timeout);
    doing_.store(activity::working, std::memory_order_relaxed);
  }
}

}  // namespace softverbs
