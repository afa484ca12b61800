// SPDX-License-Identifier: Apache-2.0
#include "base/wake_signal.hpp"
#include <verbspp/base/detail/stoppable_limit.hpp>

#include <sys/epoll.h>
#include <unistd.h>

#include <cstdint>
#include <new>

namespace verbspp::detail {

namespace {

// poll and epoll use the same values for their events.
epoll_event entry_for(short events) noexcept {
  return {.events = static_cast<std::uint32_t>(events), .data = {}};
}

}  // namespace

stop_signal::stop_signal() noexcept
    : stoppable_sleep{.wake = [](stoppable_sleep& self) noexcept {
        raise(static_cast<stop_signal&>(self).descriptor_);
      }} {}

stop_signal::~stop_signal() {
  if (descriptor_ != -1) ::close(descriptor_);
}

void stop_signal::watch(stoppable_limit& limit) noexcept {
  if (!limit.until().has_callbacks()) return;
  if (descriptor_ == -1) descriptor_ = make_event_descriptor();
  if (descriptor_ != -1) limit.begin(*this);
}

session_descriptor::parts::parts(int of_session, short events_of_session,
                                 const wait_limit& limit) noexcept
    : own(of_session), events(events_of_session), until(limit) {
  set = ::epoll_create1(EPOLL_CLOEXEC);
  if (set == -1) return;
  signal.watch(until);
  epoll_event stops = entry_for(EPOLLIN);
  epoll_event others = entry_for(events);
  if (until.is_active() && (::epoll_ctl(set, EPOLL_CTL_ADD, signal.descriptor(), &stops) != 0 ||
                            ::epoll_ctl(set, EPOLL_CTL_ADD, own, &others) != 0))
    until.end();
}

session_descriptor::parts::~parts() {
  if (set != -1) ::close(set);
}

int session_descriptor::get(int own, short events, const wait_limit& limit) noexcept {
  // An event loop might ask for the descriptor just once, so every call must return the same one.
  if (!was_asked_ && limit.has_callbacks()) {
    made_ = owned<parts>(new (std::nothrow) parts(own, events, limit));
    if (made_ && !made_->until.is_active()) made_ = {};
  }
  was_asked_ = true;
  return made_ ? made_->set : own;
}

void session_descriptor::set_events(short events) noexcept {
  if (!made_ || made_->events == events) return;
  made_->events = events;
  epoll_event entry = entry_for(events);
  ::epoll_ctl(made_->set, EPOLL_CTL_MOD, made_->own, &entry);
}

}  // namespace verbspp::detail
