// SPDX-License-Identifier: Apache-2.0
#include "completion/completion_queue.hpp"

#include "machine/open_device.hpp"

#include <time.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace softverbs {

std::uint64_t& work_queues::last_of(const completion& entry) noexcept {
  return last_[entry.of_send_queue ? 1 : 0];
}

namespace {

/// Copies a completion to the program's structure. If the request failed, only the fields that the
/// specification defines are written. A program that reads other fields finds old values in them,
/// as on hardware.
void report(const ibv_wc& from, ibv_wc& to) noexcept {
  if (from.status == IBV_WC_SUCCESS) {
    to = from;
    return;
  }
  to.wr_id = from.wr_id;
  to.status = from.status;
  to.vendor_err = from.vendor_err;
  to.qp_num = from.qp_num;
}

std::uint64_t wallclock() noexcept {
  timespec time{};
  ::clock_gettime(CLOCK_REALTIME, &time);
  return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000'000 +
         static_cast<std::uint64_t>(time.tv_nsec);
}

}  // namespace

completion_queue::completion_queue(open_device& owner, std::uint32_t capacity,
                                   completion_channel* user_channel, void* user_context,
                                   const completion_queue_options& options)
    : owner_(owner),
      options_(options),
      ring_(places(capacity)),
      capacity_(capacity),
      reading_(options.single_threaded) {
  context = &owner.verbs();
  channel = user_channel;
  cq_context = user_context;
  cqe = static_cast<int>(capacity);
  ::pthread_mutex_init(&mutex, nullptr);
  ::pthread_cond_init(&cond, nullptr);
}

completion_queue::~completion_queue() {
  ::pthread_cond_destroy(&cond);
  ::pthread_mutex_destroy(&mutex);
}

softverbs::engine& completion_queue::engine() const noexcept { return owner_.engine(); }
bool completion_queue::usable() const noexcept { return owner_.usable(); }

bool completion_queue::push(const completion& entry) {
  const std::lock_guard held(lock_);
  if (entry.delay == 0 && held_back_.empty()) [[likely]]
    return give_out(entry);
  return hold_back(entry);
}

bool completion_queue::hold_back(const completion& entry) {
  nanoseconds due = entry.delay == 0 ? 0 : now() + entry.delay;
  // A completion may overtake only completions of other owners, and only those marked
  // `overtakable`.
  bool overtakable = entry.overtakable;
  for (const completion& each : held_back_) {
    if (each.owner != entry.owner && each.overtakable) continue;
    due = std::max(due, each.delay);
    // If this completion waits for an overtakable one of the same owner, it becomes overtakable,
    // too.
    overtakable |= each.overtakable;
  }
  if (due == 0) return give_out(entry);
  const auto later = [](nanoseconds time, const completion& each) { return time < each.delay; };
  const auto added =
      held_back_.insert(std::upper_bound(held_back_.begin(), held_back_.end(), due, later), entry);
  added->delay = due;
  added->overtakable = overtakable;
  // A completion without a delay is inserted behind one that is due at the same time, so the
  // deadline doesn't change.
  if (entry.delay != 0) engine().set_deadline(*this, held_back_.front().delay);
  return true;
}

void completion_queue::on_deadline(nanoseconds time) {
  std::vector<work_queues*> losers;
  {
    const std::lock_guard held(lock_);
    while (!held_back_.empty() && held_back_.front().delay <= time) {
      const completion entry = held_back_.front();
      held_back_.pop_front();
      if (!give_out(entry)) losers.push_back(entry.owner);
    }
    if (!held_back_.empty()) engine().set_deadline(*this, held_back_.front().delay);
  }
  // The owners are notified without the completion queue's lock, because the lock of a work queue
  // must always be taken first.
  for (work_queues* loser : losers) loser->late_completion_lost();
}

completion& completion_queue::at(std::uint32_t place) noexcept {
  const std::size_t index = std::size_t{first_} + place;
  return ring_[index < capacity_ ? index : index - capacity_];
}

bool completion_queue::give_out(const completion& entry) {
  if (broken_) return false;
  if (count_.load(std::memory_order_relaxed) == capacity_ && dead_ != 0) drop_the_dead();
  if (options_.ignores_overrun && count_.load(std::memory_order_relaxed) == capacity_) take();
  const std::uint32_t count = count_.load(std::memory_order_relaxed);
  if (count == capacity_) {
    broken_ = true;
    ibv_async_event event{};
    event.event_type = IBV_EVENT_CQ_ERR;
    event.element.cq = this;
    owner_.async_events().push(event);
    // The lost completion may be the one that a sleeping thread waits for, so the thread is woken.
    if (notify_ != notify::off) tell_channel();
    return false;
  }
  completion& added = at(count);
  added = entry;
  added.previous = std::exchange(entry.owner->last_of(entry), first_number_ + count);
  if (has_field(IBV_WC_EX_WITH_COMPLETION_TIMESTAMP))
    added.timestamp = static_cast<std::uint64_t>(now());
  if (has_field(IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK)) added.wallclock = wallclock();
  count_.store(count + 1, std::memory_order_release);
  if (notify_ == notify::any ||
      (notify_ == notify::solicited && (entry.solicited || entry.wc.status != IBV_WC_SUCCESS))) {
    tell_channel();
  }
  return true;
}

void completion_queue::tell_channel() {
  set_notify(notify::off);
  static_cast<completion_channel*>(channel)->events.push(this);
}

const completion& completion_queue::take() noexcept {
  const completion& entry = ring_[first_];
  if (entry.freed != nullptr) entry.freed->store(entry.frees_up_to, std::memory_order_release);
  const std::uint32_t left = count_.load(std::memory_order_relaxed) - 1;
  first_ = first_ + 1 == capacity_ ? 0 : first_ + 1;
  ++first_number_;
  if (dead_ == 0)
    count_.store(left, std::memory_order_release);
  else
    skip_the_dead(left);
  return entry;
}

void completion_queue::skip_the_dead(std::uint32_t count) noexcept {
  while (count != 0 && ring_[first_].owner == nullptr) {
    first_ = first_ + 1 == capacity_ ? 0 : first_ + 1;
    ++first_number_;
    --dead_;
    --count;
  }
  count_.store(count, std::memory_order_release);
}

void completion_queue::drop_the_dead() noexcept {
  // The remaining completions move up, and get new numbers.
  const std::uint32_t count = count_.load(std::memory_order_relaxed);
  std::uint32_t kept = 0;
  for (std::uint32_t place = 0; place < count; ++place)
    if (const completion& entry = at(place); entry.owner != nullptr)
      entry.owner->last_of(entry) = 0;
  for (std::uint32_t place = 0; place < count; ++place) {
    if (at(place).owner == nullptr) continue;
    completion& entry = at(kept) = at(place);
    entry.previous = std::exchange(entry.owner->last_of(entry), first_number_ + kept++);
  }
  dead_ = 0;
  count_.store(kept, std::memory_order_release);
}

int completion_queue::poll(int wanted, ibv_wc* out) noexcept {
  const std::lock_guard held(lock_);
  if (empty() && broken_) return -EIO;
  int given = 0;
  for (; given < wanted && !empty(); ++given) report(take().wc, out[given]);
  return given;
}

int completion_queue::advance() noexcept {
  const std::lock_guard held(lock_);
  if (empty()) return broken_ ? EIO : ENOENT;
  const completion& entry = take();
  report(entry.wc, current_.wc);
  current_.flow_tag = entry.flow_tag;
  current_.timestamp = entry.timestamp;
  current_.wallclock = entry.wallclock;
  extended()->wr_id = entry.wc.wr_id;
  extended()->status = entry.wc.status;
  return 0;
}

void completion_queue::request_notification(bool solicited_only) noexcept {
  if (channel == nullptr) return;
  const std::lock_guard held(lock_);
  // A notification for any completion was already requested, and stays in effect.
  if (solicited_only && notify_ == notify::any) return;
  set_notify(solicited_only ? notify::solicited : notify::any);
}

void completion_queue::set_notify(notify when) noexcept {
  if (notify_ == notify::off && when != notify::off) engine().sleeper_expected();
  if (notify_ != notify::off && when == notify::off) engine().sleeper_gone();
  notify_ = when;
}

void completion_queue::forget(work_queues& gone, bool of_send_queue) noexcept {
  const std::lock_guard held(lock_);
  std::erase_if(held_back_, [&](const completion& entry) { return entry.owner == &gone; });
  // In the ring, only the completions of `gone` are visited, because there may be thousands of
  // others.
  const std::uint32_t count = count_.load(std::memory_order_relaxed);
  std::uint64_t number = std::exchange(gone.last_[of_send_queue ? 1 : 0], 0);
  while (number >= first_number_) {
    completion& entry = at(static_cast<std::uint32_t>(number - first_number_));
    entry.owner = nullptr;
    ++dead_;
    number = entry.previous;
  }
  if (dead_ != 0) skip_the_dead(count);
}

int completion_queue::resize(completion_places& places, std::uint32_t capacity) noexcept {
  const std::lock_guard held(lock_);
  if (dead_ != 0) drop_the_dead();
  const std::uint32_t count = count_.load(std::memory_order_relaxed);
  if (capacity < count) return EINVAL;
  for (std::uint32_t place = 0; place < count; ++place) places[place] = at(place);
  ring_.swap(places);
  capacity_ = capacity;
  first_ = 0;
  cqe = static_cast<int>(capacity);
  return 0;
}

void completion_queue::detach() noexcept {
  {
    const std::lock_guard held(lock_);
    set_notify(notify::off);
  }
  engine().forget(*this);
  if (channel != nullptr) {
    auto* events_behind = static_cast<completion_channel*>(channel);
    events_behind->events.drop([this](const completion_queue* queue) { return queue == this; });
    --events_behind->refcnt;
  }
  owner_.async_events().drop([this](const ibv_async_event& event) {
    return event.event_type == IBV_EVENT_CQ_ERR && event.element.cq == this;
  });
}

}  // namespace softverbs
