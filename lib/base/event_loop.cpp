// SPDX-License-Identifier: Apache-2.0
#include "base/wake_signal.hpp"
#include <verbspp/base/detail/wait_readable.hpp>
#include <verbspp/base/event_loop.hpp>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <new>
#include <span>

namespace verbspp {

namespace detail {

void waiting_source::start(event_loop& loop, void* source,
                           std::coroutine_handle<> waiting) noexcept {
  source_ = source;
  waiting_ = waiting;
  link_before(loop.waiting_);
  loop.signal_.watch(limit_);
}

wait_limit::time_point waiting_source::deadline() const noexcept {
  return std::min(operations_.deadline(source_), limit_.alarm());
}

}  // namespace detail

event_loop::~event_loop() {
  for (detail::list_links* const list : {&waiting_, &due_})
    while (list->next != list) {
      of(list->next).limit_.end();
      list->next->unlink();
    }
}

result<bool> event_loop::run_once(const wait_limit& limit) noexcept {
  for (;;) {
    VERBSPP_TRY(was_due, run_until(limit));
    if (was_due || limit.has_passed()) return was_due;
  }
}

/// As `run_once`, but may also return false before the limit: after 10 ms if a coroutine waits with
/// a stop token that has to be polled, and after a stop request for a wait that has already ended.
result<bool> event_loop::run_until(const wait_limit& limit) noexcept {
  VERBSPP_TRYV(make_room());
  bool has_work = false;
  wait_limit until = limit;
  std::size_t count = 0;
  for (detail::list_links* next = waiting_.next; next != &waiting_; next = next->next) {
    detail::waiting_source& each = of(next);
    const result<bool> asked = each.operations_.request_notification(each.source_);
    if (!asked.has_value()) each.failure_ = asked.assume_error();
    each.is_due_ = !asked.has_value() || asked.assume_value();
    has_work = has_work || each.is_due_;
    entries_.get()[count++] = {.fd = each.operations_.file_descriptor(each.source_),
                               .events = each.operations_.events(each.source_),
                               .revents = 0};
    until = until.no_later_than(each.deadline());
  }
  // As long as one source has work in every round, the other sources' descriptors are polled only
  // in every 16th round.
  constexpr unsigned most_busy_rounds = 16;
  if (!has_work || ++busy_rounds_ == most_busy_rounds) {
    busy_rounds_ = 0;
    const wait_limit none = (wait_limit::time_point::min)();
    VERBSPP_TRYV(sleep(count, has_work ? none : until));
  }
  take_due();
  return resume_due();
}

/// Sleeps until a descriptor of the `count` sources is ready, a stop was requested, or the limit is
/// reached.
result<void> event_loop::sleep(std::size_t count, const wait_limit& limit) noexcept {
  detail::stoppable_limit until(limit);
  signal_.watch(until);
  pollfd& signal = entries_.get()[count];
  signal = {.fd = signal_.descriptor(), .events = POLLIN, .revents = 0};
  VERBSPP_TRYV(detail::wait_readable(std::span(entries_.get(), count + 1),
                                     until.is_active() ? limit.deadline() : limit));
  // The stop tokens are read after the signal is lowered, so no stop request is lost.
  if (signal.revents != 0) detail::lower(signal_.descriptor());
  return success();
}

/// Makes room for the poll entries of all sources and of the signal.
result<void> event_loop::make_room() noexcept {
  std::size_t count = 1;
  for (const detail::list_links* next = waiting_.next; next != &waiting_; next = next->next)
    ++count;
  if (count <= room_) return success();
  const std::size_t room = std::max<std::size_t>(8, 2 * count);
  entries_ = detail::owned<pollfd[]>(new (std::nothrow) pollfd[room]);
  room_ = entries_ ? room : 0;
  if (!entries_) return error::from_errno(ENOMEM, "event_loop::run_once");
  return success();
}

/// Moves the sources that may have work, or whose limit has expired, to the list of due sources.
void event_loop::take_due() noexcept {
  const auto now = std::chrono::steady_clock::now();
  const pollfd* entry = entries_.get();
  for (detail::list_links* next = waiting_.next; next != &waiting_; ++entry) {
    detail::waiting_source& each = of(next);
    next = next->next;
    if (!each.is_due_ && entry->revents == 0 && each.deadline() > now &&
        !each.limit().stop_requested())
      continue;
    each.unlink();
    each.link_before(due_);
  }
}

/// Resumes the coroutine of each due source whose wait has ended, and lets the other due sources
/// wait again. A resumed coroutine may start another wait, or destroy other coroutines.
/// \returns true if the list of due sources was not empty
bool event_loop::resume_due() noexcept {
  bool was_one = false;
  while (due_.next != &due_) {
    detail::waiting_source& first = of(due_.next);
    first.unlink();
    was_one = true;
    if (first.look_(first)) {
      first.limit_.end();
      first.waiting_.resume();
    } else {
      first.link_before(waiting_);
    }
  }
  return was_one;
}

}  // namespace verbspp
