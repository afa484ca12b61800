// SPDX-License-Identifier: Apache-2.0
/// \file
/// Who connects to this process: how many of them, and at what rate.
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

/// More than there are slots can only be somebody playing tricks.
constexpr std::size_t most_inlets = 2 * wire::slots;

/// One connection is all that a process needs; while it opens a new one, the end of the one before
/// may not have been noticed.
constexpr std::ptrdiff_t most_inlets_of_one = 4;

/// Who means it says something at once. Of those who don't, of however many processes, so many are
/// kept that descriptors are left for others; if it was somebody slow, he connects again.
constexpr std::ptrdiff_t most_silent = 64;

/// What somebody has said may wait to be read, as may that he has left.
bool says_nothing(int socket) noexcept {
  std::byte first{};
  return ::recv(socket, &first, sizeof(first), MSG_PEEK | MSG_DONTWAIT) < 0 && errno == EAGAIN;
}

/// Who opens connection after connection must not hold up those who are there: accepting and
/// closing one takes as long as some messages do, and wakes who opens the next one. All processes
/// that there can be are accepted within a tenth of a second even so.
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
      // Those who wait are there as long as this end is; looking at them all the time helps nobody.
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
  // Most have been heard, which is quickly seen.
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
