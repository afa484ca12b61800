// SPDX-License-Identifier: Apache-2.0
#include "wire/wire.hpp"

#include "wire/ends.hpp"
#include "wire/slot_socket.hpp"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <memory>

namespace softverbs {
namespace {

/// Unless a poll is thorough, epoll is called only once in this many polls in two cases. In the
/// first case, rings are polled, but some incoming connections use sockets, or some outgoing ones
/// wait for space in a socket. In the second case, the only incoming connection uses a socket, and
/// no outgoing one waits for space; the other polls then read that socket.
constexpr unsigned looks_between = 8;

/// As above, but for the case in which all incoming connections use rings, and no outgoing one
/// waits for space in a socket. In this case, epoll reports only notices, and connections that
/// begin or end, which are less urgent than packets.
constexpr unsigned looks_between_notices = 32;

}  // namespace

wire::wire() = default;
wire::~wire() { close(); }

int wire::take_slot() noexcept {
  // The search starts at an arbitrary slot, so that the queue pair numbers of a process that died
  // are rarely reused soon.
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  const auto start = static_cast<std::uint32_t>(now.tv_nsec >> 4) ^
                     static_cast<std::uint32_t>(::getpid()) * 2654435761U;
  for (std::uint32_t tried = 0; tried < last_slot; ++tried) {
    const std::uint32_t slot = 1 + (start + tried) % last_slot;
    const slot_name here(slot);
    if (::bind(listener_, here.get(), here.length) == 0) {
      slot_ = slot;
      return 0;
    }
    if (errno != EADDRINUSE) return errno;
  }
  std::fprintf(
      stderr,
      "softverbs: %u processes of this network namespace use softverbs with the same "
      "configuration, which is the maximum: the device can't be opened until one of them exits or "
      "closes its devices\n",
      last_slot);
  return EUSERS;
}

int wire::open() {
  outlets_.resize(slots);
  landing_ = std::make_unique_for_overwrite<std::byte[]>(largest_packet);
  epoll_ = ::epoll_create1(EPOLL_CLOEXEC);
  listener_ = open_socket();
  int error = epoll_ < 0 || listener_ < 0 ? errno : take_slot();
  if (error == 0 && ::listen(listener_, SOMAXCONN) != 0) error = errno;
  if (error == 0) {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.u64 = listener_tag;
    if (::epoll_ctl(epoll_, EPOLL_CTL_ADD, listener_, &event) != 0) error = errno;
  }
  if (error != 0) close();
  return error;
}

void wire::part() noexcept {
  for (const auto& way : outlets_)
    if (way && way->end) way->end->gone = true;
}

void wire::close() noexcept {
  for (const auto& way : outlets_) {
    // A peer that gets no response to its last packets would have to assume that this process has
    // died.
    while (way && !way->owed.empty() && way->socket >= 0) {
      const sent result = try_send(*way, way->owed.front(), nullptr, 0);
      if (result == sent::blocked && wait_until_writable(*way)) continue;
      if (result != sent::yes) break;
      way->owed.pop_front();
    }
  }
  outlets_.clear();
  inlets_.clear();
  ready_.clear();
  watched_.clear();
  by_socket_ = 0;
  writable_again_.clear();
  blocked_ = 0;
  full_rings_.clear();
  short_of_means_.clear();
  listener_pauses_until_ = 0;
  next_connect_ = 0;
  if (listener_ >= 0) ::close(listener_);
  if (epoll_ >= 0) ::close(epoll_);
  hear_multicasts(false);
  listener_ = -1;
  epoll_ = -1;
  current_in_ = nullptr;
  landing_.reset();
}

void wire::abandon() noexcept {
  for (const auto& way : outlets_)
    if (way) way->owed.clear();
  close();
}

void wire::look(bool thoroughly) noexcept {
  hearers_known_ = false;
  look_into_rings();
  const bool one_socket = by_socket_ == 1 && inlets_.size() == 1 && blocked_ == 0;
  const bool nothing_but_rings = by_socket_ == 0 && blocked_ == 0;
  // While rings are polled, system calls for sockets must not slow down the polling.
  const bool may_wait = one_socket || nothing_but_rings || !watched_.empty();
  if (!thoroughly && may_wait &&
      ++looks_ % (nothing_but_rings ? looks_between_notices : looks_between) != 0) {
    if (one_socket) make_ready(*inlets_.front());
    return;
  }
  try_again();
  std::array<epoll_event, 64> events;
  const int count = ::epoll_wait(epoll_, events.data(), static_cast<int>(events.size()), 0);
  bool knocked = false;
  for (int at = 0; at < count; ++at) {
    const epoll_event& event = events[static_cast<std::size_t>(at)];
    if (event.data.u64 == listener_tag) {
      knocked = true;
    } else if ((event.data.u64 & outlet_tag) != 0) {
      const auto slot = static_cast<std::uint32_t>(event.data.u64 & ~outlet_tag);
      if ((event.events & ~std::uint32_t{EPOLLOUT}) != 0) hear_back(slot);
      if ((event.events & EPOLLOUT) != 0) unblock(slot);
    } else if (auto* from = static_cast<inlet*>(event.data.ptr); from->ring) {
      hear(*from);
    } else {
      make_ready(*from);
    }
  }
  if (knocked) accept_some();
}

bool wire::has_arrived() const noexcept {
  if (!is_open()) return false;
  for (const inlet* from : watched_)
    if (!from->ring->is_empty()) return true;
  // These events are not processed here, so epoll reports them again.
  std::array<epoll_event, 64> events;
  const int count = ::epoll_wait(epoll_, events.data(), static_cast<int>(events.size()), 0);
  return std::any_of(
      events.data(), events.data() + std::max(count, 0), [](const epoll_event& each) {
        if (each.data.u64 == listener_tag) return false;
        return (each.data.u64 & outlet_tag) != 0 || static_cast<const inlet*>(each.data.ptr)->heard;
      });
}

}  // namespace softverbs
