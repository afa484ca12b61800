// SPDX-License-Identifier: Apache-2.0
#include "completion/completion_queue.hpp"

#include "machine/open_device.hpp"

#include <time.h>

#include <algorithm>
#include <bit>

namespace softverbs {
namespace {

/// Whoever reads more than these of a failed completion reads what the
/// specification leaves undefined; so it isn't touched, as on hardware.
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
    : owner_(owner), options_(options), ring_(capacity), reading_(options.single_threaded) {
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

std::uint32_t completion_queue::granted(std::uint32_t asked) noexcept {
  return std::bit_ceil(asked + 1) - 1;
}

bool completion_queue::push(const completion& entry) {
  if (entry.delay == 0 && held_back_.empty()) return give_out(entry);
  hold_back(entry);
  return true;
}

void completion_queue::hold_back(const completion& entry) {
  nanoseconds due = now() + entry.delay;
  // None overtakes another.
  if (!held_back_.empty()) due = std::max(due, held_back_.back().delay);
  held_back_.push_back(entry);
  held_back_.back().delay = due;
  if (held_back_.size() == 1) engine().set_deadline(*this, due);
}

void completion_queue::on_deadline(nanoseconds time) {
  while (!held_back_.empty() && held_back_.front().delay <= time) {
    const completion entry = held_back_.front();
    held_back_.pop_front();
    if (!give_out(entry)) entry.owner->completion_lost();
  }
  if (!held_back_.empty()) engine().set_deadline(*this, held_back_.front().delay);
}

bool completion_queue::give_out(const completion& entry) {
  if (broken_) return false;
  if (options_.ignores_overrun && count_.load(std::memory_order_relaxed) == ring_.size()) take();
  const std::uint32_t count = count_.load(std::memory_order_relaxed);
  if (count == ring_.size()) {
    broken_ = true;
    ibv_async_event event{};
    event.event_type = IBV_EVENT_CQ_ERR;
    event.element.cq = this;
    owner_.async_events().push(event);
    return false;
  }
  completion& added = ring_[(first_ + count) % ring_.size()];
  added = entry;
  if (has_field(IBV_WC_EX_WITH_COMPLETION_TIMESTAMP))
    added.timestamp = static_cast<std::uint64_t>(now());
  if (has_field(IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK)) added.wallclock = wallclock();
  count_.store(count + 1, std::memory_order_release);
  if (notify_ == notify::any ||
      (notify_ == notify::solicited && (entry.solicited || entry.wc.status != IBV_WC_SUCCESS))) {
    set_notify(notify::off);
    static_cast<completion_channel*>(channel)->events.push(this);
  }
  return true;
}

const completion& completion_queue::take() noexcept {
  const completion& entry = ring_[first_];
  first_ = first_ + 1 == ring_.size() ? 0 : first_ + 1;
  count_.store(count_.load(std::memory_order_relaxed) - 1, std::memory_order_release);
  entry.owner->release(entry);
  return entry;
}

int completion_queue::poll(int wanted, ibv_wc* out) noexcept {
  if (empty() && broken_) return -EIO;
  int given = 0;
  for (; given < wanted && !empty(); ++given) report(take().wc, out[given]);
  return given;
}

int completion_queue::advance() noexcept {
  if (empty()) return broken_ ? EIO : ENOENT;
  const completion& entry = take();
  report(entry.wc, current_.wc);
  current_.timestamp = entry.timestamp;
  current_.wallclock = entry.wallclock;
  extended()->wr_id = entry.wc.wr_id;
  extended()->status = entry.wc.status;
  return 0;
}

void completion_queue::request_notification(bool solicited_only) noexcept {
  if (channel == nullptr) return;
  // An earlier request for any completion isn't narrowed.
  if (solicited_only && notify_ == notify::any) return;
  set_notify(solicited_only ? notify::solicited : notify::any);
}

void completion_queue::set_notify(notify when) noexcept {
  if (notify_ == notify::off && when != notify::off) engine().sleeper_expected();
  if (notify_ != notify::off && when == notify::off) engine().sleeper_gone();
  notify_ = when;
}

void completion_queue::forget(const work_queues& gone) noexcept {
  std::erase_if(held_back_, [&](const completion& entry) { return entry.owner == &gone; });
  const std::uint32_t count = count_.load(std::memory_order_relaxed);
  std::uint32_t kept = 0;
  for (std::uint32_t at = 0; at < count; ++at) {
    const completion& entry = ring_[(first_ + at) % ring_.size()];
    if (entry.owner == &gone) continue;
    ring_[(first_ + kept++) % ring_.size()] = entry;
  }
  count_.store(kept, std::memory_order_release);
}

int completion_queue::resize(std::uint32_t capacity) {
  const std::uint32_t count = count_.load(std::memory_order_relaxed);
  if (capacity < count) return EINVAL;
  std::vector<completion> ring(capacity);
  for (std::uint32_t at = 0; at < count; ++at) ring[at] = ring_[(first_ + at) % ring_.size()];
  ring_.swap(ring);
  first_ = 0;
  cqe = static_cast<int>(capacity);
  return 0;
}

void completion_queue::detach() noexcept {
  set_notify(notify::off);
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
