// SPDX-License-Identifier: Apache-2.0
/// \file
/// The life of a channel's connection.
#include "core/channel_member.hpp"
#include "core/inbox_state.hpp"
#include "core/lease_book.hpp"
#include "wait/waiting.hpp"
#include <verbspp/core/detail/channel_core.hpp>

#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <new>
#include <utility>

namespace verbspp::detail {

namespace {

/// The time within which a device has to flush all requests once their queue pair has entered ERR,
/// unless `close` has another limit. A working device needs microseconds. After this time, the
/// queue pair is destroyed.
constexpr auto time_to_flush = std::chrono::milliseconds(50);

}  // namespace

channel_core::channel_core(const channel_settings& settings) noexcept
    : stoppable_sleep{.wake =
                          [](stoppable_sleep& self) noexcept {
                            static_cast<channel_core&>(self).wake_poller();
                          }},
      connection_(settings),
      polls_(*this, settings.default_limit) {
  if (guard_.is_active()) {
    need_care_to_collect();
    polls_.need_care_to_await();
  }
}

channel_core::~channel_core() { leave_hub(); }

channel_core& channel_core::empty() noexcept {
  thread_local channel_core none{channel_settings()};
  none.connection_.set_state(channel_state::empty);
  return none;
}

result<channel_core*> channel_core::create(const channel_settings& settings) noexcept {
  auto* const made = new (std::nothrow) channel_core(settings);
  if (made == nullptr) return error::from_errno(ENOMEM, "build a channel");
  auto ready = made->prepare();
  if (ready.has_value()) ready = made->allocate();
  if (!ready.has_value()) {
    delete made;
    return ready.assume_error();
  }
  return made;
}

/// Allocates the records for all requests that can be outstanding.
result<void> channel_core::allocate() noexcept {
  const queue_pair_capacities& granted = connection_.capacities();
  VERBSPP_TRYV(receives_.allocate());
  VERBSPP_TRYV(sends_.allocate());
  if (!guard_.is_active()) return success();
  sends_.need_care();
  return guard_.allocate(receives_.size() + sends_.places(),
                         std::max({granted.max_send_elements, granted.max_receive_elements, 1U}));
}

/// Joins the hub. The channel then uses the hub's completion queue and, if the hub has a pool, its
/// shared receive queue.
result<void> channel_core::enter_hub() noexcept {
  if (member_) return success();
  const channel_settings& asked = connection_.settings();
  hub_state& hub = *asked.hub.get();
  if (hub.domain() != connection_.domain())
    return error(error_kind::invalid_input, building_in_hub,
                 "the hub and the channel belong to different protection domains: create both in "
                 "the same one");
  if (asked.waiting.sleeps() && !hub.waiting().sleeps())
    return error(error_kind::invalid_input, building_in_hub,
                 "the hub spins, so none of its channels can sleep: give the hub a wait mode that "
                 "sleeps, too (hub_options::waiting, service_options::waiting, or the builder of "
                 "a group)");
  if (asked.queue_pair.receives)
    return error(error_kind::invalid_input, building_in_hub,
                 "a channel of a hub cannot use the program's shared receive queue: to share "
                 "receives, create the hub with a message_pool");
  owned<channel_member> made(new (std::nothrow) channel_member(*this));
  if (!made) return error::from_errno(ENOMEM, building_in_hub);
  VERBSPP_TRYV(hub.join(*made.get()));
  made->hub = asked.hub;
  id_ = made->id;
  member_ = std::move(made);
  need_care_to_collect();
  sends_.need_care();
  polls_.note_hub();
  connection_.use_queues(hub.queue(), hub.receives());
  return success();
}

void channel_core::leave_hub() noexcept {
  if (!member_ || !member_->hub) return;
  member_->hub->watch(*member_.get(), connection_.watched(), {});
  member_->hub->leave(*member_.get());
  member_->hub = {};
}

void channel_core::watch(const watched_descriptor& watched) noexcept {
  if (member_) member_->hub->watch(*member_.get(), connection_.watched(), watched);
  connection_.watch(watched);
}

void channel_core::tie(tied_socket&& socket) noexcept {
  tied_socket& mine = connection_.socket();
  if (socket.is_open())
    watch({.number = socket.descriptor(), .what = watch_for::hang_up});
  else if (mine.is_open() && connection_.watched().number == mine.descriptor())
    watch({});
  mine = std::move(socket);
}

void channel_core::hold_arrivals() const noexcept {
  if (member_) member_->hub->hold(*member_.get());
}

void channel_core::release_arrivals() const noexcept {
  if (member_) member_->hub->release(*member_.get());
}

result<void> channel_core::prepare() noexcept {
  const channel_settings& settings = connection_.settings();
  if (settings.hub)
    VERBSPP_TRYV(enter_hub());
  else
    VERBSPP_TRYV(connection_.make_queue());
  const std::uint32_t not_of_sends = inboxes_.count() + scopes_.count() + receives_.held();
  VERBSPP_TRYV(sends_.begin_connection(handles_ != 0, handles_ > not_of_sends));
  VERBSPP_TRYV(connection_.make_queue_pair());
  const queue_pair_settings& asked = settings.queue_pair;
  const queue_pair_capacities& granted = connection_.capacities();
  const bool has_receives = !asked.receives;
  const std::uint32_t asked_sends = asked.max_send_work_requests.value();
  const std::uint32_t asked_receives = has_receives ? asked.max_receive_work_requests.value() : 0;
  const std::uint32_t granted_receives = has_receives ? granted.max_receive_work_requests : 0;
  // The granted capacities may exceed the requested ones. They are used if the completion queue has
  // enough room. A hub does not use them, because the program chooses the capacity of the hub's
  // completion queue according to the requested capacities of all channels.
  const bool is_as_granted =
      !member_ && std::uint64_t{granted.max_send_work_requests} + granted_receives <=
                      connection_.queue().capacity();
  if (member_) {
    // If the hub cannot attach the channel, for example because the hub's completion queue has no
    // room for the channel's requests, the queue pair is destroyed.
    const auto attached =
        settings.hub->attach(*member_.get(), connection_.native()->qp_num, connection_.port(),
                             std::uint64_t{asked_sends} + asked_receives);
    if (!attached.has_value()) {
      connection_.drop_queue_pair();
      return attached.assume_error();
    }
  }
  sends_.set_capacity(is_as_granted ? granted.max_send_work_requests : asked_sends);
  receives_.set_capacity(is_as_granted ? granted_receives : asked_receives);
  sends_.set_queue_pair(connection_.local().number.value());
  connection_.begin();
  known_ = completed();
  if (has_receives)
    receives_.open();
  else
    receives_.empty_queue();
  return success();
}

/// Completes a handshake. If it succeeded, the channel accepts sends from now on; if it failed, the
/// channel is broken.
result<void> channel_core::settle(const result<void>& connected) noexcept {
  if (!connected.has_value()) {
    end_connection(connected.assume_error());
    return connected.assume_error();
  }
  sends_.open();
  return success();
}

result<void> channel_core::connect(const endpoint& remote) noexcept {
  VERBSPP_TRYV(connection_.check_prepared());
  // If the endpoint is from an earlier connection, it is refused, and the channel stays unchanged.
  VERBSPP_TRYV(connection_.check_newer(remote));
  return settle(connection_.connect(remote));
}

result<void> channel_core::connect(const managed_attributes& by) noexcept {
  VERBSPP_TRYV(connection_.check_prepared());
  return settle(connection_.connect(by));
}

void channel_core::fail(const error& root, bool is_certain, std::optional<wait_end> by) noexcept {
  sends_.close();
  receives_.close();
  connection_.fail(root, is_certain, by);
}

void channel_core::collect_until(const wait_limit& limit) noexcept {
  for (unsigned round = 1; !is_idle(); ++round) {
    collect();
    if (round % 64 != 0) continue;
    if (limit.has_passed()) return;
    sched_yield();
  }
}

void channel_core::collect_tail() noexcept {
  collect_until(time_to_flush);
  if (!is_idle()) destroy_queue_pair();
}

void channel_core::collect_broken() noexcept {
  if (connection_.failure()) collect_tail();
}

void channel_core::break_off(const error& root, std::optional<wait_end> by) noexcept {
  fail(root, true, by);
  connection_.stop();
  collect_tail();
}

void channel_core::end_connection(const error& root) noexcept {
  if (state() == channel_state::closed) return;
  break_off(root);
  destroy_queue_pair();
}

void channel_core::destroy_queue_pair() noexcept {
  const bool had_one = connection_.has_queue_pair();
  if (had_one) {
    if (leases_) leases_->before_destruction();
    // Some devices drop the completions of a queue pair when it is destroyed, but the hub needs all
    // of them.
    if (member_) member_->hub->take_all(connection_.stopped_at());
    const int errnum = connection_.destroy_queue_pair();
    // If the queue pair could not be destroyed, the device may still access the memory.
    guard_.set_lost(errnum != 0);
    if (guard_.is_lost()) need_care_to_collect();
    if (leases_) leases_->after_destruction(errnum);
  }
  if (member_) {
    static_cast<void>(take_shared_messages());
    if (had_one) member_->hub->detach(*member_.get(), !guard_.is_lost());
    collect();
  }
  // Processes the completions that the device has already reported. The remaining requests are
  // flushed below.
  for (std::uint32_t before = ~0U; !is_idle() && before != outstanding();) {
    before = outstanding();
    collect();
  }
  while (sends_.outstanding() != 0)
    fail_send(sends_.completed(), work_operation::send, IBV_WC_WR_FLUSH_ERR, 0);
  receives_.for_each_posted(
      [this](receive_slot& slot) { fail_receive(slot, IBV_WC_WR_FLUSH_ERR, 0); });
  inboxes_.flush([this](inbox_state& inbox) { fail_receive(inbox, IBV_WC_WR_FLUSH_ERR, 0); });
  receives_.empty_queue();
  // The hub has dropped the news of the channel, and no completion reports the requests that were
  // flushed here.
  if (member_ && member_->hub && !polls_.is_empty()) member_->hub->report(id_);
}

result<endpoint> channel_core::renew(const wait_limit& limit) noexcept {
  // Renewing a channel does not shut its socket down, so that the next connection is tied to the
  // socket, too.
  tied_socket socket = std::move(connection_.socket());
  const result<void> closed = close(limit);
  connection_.socket() = std::move(socket);
  // All waits for the closed connection end now. Otherwise, a coroutine that awaits a message would
  // get one of the next connection.
  ++callers_;
  run_continuations();
  const result<endpoint> made =
      closed.has_value() ? prepare_next() : result<endpoint>(closed.assume_error());
  end_caller();
  return made;
}

result<endpoint> channel_core::prepare_next() noexcept {
  if (is_orphan_)
    return error(error_kind::not_connected, "renew a channel",
                 "the channel was destroyed by a function or coroutine that it called");
  if (state() != channel_state::closed) return connection_.local();
  // A socket that is hung up would end the next connection as well.
  if (connection_.watched().number == connection_.socket().descriptor() &&
      has_ended(connection_.watched()))
    tie({});
  VERBSPP_TRYV(prepare());
  return connection_.local();
}

result<void> channel_core::close(const wait_limit& limit) noexcept {
  if (state() == channel_state::closed && !connection_.has_queue_pair()) return success();
  fail(error(error_kind::not_connected, "close a channel", "the channel was closed"), true);
  connection_.stop();
  collect_until(limit);
  destroy_queue_pair();
  connection_.set_state(channel_state::closed);
  connection_.socket().tell_end();
  tie({});
  if (guard_.is_lost())
    return error::from_errno(connection_.destroy_errnum(), "ibv_destroy_qp",
                             "the device did not destroy the queue pair, and may still access the "
                             "memory of its requests: memory that they owned or shared is never "
                             "freed; do not free other memory of the requests");
  return success();
}

void channel_core::abandon() noexcept {
  static_cast<void>(close(time_to_flush));
  // `close` does not notify the peer if the channel was closed before, for example to be renewed.
  connection_.socket().tell_end();
  // If the queue pair still exists, tries once more to destroy it, and reports a failure.
  connection_.drop_queue_pair();
  is_orphan_ = true;
  suspect_results();
  leave_hub();
  ++callers_;
  while (continuation* const left = polls_.take_any()) left->call();
  end_caller();
}

void channel_core::go_if_unused() noexcept {
  if (handles_ != 0) return;
  if (is_orphan_) {
    if (callers_ == 0) delete this;
  } else if (!connection_.failure()) {
    sends_.forget_earlier();
    sends_.set_suspect(false);
  }
}

}  // namespace verbspp::detail
