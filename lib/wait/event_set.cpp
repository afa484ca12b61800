// SPDX-License-Identifier: Apache-2.0
#include "wait/event_set.hpp"

#include <sys/epoll.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace verbspp::detail {

result<void> event_set::open(const char* operation) noexcept {
  events_ = ::epoll_create1(EPOLL_CLOEXEC);
  if (events_ >= 0) signal_ = make_event_descriptor();
  if (signal_ >= 0 && add(signal_, EPOLLIN, of_signal) == 0) return success();
  const error why = error::from_errno(errno, operation);
  close();
  return why;
}

void event_set::close() noexcept {
  if (signal_ >= 0) ::close(std::exchange(signal_, -1));
  if (events_ >= 0) ::close(std::exchange(events_, -1));
}

int event_set::add(int descriptor, std::uint32_t events, std::uint64_t tag) noexcept {
  epoll_event event{.events = events, .data = {.u64 = tag}};
  return ::epoll_ctl(events_, EPOLL_CTL_ADD, descriptor, &event) == 0 ? 0 : errno;
}

void event_set::remove(int descriptor) noexcept {
  if (descriptor >= 0) static_cast<void>(::epoll_ctl(events_, EPOLL_CTL_DEL, descriptor, nullptr));
}

}  // namespace verbspp::detail
