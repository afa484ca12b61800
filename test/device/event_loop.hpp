// SPDX-License-Identifier: Apache-2.0
/// \file
/// An event loop that serves a single object.
#pragma once

#include "device.hpp"
#include <verbspp/base/event_source.hpp>
#include <verbspp/exchange/tcp.hpp>

#include <sys/epoll.h>

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace verbspp::test {

/// The functions that all objects of the library have for which an event loop can wait.
template <class Source>
concept FourFunctions = EventSource<Source> && requires(Source& source) { source.poll(); };

/// Runs the event loop from the documentation with epoll. Calls `work` once per round, and returns
/// as soon as `work` returns true. Throws `failure` if the loop is not woken within `patience`,
/// unless the source's deadline comes first.
template <EventSource Source, class Work>
void serve(Source& source, Work work) {
  const tcp_socket loop = tcp_socket::from_native(::epoll_create1(EPOLL_CLOEXEC));
  std::uint32_t watched = 0;
  for (;;) {
    bool has_news = must(source.request_notification());
    if (!has_news) {
      std::uint32_t events = EPOLLIN;
      if constexpr (requires { source.events(); })
        events = static_cast<std::uint32_t>(source.events());
      epoll_event entry{.events = events, .data = {}};
      if (watched != events &&
          ::epoll_ctl(loop.descriptor(), watched == 0 ? EPOLL_CTL_ADD : EPOLL_CTL_MOD,
                      source.file_descriptor(), &entry) != 0)
        throw failure(__FILE__, __LINE__, "epoll does not accept the descriptor");
      watched = events;
      const auto deadline = source.deadline();
      const wait_limit latest = std::min(deadline, clock::now() + patience);
      const auto length = std::chrono::ceil<std::chrono::milliseconds>(*latest.remaining());
      epoll_event ready{};
      const int count =
          ::epoll_wait(loop.descriptor(), &ready, 1,
                       static_cast<int>(std::max(length, std::chrono::milliseconds(0)).count()));
      if (count == 0 && deadline > clock::now())
        throw failure(__FILE__, __LINE__, "the loop was not woken");
    }
    if (work()) return;
  }
}

/// Drives a session with epoll. Returns true if a stop request ended the session, and if the loop
/// did not spin before that.
template <class Session>
[[nodiscard]] bool is_stopped(Session& session) {
  int rounds = 0;
  bool is_cancelled = false;
  serve(session, [&] {
    ++rounds;
    const result<bool> seen = session.poll();
    is_cancelled = seen.has_error() && seen.error() == error_kind::cancelled;
    return seen.has_error() || seen.value();
  });
  return is_cancelled && rounds < 100;
}

}  // namespace verbspp::test
