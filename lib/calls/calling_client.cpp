// SPDX-License-Identifier: Apache-2.0
#include "calls/sent_answers.hpp"
#include <verbspp/calls/detail/calling_client.hpp>
#include <verbspp/calls/detail/service_core.hpp>

#include <utility>

namespace verbspp::detail {

namespace {

error client_has_left() noexcept {
  return {error_kind::not_connected, "access lent memory",
          "the connection to the client ended, the client violated the protocol, or the service "
          "was destroyed"};
}

}  // namespace

void calling_client::deliver(message&& answer) noexcept {
  {
    const brief_guard guard(lock_);
    if (has_left_) return;
    ready_.get()[ready_count_++] = std::move(answer);
    if (is_in_turn_) return;
  }
  hub_.wake(id_);
}

VERBSPP_DATA_PATH bool calling_client::send_ready(channel_core& link,
                                                  service_core& counting) noexcept {
  bool has_room = true;
  for (;;) {
    std::uint32_t count = 0;
    {
      const brief_guard guard(lock_);
      // If the send queue is full, the completion of an earlier answer causes another turn.
      if (ready_count_ == 0 || !has_room) {
        is_in_turn_ = false;
        return static_cast<bool>(polled_);
      }
      std::swap(ready_, sending_);
      count = std::exchange(ready_count_, 0U);
    }
    for (std::uint32_t i = 0; i < count; ++i) {
      message& answer = sending_.get()[i];
      const std::uint16_t method = call_header::method_in(answer.bytes().data());
      has_room = has_room && send(link, answer, counting.counters_of(method));
      if (has_room) continue;
      const brief_guard guard(lock_);
      ready_.get()[ready_count_++] = std::move(answer);
    }
  }
}

void calling_client::end_turn(channel_core& link, service_core& counting) noexcept {
  if (send_ready(link, counting)) [[unlikely]]
    serve_accesses(link, counting);
}

[[gnu::cold, gnu::noinline]] void calling_client::serve_accesses(channel_core& link,
                                                                 service_core& counting) noexcept {
  {
    const brief_guard guard(lock_);
    is_in_turn_ = true;
  }
  const bool has_resumed = poll_lanes();
  if (!send_ready(link, counting)) return;
  // Coroutines that were resumed may have begun other accesses, which are polled in another turn,
  // so that other clients get their turns, too.
  if (sleeps_ && !has_resumed && watch_lanes(link)) return;
  // If clients have arrivals all of the time, no wait takes the events of the hub, so they are
  // taken here.
  link.take_hub_events();
  is_due_again_ = true;
  hub_.wake(id_);
}

bool calling_client::poll_lanes() noexcept {
  serving_lane* first = nullptr;
  {
    const brief_guard guard(lock_);
    first = polled_.get();
  }
  bool has_resumed = false;
  for (serving_lane* each = first; each != nullptr; each = each->next_.get()) {
    each->poll();
    while (each->resume_next()) has_resumed = true;
  }
  for (;;) {
    // The last reference to a lane is dropped without the lock, since dropping it destroys a queue
    // pair.
    reference<serving_lane> idle;
    const brief_guard guard(lock_);
    reference<serving_lane>* each = &polled_;
    while (*each && each->get()->is_busy()) each = &each->get()->next_;
    if (!*each) return has_resumed;
    idle = std::move(*each);
    *each = std::move(idle->next_);
    idle->is_listed_ = false;
  }
}

bool calling_client::watch_lanes(channel_core& link) noexcept {
  serving_lane* first = nullptr;
  {
    const brief_guard guard(lock_);
    first = polled_.get();
  }
  bool is_watched = true;
  for (serving_lane* each = first; each != nullptr; each = each->next_.get()) {
    if (!each->wakes_client_) each->wakes_client_ = link.report_events_of(each->descriptor());
    if (!each->wakes_client_ || !each->ask_to_be_woken()) is_watched = false;
    link.set_alarm(each->deadline());
  }
  return is_watched;
}

void calling_client::poll_later(const reference<serving_lane>& lane) noexcept {
  bool has_left = false;
  {
    const brief_guard guard(lock_);
    has_left = has_left_;
    if (!has_left && !lane->is_listed_) {
      lane->is_listed_ = true;
      lane->next_ = std::move(polled_);
      polled_ = lane;
    }
    if (is_in_turn_ && !has_left) return;
  }
  // No coroutine is resumed here, since this function may be called while a coroutine begins or
  // drops an access. `leave` resumes the coroutines that have to be resumed. A later access has
  // already ended when a coroutine awaits it.
  if (has_left) return lane->end(client_has_left());
  hub_.wake(id_);
}

void calling_client::leave() noexcept {
  owned<message[]> dropped;
  reference<serving_lane> polled;
  {
    const brief_guard guard(lock_);
    has_left_ = true;
    dropped = std::move(ready_);
    polled = std::move(polled_);
  }
  while (polled) {
    polled->end(client_has_left());
    while (polled->resume_next()) continue;
    polled = std::exchange(polled->next_, {});
  }
}

}  // namespace verbspp::detail
