// SPDX-License-Identifier: Apache-2.0
#include "device/async_events.hpp"

#include "base/readable.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <cassert>
#include <iterator>
#include <utility>

namespace verbspp::detail {

namespace {

constexpr const char* reading_event = "ibv_get_async_event";

/// Returns the rank of a failure: a listener keeps the failure with the highest rank. Events that
/// are not failures have the rank 0.
int rank_of(const async_event& event) noexcept {
  if (event.severity() < async_event_severity::error) return 0;
  if (event.element() == async_event_element::port) return 1;
  return event.severity() == async_event_severity::fatal ? 3 : 2;
}

bool watch(int epoll, int descriptor) noexcept {
  epoll_event interest{};
  interest.events = EPOLLIN;
  return ::epoll_ctl(epoll, EPOLL_CTL_ADD, descriptor, &interest) == 0;
}

void close_if_open(int descriptor) noexcept {
  if (descriptor != -1) ::close(descriptor);
}

}  // namespace

async_events::~async_events() {
  close_if_open(descriptor_);
  close_if_open(kept_descriptor_);
}

async_events& async_events::of(const context& device) noexcept {
  return *device.state_->events.get();
}

async_events& async_events::of(const async_listener& listener) noexcept {
  assert(listener.source_ && "this listener is not listening, so it has nothing to watch");
  return *listener.source_->events.get();
}

bool async_events::can_block() const noexcept {
  return is_borrowed && (::fcntl(native->async_fd, F_GETFL) & O_NONBLOCK) == 0;
}

result<std::optional<async_event>> async_events::next() noexcept {
  const std::lock_guard reader(reading_);
  {
    const std::lock_guard held(lock_);
    if (kept_count_ != 0) {
      const std::optional<async_event> oldest = kept_.front();
      drop_kept(0);
      return oldest;
    }
  }
  if (can_block()) {
    VERBSPP_TRY(readable,
                wait_readable(native->async_fd, wait_limit::time_point::min(), reading_event));
    if (!readable) return std::optional<async_event>();
  }
  return read(false);
}

result<void> async_events::collect() noexcept {
  if (can_block()) return success();
  const std::lock_guard reader(reading_);
  for (;;) {
    VERBSPP_TRY(event, read(true));
    if (!event) return success();
  }
}

result<std::optional<async_event>> async_events::read(bool is_kept) noexcept {
  ibv_async_event source{};
  VERBSPP_TRY(got, read_event([&] { return ibv_get_async_event(native, &source); }, reading_event));
  if (!got) return std::optional<async_event>();
  const async_event event = async_event::from_native(source);
  {
    const std::lock_guard held(lock_);
    tell(event, source);
    if (is_kept) keep(event);
  }
  // The element that the event concerns cannot be destroyed before this acknowledgement. So
  // `forget`, which is called after the destruction, finds the event if it was kept.
  ibv_ack_async_event(&source);
  return std::optional(event);
}

void async_events::tell(const async_event& event, const ibv_async_event& source) noexcept {
  const int rank = rank_of(event);
  if (rank == 3 && !fatal_) fatal_ = event;
  for (async_listener* each = listeners_; each != nullptr; each = each->next_) {
    if (each->is_about(event, source)) each->hear(event);
  }
  if (rank != 0) changed_.wake_all();
}

void async_events::keep(const async_event& event) noexcept {
  if (kept_count_ == kept_.size()) {
    std::size_t least = 0;
    for (std::size_t i = 1; i < kept_count_; ++i)
      if (kept_[i]->severity() < kept_[least]->severity()) least = i;
    drop_kept(least);
  }
  kept_[kept_count_] = event;
  if (++kept_count_ == 1 && kept_descriptor_ != -1) raise(kept_descriptor_);
  changed_.wake_all();
}

void async_events::drop_kept(std::size_t index) noexcept {
  for (std::size_t i = index + 1; i < kept_count_; ++i) kept_[i - 1] = kept_[i];
  kept_[--kept_count_].reset();
  if (kept_count_ == 0 && kept_descriptor_ != -1) lower(kept_descriptor_);
}

void async_events::forget(async_event_element element, std::uint64_t id) noexcept {
  const std::lock_guard held(lock_);
  for (std::size_t i = kept_count_; i-- != 0;)
    if (kept_[i]->element() == element && kept_[i]->id_ == id) drop_kept(i);
}

int async_events::descriptor() noexcept {
  const std::lock_guard held(lock_);
  if (descriptor_ != -1) return descriptor_;
  const int kept = make_event_descriptor();
  const int both = ::epoll_create1(EPOLL_CLOEXEC);
  if (kept == -1 || both == -1 || make_nonblocking(both) != 0 || !watch(both, kept) ||
      !watch(both, native->async_fd)) {
    close_if_open(kept);
    close_if_open(both);
    return native->async_fd;
  }
  if (kept_count_ != 0) raise(kept);
  kept_descriptor_ = kept;
  descriptor_ = both;
  return both;
}

result<async_events::sleep> async_events::begin_sleep(const async_listener* listener) noexcept {
  const bool reads = listener == nullptr || !can_block();
  const std::lock_guard held(lock_);
  if (listener != nullptr ? listener->has_heard_ : kept_count_ != 0)
    return sleep{.is_needless = true};
  VERBSPP_TRY(entered, changed_.enter());
  return sleep{
      .device = reads ? native->async_fd : -1, .signal = changed_.descriptor(), .entered = entered};
}

result<void> async_events::sleep_until(const async_listener* listener,
                                       const wait_limit& until) noexcept {
  VERBSPP_TRY(asleep, begin_sleep(listener));
  if (asleep.is_needless) return success();
  std::array<pollfd, 2> watched{{{.fd = asleep.device, .events = POLLIN, .revents = 0},
                                 {.fd = asleep.signal, .events = POLLIN, .revents = 0}}};
  const result<bool> woken = wait_readable(watched, until);
  end_sleep(asleep);
  VERBSPP_TRYV(woken);
  return check_alive(watched[0], "asynchronous events");
}

void async_events::end_sleep(const sleep& ended) noexcept {
  const std::lock_guard held(lock_);
  changed_.leave(ended.entered);
}

void async_events::admit(async_listener& listener) noexcept {
  const std::lock_guard held(lock_);
  listener.next_ = std::exchange(listeners_, &listener);
  if (listener.next_ != nullptr) listener.next_->previous_ = &listener;
  if (fatal_)
    listener.set(*fatal_);
  else
    listener.forget();
}

void async_events::admit_port(async_listener& listener, unsigned port) noexcept {
  const std::lock_guard held(lock_);
  listener.ports_.set(port % 256);
}

void async_events::wake_by(async_listener& listener, int event_descriptor) noexcept {
  const std::lock_guard held(lock_);
  listener.woken_ = event_descriptor;
}

void async_events::dismiss(async_listener& listener) noexcept {
  const std::lock_guard held(lock_);
  async_listener* const previous = std::exchange(listener.previous_, nullptr);
  async_listener* const next = std::exchange(listener.next_, nullptr);
  (previous != nullptr ? previous->next_ : listeners_) = next;
  if (next != nullptr) next->previous_ = previous;
}

std::optional<async_event> async_events::heard_by(const async_listener& listener) noexcept {
  const std::lock_guard held(lock_);
  if (!listener.has_heard_) return std::nullopt;
  return listener.heard_;
}

void forget_async_events(const context& device, async_event_element element,
                         std::uint64_t id) noexcept {
  async_events::of(device).forget(element, id);
}

async_listener::async_listener() noexcept = default;
async_listener::~async_listener() { stop(); }

void async_listener::listen(const context& source, const async_elements& about) noexcept {
  assert(source.native_handle() != nullptr && "this context was moved from");
  stop();
  source_ = source.state_;
  about_ = about;
  ports_.reset();
  down_.reset();
  if (about.port != 0) ports_.set(about.port % 256);
  source_->events->admit(*this);
}

void async_listener::hear_port(unsigned port) noexcept { source_->events->admit_port(*this, port); }

void async_listener::wake_by(int event_descriptor) noexcept {
  if (source_)
    source_->events->wake_by(*this, event_descriptor);
  else
    woken_ = event_descriptor;
}

void async_listener::stop() noexcept {
  if (!source_) return;
  source_->events->dismiss(*this);
  source_ = {};
}

std::optional<async_event> async_listener::heard() const noexcept {
  // After `stop`, no other thread changes the event.
  if (source_) return source_->events->heard_by(*this);
  if (!has_heard_) return std::nullopt;
  return heard_;
}

result<void> async_listener::look(const wait_limit& until) noexcept {
  async_events& events = async_events::of(*this);
  for (;;) {
    VERBSPP_TRYV(events.collect());
    if (has_heard() || until.has_passed()) return success();
    VERBSPP_TRYV(events.sleep_until(this, until));
  }
}

bool async_listener::is_about(const async_event& event,
                              const ibv_async_event& native) const noexcept {
  switch (event.element()) {
    case async_event_element::device:
      return true;
    case async_event_element::port:
      return ports_.test(static_cast<unsigned>(native.element.port_num) % 256);
    case async_event_element::queue_pair:
      return native.element.qp == about_.queue_pair;
    case async_event_element::completion_queue:
      return native.element.cq == about_.completion_queue;
    case async_event_element::shared_receive_queue:
      return native.element.srq == about_.shared_receive_queue;
    case async_event_element::work_queue:
    case async_event_element::unknown:
      break;
  }
  return false;
}

void async_listener::hear(const async_event& event) noexcept {
  const int rank = rank_of(event);
  const int noted = has_heard_ ? rank_of(heard_) : 0;
  const bool is_active = event.type() == async_event_type::port_active;
  if (const auto port = event.port(); port && (rank == 1 || is_active))
    down_.set(port->value(), rank == 1);
  if (rank > noted) return set(event);
  if (noted != 1 || !is_active || event.port() != heard_.port()) return;
  for (unsigned port = 0; port < down_.size(); ++port) {
    if (!down_.test(port)) continue;
    ibv_async_event other{};
    other.event_type = IBV_EVENT_PORT_ERR;
    other.element.port_num = static_cast<int>(port);
    return set(async_event::from_native(other));
  }
  forget();
}

void async_listener::set(const async_event& heard) noexcept {
  heard_ = heard;
  __atomic_store_n(&has_heard_, true, __ATOMIC_RELEASE);
  __atomic_store_n(&times_heard_, times_heard_ + 1, __ATOMIC_RELEASE);
  if (woken_ >= 0) raise(woken_);
}

void async_listener::forget() noexcept { __atomic_store_n(&has_heard_, false, __ATOMIC_RELEASE); }

}  // namespace verbspp::detail
