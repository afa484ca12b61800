// SPDX-License-Identifier: Apache-2.0
#include "channel/hub_state.hpp"
#include "channel/lease_book.hpp"
#include "channel/waiting.hpp"
#include "qp/addressing.hpp"
#include <verbspp/channel/detail/channel_connection.hpp>
#include <verbspp/queue/completion_queue_with.hpp>

#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <new>
#include <utility>

namespace verbspp::detail {

namespace {

/// How long a device has for giving back what is outstanding after ERR. One that works takes
/// microseconds; of one that doesn't, the queue pair is destroyed.
constexpr auto time_to_flush = std::chrono::milliseconds(50);

}  // namespace

channel_connection::channel_connection(const channel_settings& settings) noexcept
    : type_(settings.type),
      settings_(settings),
      // Zero would be the owner of nothing.
      owner_(std::max(random_number(), 1U)) {}

channel_connection::~channel_connection() {
  delete leases_;
  leave_hub();
}

/// A queue for all that can be outstanding at once, so that it can't overrun.
result<void> channel_connection::make_queue() noexcept {
  queue_pair_settings& asked = settings_.queue_pair;
  const std::size_t capacity = std::size_t{asked.max_send_work_requests.value()} +
                               (asked.receives ? 0 : asked.max_receive_work_requests.value());
  const context& device = asked.domain->context();
  const std::size_t wanted = std::max<std::size_t>(capacity, 1);
  VERBSPP_TRY(queue,
              settings_.waiting.sleeps()
                  ? result<completion_queue>(waitable_completion_queue::create(device, wanted))
                  : completion_queue::create(device, wanted));
  native_queue_ = queue.native_handle();
  asked.send_queue = queue;
  asked.receive_queue = queue;
  queue_is_lost_ = false;
  return success();
}

/// The channel's completions are in the hub's queue, and its receives, if the hub has a pool, in
/// the hub's as well.
result<void> channel_connection::enter_hub() noexcept {
  if (member_ != nullptr) return success();
  constexpr const char* building = "build a channel of a hub";
  queue_pair_settings& asked = settings_.queue_pair;
  hub_state& hub = *settings_.hub.get();
  if (hub.domain() != *asked.domain)
    return error(error_kind::invalid_input, building,
                 "the hub is of another protection domain than the channel");
  if (settings_.waiting.sleeps() && !hub.waiting().sleeps())
    return error(error_kind::invalid_input, building,
                 "the hub spins, so none of its channels can sleep: create it with another "
                 "hub_options::waiting");
  if (asked.receives)
    return error(error_kind::invalid_input, building,
                 "a channel of a hub takes its receives from the hub's pool: create the hub "
                 "with one, instead of giving the channel a shared receive queue");
  owned<hub_member> made(new (std::nothrow) hub_member);
  if (!made) return error::from_errno(ENOMEM, building);
  VERBSPP_TRYV(hub.join(*made.get()));
  made->hub = settings_.hub;
  member_ = made.get();
  ++rarities_;
  member_owner_ = std::move(made);
  asked.send_queue = hub.queue();
  asked.receive_queue = hub.queue();
  asked.receives = hub.receives();
  native_queue_ = hub.queue().native_handle();
  return success();
}

/// The hub has room for what the queue pair may have outstanding, or the queue pair goes.
result<void> channel_connection::attach_to_hub() noexcept {
  const queue_pair_settings& asked = settings_.queue_pair;
  const std::uint32_t sends = asked.max_send_work_requests.value();
  const std::uint32_t receives = receives_ != 0 ? asked.max_receive_work_requests.value() : 0;
  const auto attached =
      settings_.hub->attach(*member_, native_->qp_num, queue_pair_->parameters.port.value(),
                            std::uint64_t{sends_} + receives_, std::uint64_t{sends} + receives);
  if (!attached.has_value()) {
    queue_pair_.reset();
    native_ = nullptr;
    extended_ = nullptr;
    receives_ = receive_room_;
    return attached.assume_error();
  }
  if (!attached.assume_value()) {
    sends_ = sends;
    receives_ = receives;
  }
  return success();
}

void channel_connection::leave_hub() noexcept {
  if (member_ == nullptr || !member_->hub) return;
  member_->hub->leave(*member_);
  member_->hub = {};
}

channel_id channel_connection::id() const noexcept {
  return member_ != nullptr ? member_->id : channel_id();
}

result<void> channel_connection::prepare() noexcept {
  if (settings_.hub)
    VERBSPP_TRYV(enter_hub());
  else if (native_queue_ == nullptr || queue_is_lost_)
    VERBSPP_TRYV(make_queue());
  VERBSPP_TRYV(make_lost());
  VERBSPP_TRY(made, create_prepared(type_, settings_.queue_pair));
  queue_pair_.emplace(std::move(made));
  native_ = queue_pair_->owner.native();
  extended_ = queue_pair_->owner.native_extended();
  capacities_ = queue_pair_->capacities;
  ++generation_;
  note_endpoint();
  // What was granted beyond what was asked for is used if the completion queue has room for it.
  const bool has_receives = !settings_.queue_pair.receives;
  sends_ = capacities_.max_send_work_requests;
  receives_ = has_receives ? capacities_.max_receive_work_requests : 0;
  if (member_ != nullptr) {
    VERBSPP_TRYV(attach_to_hub());
  } else if (queue().capacity() < std::size_t{sends_} + receives_) {
    sends_ = settings_.queue_pair.max_send_work_requests.value();
    if (has_receives) receives_ = settings_.queue_pair.max_receive_work_requests.value();
  }
  if (records_ != nullptr)
    sends_ = std::min(sends_, static_cast<std::uint32_t>((record_mask_ + 1) / 2));
  receive_room_ = receives_;
  lost_->queue_pair = local_.number.value();
  failure_.reset();
  root_is_certain_ = false;
  may_send_ = false;
  may_receive_ = has_receives;
  state_ = channel_state::prepared;
  listener_.listen(domain().context(), {.queue_pair = native_,
                                        .completion_queue = native_queue_,
                                        .port = queue_pair_->parameters.port.value()});
  return success();
}

/// Handles that exist may ask what came of requests of the connections before.
result<void> channel_connection::make_lost() noexcept {
  owned<lost_sends> made(new (std::nothrow) lost_sends);
  if (made.get() == nullptr) return error::from_errno(ENOMEM, "build a channel");
  if (handles_ != 0) {
    lost_->end = next_send_;
    made->earlier = std::move(lost_);
  } else {
    need_attention(false);
  }
  lost_ = std::move(made);
  return success();
}

void channel_connection::note_endpoint() noexcept {
  local_ = queue_pair_->local;
  local_.owner = owner_;
  local_.generation = generation_;
}

result<void> channel_connection::check_prepared() const noexcept {
  if (state_ == channel_state::prepared) return success();
  return error(state_ == channel_state::connected ? error_kind::busy : error_kind::not_connected,
               "handshake of a channel",
               state_ == channel_state::connected
                   ? "the channel is connected already: renew it before another handshake"
                   : "the channel is not prepared: renew it first, and give the peer its new "
                     "endpoint");
}

/// What the queue pair's handshake has made of the channel.
result<void> channel_connection::settle(const result<void>& connected) noexcept {
  if (!connected.has_value()) {
    break_off(connected.assume_error());
    destroy_queue_pair();
    return connected.assume_error();
  }
  note_endpoint();
  state_ = channel_state::connected;
  may_send_ = true;
  usable_sends_ = sends_;
  signaled_end_ = next_send_;
  send_end_ = completed_ + usable_sends_;
  return success();
}

result<void> channel_connection::connect(const endpoint& remote) noexcept {
  VERBSPP_TRYV(check_prepared());
  // An endpoint of yesterday leaves the channel as it is.
  if (last_peer_) VERBSPP_TRYV(check_newer(remote, *last_peer_));
  VERBSPP_TRYV(settle(detail::connect(*queue_pair_, remote)));
  last_peer_ = remote;
  peer_owner_ = remote.owner;
  return success();
}

result<void> channel_connection::connect(const managed_attributes& by) noexcept {
  VERBSPP_TRYV(check_prepared());
  VERBSPP_TRYV(settle(detail::connect(*queue_pair_, by)));
  peer_owner_ = 0;
  return success();
}

void channel_connection::note_root(const error& root, bool is_certain) noexcept {
  may_send_ = may_receive_ = false;
  usable_sends_ = 0;
  send_end_ = completed_;
  if (!failure_) {
    failure_.emplace(root);
    state_ = channel_state::broken;
  } else if (is_certain && !root_is_certain_) {
    failure_->replace_root(root);
  }
  root_is_certain_ = root_is_certain_ || is_certain;
}

void channel_connection::stop_device() noexcept {
  if (native_ == nullptr) return;
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_ERR;
  // Where this fails, the queue pair will be destroyed.
  static_cast<void>(ibv_modify_qp(native_, &attributes, IBV_QP_STATE));
}

void channel_connection::collect_until(const wait_limit& limit) noexcept {
  for (unsigned round = 1; !is_idle(); ++round) {
    collect();
    if (round % 64 != 0) continue;
    if (limit.has_passed()) return;
    sched_yield();
  }
}

void channel_connection::collect_tail() noexcept {
  collect_until(time_to_flush);
  if (!is_idle()) destroy_queue_pair();
}

/// What broke the channel is found, and so is the rest of what was outstanding.
void channel_connection::collect_broken() noexcept {
  if (failure_) collect_tail();
}

void channel_connection::break_off(const error& root) noexcept {
  note_root(root, true);
  stop_device();
  collect_tail();
}

void channel_connection::end_connection(const error& root) noexcept {
  if (state_ == channel_state::closed) return;
  break_off(root);
  destroy_queue_pair();
}

void channel_connection::destroy_queue_pair() noexcept {
  const bool had_one = queue_pair_.has_value();
  if (had_one) {
    listener_.stop();
    if (leases_ != nullptr) leases_->before_destruction();
    // With the queue pair some devices forget what it had completed, of which a hub counts on each.
    if (member_ != nullptr) member_->hub->take_all();
    const int errnum = errno_of(ibv_destroy_qp(queue_pair_->owner.native()));
    if (errnum == 0) {
      static_cast<void>(queue_pair_->owner.release());
      queue_pair_.reset();
      native_ = nullptr;
      extended_ = nullptr;
    }
    // Else it is tried again later, and the device may have the memory until then.
    lost_memory_ = errnum != 0;
    if (leases_ != nullptr) leases_->after_destruction(errnum);
  }
  if (member_ != nullptr) {
    if (had_one) member_->hub->detach(*member_, !lost_memory_);
    collect();
  }
  // What the device had told before counts; the rest it will never tell.
  for (std::uint32_t before = ~0U;
       !is_idle() && before != sends_outstanding() + receives_outstanding();) {
    before = sends_outstanding() + receives_outstanding();
    collect();
  }
  while (completed_ != next_send_)
    fail_send(completed_, work_operation::send, IBV_WC_WR_FLUSH_ERR, 0);
  for (std::uint32_t i = 0; i < slot_count_; ++i)
    if (slots_[i].is == receive_slot::state::posted) {
      if (lost_memory_) slots_[i].notes |= receive_slot::lost;
      fail_receive(slots_[i], IBV_WC_WR_FLUSH_ERR, 0);
    }
  receive_room_ = receives_;
}

result<void> channel_connection::renew(const wait_limit& limit) noexcept {
  VERBSPP_TRYV(close(limit));
  return prepare();
}

result<void> channel_connection::close(const wait_limit& limit) noexcept {
  if (state_ == channel_state::closed && !queue_pair_) return success();
  note_root(error(error_kind::not_connected, "close of a channel", "the channel was closed"), true);
  stop_device();
  collect_until(limit);
  destroy_queue_pair();
  state_ = channel_state::closed;
  if (lost_memory_)
    return error(error_kind::driver, "ibv_destroy_qp",
                 "the device did not let go of the queue pair: memory of its work is not "
                 "freed");
  return success();
}

void channel_connection::abandon() noexcept {
  static_cast<void>(close(time_to_flush));
  // Reports it, if that is still there.
  queue_pair_.reset();
  is_orphan_ = true;
  need_attention(true);
  leave_hub();
  if (handles_ == 0) go_if_unused();
}

void channel_connection::note_invalidated(std::uint32_t rkey) noexcept {
  if (leases_ != nullptr) leases_->note_invalidated(rkey);
}

void channel_connection::lose_queue(int returned) noexcept {
  if (std::exchange(queue_is_lost_, true)) return;
  const auto told =
      queue_pair_ ? failure_told_to(listener_, time_of_events) : std::optional<error>();
  const bool is_consequence = root_is_certain_;
  note_root(told.value_or(poll_failure(returned)), true);
  if (told && !is_consequence) failure_->note_end(wait_end::async_event);
  destroy_queue_pair();
}

}  // namespace verbspp::detail
