// SPDX-License-Identifier: Apache-2.0
/// \file
/// Accepts connections to this process, and limits their number and rate.
#include "wire/ends.hpp"
#include "wire/slot_socket.hpp"
#include "wire/wire.hpp"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <memory>
#include <utility>

namespace softverbs {
namespace {

/// The maximum number of connections from all processes. There are fewer peers than slots, and each
/// peer needs only one connection at a time, so genuine peers hardly need more.
constexpr std::size_t most_inlets = 2 * wire::slots;

/// The maximum number of connections from one peer process whose process ID is known. A peer needs
/// only one connection, but when it opens a new one, this process might not have noticed yet that
/// the previous one has ended.
constexpr std::ptrdiff_t most_inlets_of_one = 4;

/// The approximate maximum number of connections, from all processes, on which no message has
/// arrived. This limit leaves descriptors for other connections. A genuine peer sends its first
/// message immediately. If a slow peer loses its connection, it reconnects.
constexpr std::ptrdiff_t most_silent = 64;

/// True if nothing can be read from the socket: neither a message nor the end of the connection.
bool says_nothing(int socket) noexcept {
  std::byte first{};
  return ::recv(socket, &first, sizeof(first), MSG_PEEK | MSG_DONTWAIT) < 0 && errno == EAGAIN;
}

/// The limits for accepting connections: the number in each call, and the number in a period of
/// `between_rows` nanoseconds. Accepting and closing a connection takes as long as several
/// messages, and wakes a process that waits to connect, so a process that opens one connection
/// after another would delay existing peers. Even with these limits, connections from the maximum
/// number of processes are accepted within a tenth of a second.
constexpr unsigned accepted_at_once = 4;
constexpr unsigned accepted_in_a_row = 16;
constexpr nanoseconds between_rows = 1'000'000;

}  // namespace

void wire::accept_some() noexcept {
  if (const nanoseconds time = now(); time >= row_start_ + between_rows) {
    row_start_ = time;
    accepted_ = 0;
  }
  for (unsigned count = 0; count < accepted_at_once; ++count) {
    if (accepted_ == accepted_in_a_row) return pause_listener(row_start_ + between_rows);
    const int connected = ::accept4(listener_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (connected < 0) {
      if (errno == EMFILE) tell_of_descriptors();
      // The waiting connections would make every poll return immediately, so the listener is not
      // polled for a while.
      if (errno != EAGAIN && may_pass(errno)) pause_listener(now() + before_next_try);
      return;
    }
    ++accepted_;
    auto added = std::make_unique<inlet>(connected);
    make_room_for(*added);
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.ptr = added.get();
    if (inlets_.size() >= most_inlets || ::epoll_ctl(epoll_, EPOLL_CTL_ADD, connected, &event) != 0)
      continue;
    inlets_.push_back(std::move(added));
    ++by_socket_;
  }
}

void wire::make_room_for(const inlet& added) noexcept {
  const auto first = [this](const auto& suits) {
    const auto found =
        std::ranges::find_if(inlets_, [&](const auto& each) { return suits(*each); });
    return found == inlets_.end() ? nullptr : found->get();
  };
  const auto is_of_same = [&](const inlet& each) {
    return added.process != 0 && each.process == added.process;
  };
  // Most connections have received a message, so the system call is rarely needed.
  const auto is_silent = [](const inlet& each) { return !each.heard && says_nothing(each.socket); };
  const auto of_same =
      std::ranges::count_if(inlets_, [&](const auto& each) { return is_of_same(*each); });
  inlet* gives_way = nullptr;
  if (of_same >= most_inlets_of_one) {
    gives_way = first([&](const inlet& each) { return is_of_same(each) && !each.end; });
    if (gives_way == nullptr) gives_way = first(is_of_same);
  } else if (inlets_.size() >= most_inlets || std::ranges::count_if(inlets_, [&](const auto& each) {
                                                return is_silent(*each);
                                              }) >= most_silent) {
    gives_way = first(is_silent);
  }
  if (gives_way != nullptr) close_inlet(*gives_way);
}

void wire::watch_listener(std::uint32_t events) noexcept {
  epoll_event event{};
  event.events = events;
  event.data.u64 = listener_tag;
  ::epoll_ctl(epoll_, EPOLL_CTL_MOD, listener_, &event);
}

void wire::pause_listener(nanoseconds until) noexcept {
  watch_listener(0);
  listener_pauses_until_ = until;
}

}  // namespace softverbs
