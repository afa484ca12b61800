// SPDX-License-Identifier: Apache-2.0
#include "shim/bell.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

namespace softverbs::shim {
namespace {

bool is_nonblocking(int fd) noexcept { return (::fcntl(fd, F_GETFL) & O_NONBLOCK) != 0; }

bool add(int to, int fd) noexcept {
  epoll_event wanted{};
  wanted.events = EPOLLIN;
  return ::epoll_ctl(to, EPOLL_CTL_ADD, fd, &wanted) == 0;
}

}  // namespace

descriptor::~descriptor() {
  if (fd_ >= 0) ::close(fd_);
}

descriptor make_timer() noexcept {
  return descriptor(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
}

void set_timer(int timer, nanoseconds time) noexcept {
  itimerspec wanted{};
  wanted.it_value = {time / 1'000'000'000, time % 1'000'000'000};
  ::timerfd_settime(timer, TFD_TIMER_ABSTIME, &wanted, nullptr);
}

bool bell::open(int device, int clock) noexcept {
  device_ = device;
  all_ = descriptor(::epoll_create1(EPOLL_CLOEXEC));
  rung_ = descriptor(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  timer_ = make_timer();
  if (all_.get() < 0 || rung_.get() < 0 || timer_.get() < 0) return false;
  // Another thread may take the event that made the descriptor readable, so reading it must not
  // block.
  if (::fcntl(device, F_SETFL, ::fcntl(device, F_GETFL) | O_NONBLOCK) != 0) return false;
  return add(all_.get(), device) && add(all_.get(), rung_.get()) && add(all_.get(), timer_.get()) &&
         add(all_.get(), clock);
}

void bell::ring(bool on) noexcept {
  std::uint64_t count = 0;
  // If the count is 0 already, the read fails, without harm.
  while (::read(rung_.get(), &count, sizeof(count)) < 0 && errno == EINTR) {
  }
  if (!on) return;
  count = 1;
  while (::write(rung_.get(), &count, sizeof(count)) < 0 && errno == EINTR) {
  }
}

void bell::ring_at(nanoseconds time) noexcept { set_timer(timer_.get(), time); }

bool bell::device_is_readable() const noexcept {
  pollfd wanted{device_, POLLIN, 0};
  return ::poll(&wanted, 1, 0) == 1;
}

bool bell::wait() const noexcept {
  if (is_nonblocking(all_.get())) {
    errno = EAGAIN;
    return false;
  }
  pollfd wanted{all_.get(), POLLIN, 0};
  return ::poll(&wanted, 1, -1) >= 0;
}

}  // namespace softverbs::shim
