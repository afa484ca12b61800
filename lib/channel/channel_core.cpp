// SPDX-License-Identifier: Apache-2.0
#include "channel/hub_state.hpp"
#include "channel/lease_book.hpp"
#include "channel/waiting.hpp"
#include "qp/addressing.hpp"
#include <verbspp/channel/detail/channel_core.hpp>
#include <verbspp/memory/detail/watched_memory.hpp>
#include <verbspp/queue/completion_queue_with.hpp>

#include <sched.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <new>
#include <utility>

namespace verbspp::detail {

namespace {

/// How long a device has for giving back what is outstanding after ERR. One that works takes
/// microseconds; of one that doesn't, the queue pair is destroyed.
constexpr auto time_to_flush = std::chrono::milliseconds(50);

constexpr const char* waiting = "wait on a channel";
constexpr const char* dropping = "drop of a handle whose request was on its way";

std::size_t ended_message(const error& e, std::span<char> buffer) noexcept {
  const bool was_stopped = e == error_kind::cancelled;
  const auto facts = error_access::facts(e);
  const int length = std::snprintf(
      buffer.data(), buffer.size(),
      "%s: %s, with %" PRIu64 " requests of the send queue and %" PRIu64
      " receives outstanding; they were given up, and the connection with them: renew it%s",
      e.operation(), was_stopped ? "a stop was requested" : "the time limit has passed", facts[0],
      facts[1], was_stopped ? "" : ", or give more time");
  return length < 0 ? 0 : static_cast<std::size_t>(length);
}

constexpr error_source ended_by_limit{
    [](const error& e, std::span<char> buffer) noexcept { return ended_message(e, buffer); },
    [](const error& e) noexcept { return e == error_kind::cancelled ? ECANCELED : ETIMEDOUT; }};

error ended_by_descriptor() noexcept {
  return {error_kind::cancelled, waiting,
          "the descriptor that the channel watches is readable, or was closed at its other end: "
          "usually the peer is gone"};
}

error of_channel(error_kind kind, const char* operation, const char* hint) noexcept {
  return {kind, operation, hint};
}

}  // namespace

channel_core::channel_core(const channel_settings& settings) noexcept
    : type_(settings.type),
      settings_(settings),
      // Zero would be the owner of nothing.
      owner_(std::max(random_number(), 1U)) {}

channel_core::~channel_core() {
  delete leases_;
  leave_hub();
}

channel_core& channel_core::empty() noexcept {
  thread_local channel_core none{channel_settings()};
  none.state_ = channel_state::empty;
  return none;
}

result<channel_core*> channel_core::create(const channel_settings& settings) noexcept {
  auto* const made = new (std::nothrow) channel_core(settings);
  if (made == nullptr) return error::from_errno(ENOMEM, "build a channel");
  auto ready = made->prepare();
  if (ready.has_value()) ready = made->make_slots();
  if (!ready.has_value()) {
    delete made;
    return ready.assume_error();
  }
  return made;
}

/// A queue for all that can be outstanding at once, so that it can't overrun.
result<void> channel_core::make_queue() noexcept {
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
result<void> channel_core::enter_hub() noexcept {
  if (member_ != nullptr) return success();
  constexpr const char* building = "build a channel of a hub";
  queue_pair_settings& asked = settings_.queue_pair;
  hub_state& hub = *settings_.hub.get();
  if (hub.domain() != *asked.domain)
    return of_channel(error_kind::invalid_input, building,
                      "the hub is of another protection domain than the channel");
  if (settings_.waiting.sleeps() && !hub.waiting().sleeps())
    return of_channel(error_kind::invalid_input, building,
                      "the hub spins, so none of its channels can sleep: create it with another "
                      "hub_options::waiting");
  if (asked.receives)
    return of_channel(error_kind::invalid_input, building,
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
result<void> channel_core::attach_to_hub() noexcept {
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

void channel_core::leave_hub() noexcept {
  if (member_ == nullptr || !member_->hub) return;
  member_->hub->leave(*member_);
  member_->hub = {};
}

void channel_core::collect_with_care() noexcept {
  if (member_ != nullptr) return collect_from_hub();
  ibv_wc completions[16];
  const int filled = [&] {
    const one_thread only(users_);
    return poll_native(completions);
  }();
  take_others(completions, filled);
}

void channel_core::collect_from_hub() noexcept {
  const int failed = member_->hub ? member_->hub->look() : 0;
  {
    const one_thread only(users_);
    member_->take_each([this](const ibv_wc& completion) {
      if (is_shared_receive(completion.wr_id))
        take_shared_failure(completion);
      else
        take_completion(completion);
    });
  }
  if (failed < 0) lose_queue(failed);
}

/// A shared receive has failed, and the connection with it.
void channel_core::take_shared_failure(const ibv_wc& completion) noexcept {
  if (!queue_pair_) return;
  note_failure(work_error(static_cast<work_status>(number_of(completion.status)),
                          completion.vendor_err, completion.wr_id, local_.number.value())
                   .with_operation(work_operation::receive),
               nullptr);
}

channel_id channel_core::id() const noexcept {
  return member_ != nullptr ? member_->id : channel_id();
}

result<void> channel_core::prepare() noexcept {
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

result<void> channel_core::make_slots() noexcept {
  // One for each receive that can be outstanding, and some for results that nobody took yet.
  slot_count_ = std::min(receives_ + std::clamp(receives_, 16U, 1024U), no_slot);
  slots_owner_ = owned<receive_slot[]>(new (std::nothrow) receive_slot[slot_count_]);
  slots_ = slots_owner_.get();
  // As many again for a batch, which is filled while all others may be on their way.
  const std::size_t records = 2 * std::bit_ceil(std::size_t{std::max(sends_, 1U)});
  records_owner_ = owned<send_record[]>(new (std::nothrow) send_record[records]);
  records_ = records_owner_.get();
  record_mask_ = records - 1;
  if (slots_ == nullptr || records_ == nullptr) return error::from_errno(ENOMEM, "build a channel");
  for (std::uint32_t i = 0; i < slot_count_; ++i) {
    slots_[i].id = one_use + i;
    slots_[i].next = i + 1 < slot_count_ ? i + 1 : no_slot;
    slots_[i].is = receive_slot::state::free;
  }
  free_ = 0;
  watches_ = device_memory_is_watched();
  if (!watches_) return success();
  targets_per_request_ =
      std::max({capacities_.max_send_elements, capacities_.max_receive_elements, 1U});
  targets_ =
      owned<target[]>(new (std::nothrow) target[(slot_count_ + records) * targets_per_request_]{});
  if (!targets_) return error::from_errno(ENOMEM, "build a channel");
  return success();
}

/// Handles that exist may ask what came of requests of the connections before.
result<void> channel_core::make_lost() noexcept {
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

void channel_core::note_endpoint() noexcept {
  local_ = queue_pair_->local;
  local_.owner = owner_;
  local_.generation = generation_;
}

bool channel_core::is_idle() const noexcept {
  return sends_outstanding() == 0 && receives_outstanding() == 0;
}

result<void> channel_core::check_prepared() const noexcept {
  if (state_ == channel_state::prepared) return success();
  return of_channel(
      state_ == channel_state::connected ? error_kind::busy : error_kind::not_connected,
      "handshake of a channel",
      state_ == channel_state::connected
          ? "the channel is connected already: renew it before another handshake"
          : "the channel is not prepared: renew it first, and give the peer its new "
            "endpoint");
}

/// What the queue pair's handshake has made of the channel.
result<void> channel_core::settle(const result<void>& connected) noexcept {
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

result<void> channel_core::connect(const endpoint& remote) noexcept {
  VERBSPP_TRYV(check_prepared());
  // An endpoint of yesterday leaves the channel as it is.
  if (last_peer_) VERBSPP_TRYV(check_newer(remote, *last_peer_));
  VERBSPP_TRYV(settle(detail::connect(*queue_pair_, remote)));
  last_peer_ = remote;
  return success();
}

result<void> channel_core::connect(const managed_attributes& by) noexcept {
  VERBSPP_TRYV(check_prepared());
  return settle(detail::connect(*queue_pair_, by));
}

void channel_core::note_root(const error& root, bool is_certain) noexcept {
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

void channel_core::stop_device() noexcept {
  if (native_ == nullptr) return;
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_ERR;
  // Where this fails, the queue pair will be destroyed.
  static_cast<void>(ibv_modify_qp(native_, &attributes, IBV_QP_STATE));
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

/// What broke the channel is found, and so is the rest of what was outstanding.
void channel_core::collect_broken() noexcept {
  if (failure_) collect_tail();
}

void channel_core::break_off(const error& root) noexcept {
  note_root(root, true);
  stop_device();
  collect_tail();
}

void channel_core::end_connection(const error& root) noexcept {
  if (state_ == channel_state::closed) return;
  break_off(root);
  destroy_queue_pair();
}

void channel_core::destroy_queue_pair() noexcept {
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

result<void> channel_core::renew(const wait_limit& limit) noexcept {
  VERBSPP_TRYV(close(limit));
  return prepare();
}

result<void> channel_core::close(const wait_limit& limit) noexcept {
  if (state_ == channel_state::closed && !queue_pair_) return success();
  note_root(of_channel(error_kind::not_connected, "close of a channel", "the channel was closed"),
            true);
  stop_device();
  collect_until(limit);
  destroy_queue_pair();
  state_ = channel_state::closed;
  if (lost_memory_)
    return of_channel(error_kind::driver, "ibv_destroy_qp",
                      "the device did not let go of the queue pair: memory of its work is not "
                      "freed");
  return success();
}

void channel_core::abandon() noexcept {
  static_cast<void>(close(time_to_flush));
  // Reports it, if that is still there.
  queue_pair_.reset();
  is_orphan_ = true;
  need_attention(true);
  leave_hub();
  if (handles_ == 0) go_if_unused();
}

/// There is no handle any more.
void channel_core::go_if_unused() noexcept {
  if (is_orphan_) {
    delete this;
  } else if (!failure_) {
    lost_->earlier = {};
    need_attention(false);
  }
}

error channel_core::reason_of(wait_end end, const wait_limit& until) noexcept {
  if (end == wait_end::file_descriptor) return ended_by_descriptor();
  if (end == wait_end::limit) return ended_by(until);
  // A port may have come back meanwhile.
  return failure_told_to(listener_).value_or(
      of_channel(error_kind::driver, waiting, "a port was down for a moment"));
}

/// What ended a wait ends the connection. \returns why
error channel_core::give_up(wait_end end, const error& why) noexcept {
  break_off(why);
  failure_->note_end(end);
  return why;
}

/// The device may know why everything was flushed.
std::optional<error> channel_core::reason_of_flush() noexcept {
  if (!failure_ || root_is_certain_ || !queue_pair_) return std::nullopt;
  return failure_told_to(listener_, time_of_events);
}

result<wait_end> channel_core::wait_as_told(const looking& look, const wait_limit& until,
                                            int file_descriptor) noexcept {
  return wait_looking({.mode = settings_.waiting,
                       .queue = queue(),
                       .listener = listener_,
                       .until = until,
                       .file_descriptor = file_descriptor},
                      look);
}

template <class Done>
std::optional<error> channel_core::wait_until(Done done, const wait_limit* limit) noexcept {
  collect();
  if (done()) {
    collect_broken();
    return std::nullopt;
  }
  const wait_limit until = limit != nullptr ? *limit : wait_limit(settings_.default_limit);
  const auto look = [&] {
    collect();
    return done() || failure_ ? sight::enough : sight::nothing;
  };
  const auto ended = wait_as_told(look, until, watched_descriptor_);
  if (!ended.has_value()) {
    break_off(ended.assume_error());
    return ended.assume_error();
  }
  const wait_end end = ended.assume_value();
  if (end != wait_end::completions) return give_up(end, reason_of(end, until));
  if (queue_is_lost_) return failure_->root();
  if (const auto why = reason_of_flush()) return give_up(wait_end::async_event, *why);
  collect_broken();
  return std::nullopt;
}

result<wait_end> channel_core::wait_for_message(const looking& look,
                                                const wait_limit& limit) noexcept {
  VERBSPP_TRY(end, wait_as_told(look, limit, watched_descriptor_));
  if (end == wait_end::completions || end == wait_end::limit) return end;
  static_cast<void>(give_up(end, reason_of(end, limit)));
  return wait_end::completions;
}

result<wait_end> channel_core::wait_for_news(const wait_limit& limit,
                                             int file_descriptor) noexcept {
  if (state_ == channel_state::empty) return refusal_of_empty(waiting);
  const std::uint64_t sends_before = completed_;
  const std::uint32_t receives_before = receives_outstanding();
  const auto look = [&] {
    collect();
    const bool has_news =
        failure_ || completed_ != sends_before || receives_outstanding() != receives_before;
    return has_news ? sight::enough : sight::nothing;
  };
  VERBSPP_TRY(end, wait_as_told(look, limit, file_descriptor));
  if (end != wait_end::async_event) return end;
  static_cast<void>(give_up(end, reason_of(end, limit)));
  return wait_end::completions;
}

result<bool> channel_core::ask_to_be_woken() noexcept {
  if (state_ == channel_state::empty) return refusal_of_empty(waiting);
  if (!settings_.waiting.sleeps())
    return of_channel(error_kind::not_supported, waiting,
                      "this channel only spins, and has no descriptor: build it with "
                      "waiting(wait_mode::sleep())");
  const std::uint64_t sends_before = completed_;
  const std::uint32_t receives_before = receives_outstanding();
  completion_queue_state& state = *completion_queue_access::state_of(queue());
  VERBSPP_TRYV(state.ask_to_be_woken(notify_for::every_completion));
  collect();
  if (listener_.has_heard() && !failure_)
    static_cast<void>(
        give_up(wait_end::async_event, reason_of(wait_end::async_event, wait_limit::forever())));
  return failure_ || completed_ != sends_before || receives_outstanding() != receives_before;
}

void channel_core::stay_awake() noexcept {
  if (settings_.waiting.sleeps()) completion_queue_access::state_of(queue())->stay_awake();
}

std::optional<error> channel_core::wait_for(request one, const wait_limit* limit) noexcept {
  return wait_until([&] { return is_done(one); }, limit);
}

transport_result<completed_work> channel_core::take_with_care(request one,
                                                              const wait_limit* limit) noexcept {
  if (is_done(one)) collect_broken();
  const bool was_given_up = !is_done(one) && wait_for(one, limit).has_value();
  if (was_given_up) return take_with_attention(one, true);
  return take_result(one);
}

std::optional<error> channel_core::wait_for_all(const scope_state& scope) noexcept {
  if (has_finished(scope)) return std::nullopt;
  if (scope.is_stream) mark_end(scope);
  if (has_finished(scope)) return std::nullopt;
  return wait_until([&] { return has_finished(scope); }, scope.limit);
}

result<void> channel_core::wait_for_send_room(std::uint32_t wanted,
                                              const wait_limit* limit) noexcept {
  if (!may_send_) return refusal(waiting);
  const auto ended = wait_until([&] { return send_room() >= wanted; }, limit);
  if (ended) return *ended;
  if (!may_send_) return refusal(waiting);
  return success();
}

result<void> channel_core::wait_for_receive_room(const wait_limit* limit) noexcept {
  if (!may_receive_) return refusal(waiting);
  const auto ended = wait_until([&] { return receive_room_ != 0; }, limit);
  if (ended) return *ended;
  if (!may_receive_) return refusal(waiting);
  return success();
}

bool channel_core::find_send_room() noexcept {
  if (may_send_) collect();
  return next_send_ < send_end_;
}

void channel_core::open_stream(scope_state& stream) noexcept {
  stream.is_stream = true;
  for (const scope_state* outer = stream.outer; outer != nullptr; outer = outer->outer)
    if (outer->is_stream) return;
  note_signaled();
}

void channel_core::mark_end(const scope_state& stream) noexcept {
  if (signaled_end_ >= stream.sends_end || !may_send_) return;
  if (send_room() == 0 && !wait_for_send_room(1, stream.limit).has_value()) return;
  if (has_finished(stream)) return;
  // Where this fails, nothing will tell that those before it have finished, but the end of the
  // connection.
  request marker;
  if (const auto marked = post(marker_operation(), marker, nullptr); !marked.has_value())
    return break_off(marked.assume_error());
  note_signaled();
}

error channel_core::refusal(const char* operation) const noexcept {
  switch (state_) {
    case channel_state::broken:
      return error_access::of_broken_connection(failure_->root());
    case channel_state::closed:
      return of_channel(error_kind::not_connected, operation,
                        "the channel was closed: renew it, and shake hands anew");
    case channel_state::connected:
      return of_channel(error_kind::invalid_input, operation,
                        "this channel takes its receives from a shared receive queue: post them "
                        "there");
    case channel_state::prepared:
      if (operation == posting_receive)
        return of_channel(error_kind::invalid_input, operation,
                          "this channel takes its receives from a shared receive queue: post them "
                          "there");
      return of_channel(error_kind::not_connected, operation,
                        "the channel is not connected yet: give its endpoint to the peer, and "
                        "shake hands with the peer's");
    case channel_state::empty:
      break;
  }
  return refusal_of_empty(operation);
}

error channel_core::refusal_of_empty(const char* operation) noexcept {
  return of_channel(error_kind::not_connected, operation,
                    "there is no channel here: it was moved from, or never built");
}

error channel_core::no_room(const char* operation, bool is_send) const noexcept {
  if (is_send ? send_room() == 0 : receive_room_ == 0)
    return of_channel(error_kind::would_block, operation,
                      is_send ? "the send queue is full: wait for earlier work, or build the "
                                "channel with more max_send_work_requests"
                              : "the receive queue is full: wait for earlier receives, or build "
                                "the channel with more max_receive_work_requests");
  return of_channel(error_kind::resource_exhausted, operation,
                    "too many finished requests wait for their results to be taken: poll their "
                    "handles, or drop them");
}

error channel_core::not_carried(const char* operation) noexcept {
  return of_channel(error_kind::not_supported, operation,
                    "this channel is of transport UC, which carries sends and RDMA writes only");
}

error channel_core::posted_within_batch() noexcept {
  return of_channel(error_kind::busy, "ibv_post_send (batch)",
                    "something else was posted to the channel while the batch was filled: post it "
                    "before or behind");
}

error channel_core::not_extended(const char* operation) noexcept {
  return of_channel(error_kind::not_supported, operation,
                    "this operation needs the extended posting interface: build the channel with "
                    "extended_posting()");
}

error channel_core::ended_before(const wait_limit& limit) noexcept {
  return limit.failure(waiting, "the limit had passed before anything was posted");
}

error channel_core::ended_by(const wait_limit& limit) const noexcept {
  return error_access::made(ended_by_limit, waiting, nullptr,
                            {sends_outstanding(), receives_outstanding(), 0},
                            limit.failure(waiting).kind());
}

error channel_core::refused_on_uc(const char* operation, const error& cause) const noexcept {
  return may_send_ ? cause : refusal(operation);
}

error channel_core::no_send(const char* operation) const noexcept {
  return may_send_ ? no_room(operation, true) : refusal(operation);
}

/// The scope posts on, but not where it was.
void channel_core::begin_run(scope_state& scope, std::uint64_t number) noexcept {
  if (scope.run_first != scope.sends_end && scope.sends_end > completed_) {
    send_record& last = record_of(scope.sends_end - 1);
    last.scope = &scope;
    last.run_first = scope.run_first;
    runs_end_ = scope.sends_end;
  }
  scope.run_first = number;
}

/// Of a request that is on its way, so that its scope has not ended.
scope_state* channel_core::scope_of_send(std::uint64_t number) const noexcept {
  for (scope_state* scope = innermost_; scope != nullptr; scope = scope->outer)
    if (number >= scope->run_first && number < scope->sends_end) return scope;
  for (std::uint64_t last = number; last < runs_end_; ++last) {
    const send_record& noted = records_[last & record_mask_];
    if (noted.number == last && noted.scope != nullptr)
      return noted.run_first <= number ? noted.scope : nullptr;
  }
  return nullptr;
}

/// What polling has given, if it isn't just the success of one request of the send queue.
void channel_core::take_others(const ibv_wc* completions, int filled) noexcept {
  if (filled < 0) return lose_queue(filled);
  const one_thread only(users_);
  const ibv_wc* const end = completions + filled;
  const ibv_wc* next = completions;
  while (next != end && next->status == IBV_WC_SUCCESS && !is_receive(next->wr_id)) ++next;
  // Of requests of the send queue that have succeeded, the last one tells of all before it.
  if (next != completions) take_sends_until(next[-1].wr_id);
  for (; next != end; ++next) take_completion(*next);
}

void channel_core::take_failure(const ibv_wc& completion) noexcept {
  const std::uint32_t status = number_of(completion.status);
  if (static_cast<std::int64_t>(completion.wr_id) < 0) {
    receive_slot* const slot = slot_of(completion.wr_id);
    if (slot == nullptr) return;
    ++receive_room_;
    return fail_receive(*slot, status, completion.vendor_err);
  }
  const std::uint64_t number = completion.wr_id & below_operation;
  if (number < completed_) return;
  // Those before it had no failure of their own.
  complete_sends(number);
  fail_send(completed_, static_cast<work_operation>(completion.wr_id >> operation_at), status,
            completion.vendor_err);
}

void channel_core::fail_send(std::uint64_t number, work_operation operation, std::uint32_t status,
                             std::uint32_t vendor_code) noexcept {
  lost_->first = std::min(lost_->first, number);
  if (status != IBV_WC_WR_FLUSH_ERR && lost_->root == lost_sends::none) {
    lost_->root = number;
    lost_->status = status;
    lost_->vendor_code = vendor_code;
  }
  note_failure(
      work_error(static_cast<work_status>(status), vendor_code, number, local_.number.value())
          .with_operation(operation),
      scope_of_send(number));
  complete_sends(number + 1);
}

void channel_core::fail_receive(receive_slot& slot, std::uint32_t status,
                                std::uint32_t vendor_code) noexcept {
  slot.status = status;
  slot.vendor_code = vendor_code;
  note_failure(
      work_error(static_cast<work_status>(status), vendor_code, slot.id, local_.number.value())
          .with_operation(work_operation::receive),
      slot.scope);
  finish(slot);
}

void channel_core::note_failure(const work_error& failure, scope_state* scope) noexcept {
  const bool was_flushed = failure.status() == work_status::flushed;
  const bool is_first = !failure_;
  note_root(failure, !was_flushed);
  need_attention(true);
  if (is_first) stop_device();
  if (was_flushed) failure_->count_flushed();
  if (scope != nullptr) ++(was_flushed ? scope->flushed : scope->failed);
}

std::optional<work_error> channel_core::failure_of(request one) const noexcept {
  if (one.operation == work_operation::receive) {
    if (one.slot->status == IBV_WC_SUCCESS) return std::nullopt;
    return work_error(static_cast<work_status>(one.slot->status), one.slot->vendor_code,
                      one.slot->id, local_.number.value())
        .with_operation(one.operation);
  }
  for (const lost_sends* lost = lost_.get(); lost != nullptr; lost = lost->earlier.get()) {
    if (one.number < lost->first || one.number >= lost->end) continue;
    const bool is_root = one.number == lost->root;
    return work_error(is_root ? static_cast<work_status>(lost->status) : work_status::flushed,
                      is_root ? lost->vendor_code : 0, one.number, lost->queue_pair)
        .with_operation(one.operation);
  }
  return std::nullopt;
}

scope_state* channel_core::open_scope_of(request one) const noexcept {
  if (one.scope == 0) return nullptr;
  scope_state* scope = innermost_;
  while (scope != nullptr && scope->serial != one.scope) scope = scope->outer;
  return scope;
}

transport_result<completed_work> channel_core::take_with_attention(request one,
                                                                   bool was_given_up) noexcept {
  scope_state* const scope = open_scope_of(one);
  const std::optional<work_error> failure = failure_of(one);
  std::optional<completed_work> done;
  if (one.operation == work_operation::receive) {
    done.emplace(one.slot->opcode, one.slot->byte_count, one.slot->flags, one.slot->immediate);
    release(*one.slot);
  } else {
    done.emplace(number_of(one.operation), one.bytes, 0U, 0U);
  }
  if (scope != nullptr) {
    ++scope->taken;
    if (failure) --(failure->status() == work_status::flushed ? scope->flushed : scope->failed);
  }
  const bool was_orphan = is_orphan_;
  const std::optional<error> root =
      was_given_up && failure_ ? std::optional(failure_->root()) : std::nullopt;
  drop_handle();
  if (one.scope != 0 && scope == nullptr)
    return of_channel(error_kind::invalid_input, "result of a request",
                      "the scope that it was posted in has ended, and reported how it went");
  if (!failure) return *done;
  // The limit of the wait has ended the connection; the request itself was flushed.
  if (root) return *root;
  if (was_orphan)
    return of_channel(error_kind::not_connected, "result of a request",
                      "its channel was destroyed before the request had finished");
  return *failure;
}

void channel_core::leave_rarely(request one, bool must_wait) noexcept {
  const scope_state* const scope = open_scope_of(one);
  const bool is_receive = one.operation == work_operation::receive;
  if (is_done(one)) {
    if (is_receive) release(*one.slot);
  } else if ((scope != nullptr || one.keeps) && !must_wait) {
    // The scope sees to it, or nobody's memory depends on it.
    if (is_receive) one.slot->notes |= receive_slot::unheld;
  } else {
    const auto ended = wait_for(one, scope != nullptr ? scope->limit : nullptr);
    if (ended && failure_ && error_access::is_from(ended_by_limit, *ended))
      failure_->replace_root(error_access::made(ended_by_limit, dropping, nullptr,
                                                error_access::facts(*ended), ended->kind()));
    if (is_receive) release(*one.slot);
  }
  drop_handle();
}

void channel_core::close_outer_scope(scope_state& scope) noexcept {
  for (scope_state** inner = &innermost_; *inner != nullptr; inner = &(*inner)->outer)
    if (*inner == &scope) {
      *inner = scope.outer;
      return;
    }
}

void channel_core::give_back_memory(receive_slot& slot) noexcept {
  if ((slot.notes & receive_slot::watched) != 0) show(targets_of(slot));
  if ((slot.notes & receive_slot::keeping) != 0 && !lost_memory_) slot.memory.let_go();
  slot.notes &= static_cast<std::uint8_t>(~(receive_slot::keeping | receive_slot::watched));
}

/// As `complete_sends`, where they have memory, or something needs attention.
void channel_core::complete_with_care(std::uint64_t end) noexcept {
  for (std::uint64_t number = completed_; number != end; ++number) {
    send_record& noted = records_[number & record_mask_];
    if (noted.number != number) continue;
    if (noted.is_watched) {
      --rarities_;
      show(targets_of(number));
    }
    if (noted.is_guarded) {
      --rarities_;
      unguard(targets_of(number));
    }
    if (noted.memory.keeper == nullptr) continue;
    --rarities_;
    if (!lost_memory_) noted.memory.let_go();
  }
  completed_ = end;
  if (!needs_attention_) succeeded_ = end;
  send_end_ = end + usable_sends_;
}

void channel_core::need_attention(bool is_needed) noexcept {
  if (needs_attention_ == is_needed) return;
  needs_attention_ = is_needed;
  succeeded_ = is_needed ? 0 : completed_;
  if (is_needed)
    ++rarities_;
  else
    --rarities_;
}

channel_core::target* channel_core::targets_of(const receive_slot& slot) const noexcept {
  const auto index = static_cast<std::size_t>(slot.id) & no_slot;
  return targets_.get() + index * targets_per_request_;
}

channel_core::target* channel_core::targets_of(std::uint64_t number) const noexcept {
  return targets_.get() + (slot_count_ + (number & record_mask_)) * targets_per_request_;
}

void channel_core::remember(target* first, const native_elements& elements) const noexcept {
  ibv_sge single;
  const ibv_sge* const range = elements.at(single);
  std::uint32_t count = 0;
  for (std::size_t i = 0; i < elements.size && count < targets_per_request_; ++i)
    if (range[i].length != 0) first[count++] = {range[i].addr, range[i].length};
  if (count < targets_per_request_) first[count] = {};
}

bool channel_core::hide(const target* first) const noexcept {
  for (std::uint32_t i = 0; i < targets_per_request_ && first[i].length != 0; ++i)
    device_takes(first[i].address, first[i].length);
  return first->length != 0;
}

void channel_core::show(const target* first) const noexcept {
  for (std::uint32_t i = 0; i < targets_per_request_ && first[i].length != 0; ++i)
    device_returns(first[i].address, first[i].length);
}

void channel_core::watch(receive_slot& slot, const native_elements& elements) noexcept {
  remember(targets_of(slot), elements);
  if (hide(targets_of(slot))) slot.notes |= receive_slot::watched;
}

void channel_core::watch(std::uint64_t number, const native_elements& elements) noexcept {
  remember(number, elements);
  hide(number);
}

void channel_core::remember(std::uint64_t number, const native_elements& elements) noexcept {
  // A batch longer than the queue is refused later.
  if (number - completed_ <= record_mask_) remember(targets_of(number), elements);
}

void channel_core::remember_batch(std::uint64_t first, const ibv_send_wr* requests,
                                  std::uint32_t count) noexcept {
  for (std::uint32_t i = 0; i < count; ++i) {
    const ibv_send_wr& posted = requests[i];
    native_elements elements;
    if (posted.opcode == IBV_WR_RDMA_READ || posted.opcode == IBV_WR_ATOMIC_CMP_AND_SWP ||
        posted.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
      elements.range = posted.sg_list;
      elements.size = static_cast<std::size_t>(posted.num_sge);
    }
    remember(first + i, elements);
  }
}

void channel_core::hide(std::uint64_t number) noexcept {
  if (!hide(targets_of(number))) return;
  record_of(number).is_watched = true;
  ++rarities_;
}

void channel_core::guard(std::uint64_t number, const native_elements& sources) noexcept {
  target* const first = targets_of(number);
  remember(first, sources);
  for (std::uint32_t i = 0; i < targets_per_request_ && first[i].length != 0; ++i)
    device_reads(first[i].address, first[i].length);
  record_of(number).is_guarded = true;
  ++rarities_;
}

void channel_core::unguard(const target* first) const noexcept {
  for (std::uint32_t i = 0; i < targets_per_request_ && first[i].length != 0; ++i)
    device_has_read(first[i].address, first[i].length);
}

void channel_core::note_invalidated(std::uint32_t rkey) noexcept {
  if (leases_ != nullptr) leases_->note_invalidated(rkey);
}

void channel_core::hide_batch(std::uint64_t first, std::uint32_t count) noexcept {
  for (std::uint32_t i = 0; i < count; ++i) hide(first + i);
}

void channel_core::lose_queue(int returned) noexcept {
  if (std::exchange(queue_is_lost_, true)) return;
  const auto told =
      queue_pair_ ? failure_told_to(listener_, time_of_events) : std::optional<error>();
  const bool is_consequence = root_is_certain_;
  note_root(told.value_or(poll_failure(returned)), true);
  if (told && !is_consequence) failure_->note_end(wait_end::async_event);
  destroy_queue_pair();
}

}  // namespace verbspp::detail
