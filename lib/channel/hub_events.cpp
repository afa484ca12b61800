// SPDX-License-Identifier: Apache-2.0
#include "channel/hub_events.hpp"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>

namespace verbspp::detail {

namespace {

/// No channel has generation 0.
constexpr std::uint64_t of_wake = 0;

std::uint64_t data_of(channel_id id) noexcept {
  return std::uint64_t{id.generation} << 32 | id.index;
}

}  // namespace

hub_events::~hub_events() {
  if (woken_ >= 0) ::close(woken_);
  if (events_ >= 0) ::close(events_);
}

result<void> hub_events::open() noexcept {
  events_ = ::epoll_create1(EPOLL_CLOEXEC);
  if (events_ < 0) return error::from_errno(errno, "channel_hub::create");
  woken_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (woken_ < 0) return error::from_errno(errno, "channel_hub::create");
  epoll_event event{.events = EPOLLIN, .data = {.u64 = of_wake}};
  if (::epoll_ctl(events_, EPOLL_CTL_ADD, woken_, &event) != 0)
    return error::from_errno(errno, "channel_hub::create");
  return success();
}

void hub_events::wake() noexcept {
  // It fails only if it is readable already.
  static_cast<void>(::eventfd_write(woken_, 1));
}

void hub_events::watch(const watched_descriptor& watched, channel_id of) noexcept {
  if (watched.number < 0) return;
  std::uint32_t ends = EPOLLRDHUP | EPOLLONESHOT;
  if (watched.what == watch_for::data_or_hang_up) ends |= EPOLLIN;
  epoll_event event{.events = ends, .data = {.u64 = data_of(of)}};
  static_cast<void>(::epoll_ctl(events_, EPOLL_CTL_ADD, watched.number, &event));
  __atomic_store_n(&is_watching_, true, __ATOMIC_RELAXED);
}

void hub_events::stop_watching(int descriptor) noexcept {
  if (descriptor >= 0) static_cast<void>(::epoll_ctl(events_, EPOLL_CTL_DEL, descriptor, nullptr));
}

std::uint32_t hub_events::read(channel_id (&ended)[16]) noexcept {
  epoll_event events[16];
  const int filled = ::epoll_wait(events_, events, 16, 0);
  std::uint32_t count = 0;
  for (int i = 0; i < filled; ++i) {
    const std::uint64_t data = events[i].data.u64;
    eventfd_t ignored = 0;
    if (data == of_wake)
      static_cast<void>(::eventfd_read(woken_, &ignored));
    else
      ended[count++] = {.index = static_cast<std::uint32_t>(data),
                        .generation = static_cast<std::uint32_t>(data >> 32)};
  }
  return count;
}

}  // namespace verbspp::detail
