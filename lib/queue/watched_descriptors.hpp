// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/detail/words.hpp>
#include <verbspp/base/error.hpp>
#include <verbspp/base/result.hpp>
#include <verbspp/queue/completion_queue.hpp>

#include <poll.h>
#include <sys/epoll.h>

#include <cstdint>

#pragma GCC visibility push(hidden)
namespace verbspp::detail {

[[nodiscard]] inline pollfd entry_of(const watched_descriptor& watched) noexcept {
  // When a descriptor's other end is closed, the descriptor becomes readable as well.
  const short events = watched.what == watch_for::hang_up ? POLLRDHUP : POLLIN;
  return {.fd = watched.number, .events = events, .revents = 0};
}

/// The epoll events that end a wait. They are reported once.
[[nodiscard]] inline std::uint32_t events_of(const watched_descriptor& watched) noexcept {
  const std::uint32_t ends = EPOLLRDHUP | EPOLLONESHOT;
  return watched.what == watch_for::hang_up ? ends : ends | EPOLLIN;
}

/// True if the events that were polled for one of the program's descriptors end a wait.
[[nodiscard]] inline result<bool> ends_wait(const pollfd& seen, const char* operation) noexcept {
  if ((seen.revents & POLLNVAL) != 0)
    return error_in_words_of(error_kind::invalid_input, operation,
                             "the watched file descriptor %d is not open", seen.fd);
  return seen.revents != 0;
}

}  // namespace verbspp::detail
#pragma GCC visibility pop
