// SPDX-License-Identifier: Apache-2.0
#include "connections/event_channel.hpp"

#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <cerrno>
#include <iterator>
#include <unordered_set>
#include <utility>

namespace softverbs {
namespace {

/// The maximum number of successive polls that yield no new event. The limit prevents a peer that
/// keeps sending from delaying other events.
constexpr int longest_look = 64;

std::unordered_set<event_channel*>& channels() {
  static auto* all = new std::unordered_set<event_channel*>;  // never freed
  return *all;
}

void close(int& descriptor) noexcept {
  if (descriptor >= 0) ::close(std::exchange(descriptor, -1));
}

}  // namespace

std::mutex& connections_mutex() noexcept {
  static constinit std::mutex mutex;
  return mutex;
}

connections_lock::connections_lock() : held_(connections_mutex()) {
  ::pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancelled_);
}

connections_lock::~connections_lock() {
  held_.unlock();
  ::pthread_setcancelstate(cancelled_, nullptr);
}

std::unique_ptr<event_channel> event_channel::open() {
  std::unique_ptr<event_channel> opened(new event_channel);
  opened->fd = ::epoll_create1(EPOLL_CLOEXEC);
  opened->bell_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  epoll_event entry{};
  entry.events = EPOLLIN;
  entry.data.ptr = &opened->bell_;
  if (opened->fd < 0 || opened->bell_ < 0 ||
      ::epoll_ctl(opened->fd, EPOLL_CTL_ADD, opened->bell_, &entry) != 0) {
    const int error = errno;
    opened.reset();
    errno = error;
  }
  return opened;
}

event_channel::event_channel() : rdma_event_channel{-1} { channels().insert(this); }

event_channel::~event_channel() {
  channels().erase(this);
  abandon();
}

bool event_channel::is_there(rdma_event_channel* channel) noexcept {
  return channels().contains(static_cast<event_channel*>(channel));
}

void event_channel::abandon_all() noexcept {
  for (event_channel* each : channels()) each->abandon();
}

void event_channel::abandon() noexcept {
  times_.clear();
  close(timer_);
  close(bell_);
  close(fd);
}

bool event_channel::watch(int descriptor, channel_member& member, std::uint32_t what) noexcept {
  epoll_event entry{};
  entry.events = what;
  entry.data.ptr = &member;
  return ::epoll_ctl(fd, EPOLL_CTL_ADD, descriptor, &entry) == 0;
}

bool event_channel::watch(int descriptor, channel_member& member) noexcept {
  return watch(descriptor, member, EPOLLIN);
}

bool event_channel::watch_edges(int descriptor, channel_member& member) {
  if (!watch(descriptor, member, EPOLLIN | EPOLLET)) return false;
  progress();
  return true;
}

void event_channel::unwatch(int descriptor) noexcept {
  ::epoll_ctl(fd, EPOLL_CTL_DEL, descriptor, nullptr);
}

void event_channel::wake_at(channel_member& member, nanoseconds when) {
  if (member.wakes_at != 0) {
    auto [entry, end] = times_.equal_range(member.wakes_at);
    while (entry != end && entry->second != &member) ++entry;
    if (entry != end) times_.erase(entry);
  }
  member.wakes_at = when;
  if (when != 0) times_.emplace(when, &member);
  set_timer();
}

void event_channel::set_timer() noexcept {
  if (timer_ < 0) {
    if (times_.empty()) return;
    timer_ = ::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    epoll_event entry{};
    entry.events = EPOLLIN;
    entry.data.ptr = &timer_;
    ::epoll_ctl(fd, EPOLL_CTL_ADD, timer_, &entry);
  }
  itimerspec when{};
  if (!times_.empty()) {
    when.it_value.tv_sec = static_cast<time_t>(times_.begin()->first / 1'000'000'000);
    when.it_value.tv_nsec = static_cast<long>(times_.begin()->first % 1'000'000'000);
  }
  ::timerfd_settime(timer_, TFD_TIMER_ABSTIME, &when, nullptr);
}

void event_channel::serve_timer() {
  std::uint64_t expirations = 0;
  [[maybe_unused]] const ssize_t got = ::read(timer_, &expirations, sizeof(expirations));
  while (!times_.empty() && times_.begin()->first <= now()) {
    channel_member* const due = times_.begin()->second;
    times_.erase(times_.begin());
    due->wakes_at = 0;
    due->on_time();
  }
  set_timer();
}

void event_channel::ring() const noexcept {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(bell_, &one, sizeof(one));
}

void event_channel::post(std::unique_ptr<connection_event> event) {
  auto place = events_.end();
  while (place != events_.begin()) {
    const connection_event& before = **std::prev(place);
    if (before.caused_at <= event->caused_at || before.id == event->id) break;
    --place;
  }
  events_.insert(place, std::move(event));
  ring();
}

bool event_channel::look() {
  epoll_event ready{};
  // Only one event is taken at a time, because handling it may destroy members that other events
  // refer to.
  if (::epoll_wait(fd, &ready, 1, 0) != 1) return false;
  if (ready.data.ptr == &bell_) {
    std::uint64_t rings = 0;
    [[maybe_unused]] const ssize_t got = ::read(bell_, &rings, sizeof(rings));
  } else if (ready.data.ptr == &timer_) {
    serve_timer();
  } else {
    static_cast<channel_member*>(ready.data.ptr)->on_ready();
  }
  return true;
}

void event_channel::progress() {
  for (int looks = 0; looks < longest_look; ++looks) {
    const std::size_t before = events_.size();
    // Continues until no descriptor is ready, unless a peer keeps sending without causing an event.
    // When no descriptor is ready, every message that is older than one read here has been read as
    // well, so the events are in order.
    if (!look()) break;
    if (events_.size() > before) looks = 0;
  }
  if (!events_.empty()) ring();
}

std::unique_ptr<connection_event> event_channel::take() {
  progress();
  if (events_.empty()) return nullptr;
  auto first = std::move(events_.front());
  events_.pop_front();
  if (events_.empty()) {
    std::uint64_t rings = 0;
    [[maybe_unused]] const ssize_t got = ::read(bell_, &rings, sizeof(rings));
  }
  return first;
}

void event_channel::extract(const std::function<bool(const connection_event&)>& which,
                            const std::function<void(std::unique_ptr<connection_event>)>& sink) {
  std::deque<std::unique_ptr<connection_event>> kept;
  std::deque<std::unique_ptr<connection_event>> taken;
  for (auto& event : events_) (which(*event) ? taken : kept).push_back(std::move(event));
  events_ = std::move(kept);
  if (events_.empty()) {
    std::uint64_t rings = 0;
    [[maybe_unused]] const ssize_t got = ::read(bell_, &rings, sizeof(rings));
  }
  for (auto& event : taken) sink(std::move(event));
}

}  // namespace softverbs
