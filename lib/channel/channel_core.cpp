// SPDX-License-Identifier: Apache-2.0
#include "base/pause.hpp"
#include "qp/addressing.hpp"
#include <verbspp/base/destroy_failure.hpp>
#include <verbspp/channel/detail/channel_core.hpp>
#include <verbspp/memory/detail/watched_memory.hpp>

#include <sched.h>

#include <algorithm>
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

std::size_t ended_message(const char* what, const error& e, std::span<char> buffer) noexcept {
  const auto facts = error_access::facts(e);
  const int length = std::snprintf(
      buffer.data(), buffer.size(),
      "%s: %s, with %" PRIu64 " requests of the send queue and %" PRIu64
      " receives outstanding; they were given up, and the connection with them: renew it, or give "
      "more time",
      e.operation(), what, facts[0], facts[1]);
  return length < 0 ? 0 : static_cast<std::size_t>(length);
}

constexpr error_source ended_by_limit{
    [](const error& e, std::span<char> buffer) noexcept {
      return ended_message(
          e == error_kind::cancelled ? "a stop was requested" : "the time limit has passed", e,
          buffer);
    },
    [](const error& e) noexcept { return e == error_kind::cancelled ? ECANCELED : ETIMEDOUT; }};

error of_channel(error_kind kind, const char* operation, const char* hint) noexcept {
  return {kind, operation, hint};
}

}  // namespace

channel_core::channel_core(const channel_settings& settings) noexcept
    : type_(settings.type),
      settings_(settings),
      // Zero would be the owner of nothing.
      owner_(std::max(random_number(), 1U)) {}

channel_core::~channel_core() = default;

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
  VERBSPP_TRY(
      queue, completion_queue::create(asked.domain->context(), std::max<std::size_t>(capacity, 1)));
  native_queue_ = queue.native_handle();
  asked.send_queue = queue;
  asked.receive_queue = queue;
  queue_is_lost_ = false;
  return success();
}

result<void> channel_core::prepare() noexcept {
  if (native_queue_ == nullptr || queue_is_lost_) VERBSPP_TRYV(make_queue());
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
  if (queue().capacity() < std::size_t{sends_} + receives_) {
    sends_ = settings_.queue_pair.max_send_work_requests.value();
    if (has_receives) receives_ = settings_.queue_pair.max_receive_work_requests.value();
  }
  send_room_ = sends_;
  receive_room_ = receives_;
  unsignaled_ = 0;
  failure_.reset();
  root_is_certain_ = false;
  may_send_ = false;
  may_receive_ = has_receives;
  state_ = channel_state::prepared;
  return success();
}

result<void> channel_core::make_slots() noexcept {
  // One for each request that can be outstanding, and some for results that nobody took yet.
  const std::uint32_t requests = sends_ + receives_;
  slot_count_ = std::min(requests + std::clamp(requests, 16U, 1024U), no_slot);
  slots_owner_ = owned<work_slot[]>(new (std::nothrow) work_slot[slot_count_]);
  slots_ = slots_owner_.get();
  if (slots_ == nullptr) return error::from_errno(ENOMEM, "build a channel");
  for (std::uint32_t i = 0; i < slot_count_; ++i) {
    slots_[i].id = one_use + i;
    slots_[i].next = i + 1 < slot_count_ ? i + 1 : no_slot;
    slots_[i].is = work_slot::state::free;
  }
  free_ = 0;
  watches_ = device_memory_is_watched();
  if (!watches_) return success();
  targets_per_slot_ =
      std::max({capacities_.max_send_elements, capacities_.max_receive_elements, 1U});
  targets_ =
      owned<target[]>(new (std::nothrow) target[std::size_t{slot_count_} * targets_per_slot_]{});
  if (!targets_) return error::from_errno(ENOMEM, "build a channel");
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

result<void> channel_core::connect(const endpoint& remote) noexcept {
  if (state_ != channel_state::prepared)
    return of_channel(
        state_ == channel_state::connected ? error_kind::busy : error_kind::not_connected,
        "handshake of a channel",
        state_ == channel_state::connected
            ? "the channel is connected already: renew it before another handshake"
            : "the channel is not prepared: renew it first, and give the peer its new "
              "endpoint");
  // An endpoint of yesterday leaves the channel as it is.
  if (last_peer_) VERBSPP_TRYV(check_newer(remote, *last_peer_));
  const auto connected = detail::connect(*queue_pair_, remote);
  if (!connected.has_value()) {
    break_off(connected.assume_error());
    destroy_queue_pair();
    return connected.assume_error();
  }
  note_endpoint();
  last_peer_ = remote;
  state_ = channel_state::connected;
  may_send_ = true;
  return success();
}

void channel_core::note_root(const error& root, bool is_certain) noexcept {
  may_send_ = may_receive_ = false;
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

void channel_core::break_off(const error& root) noexcept {
  note_root(root, true);
  stop_device();
  collect_tail();
}

void channel_core::destroy_queue_pair() noexcept {
  if (queue_pair_) {
    ibv_qp* const native = queue_pair_->owner.release();
    queue_pair_.reset();
    native_ = nullptr;
    extended_ = nullptr;
    const int errnum = errno_of(ibv_destroy_qp(native));
    if (errnum != 0) {
      report_destroy(errnum, "ibv_destroy_qp");
      lost_memory_ = true;
    }
  }
  // What the device had told before counts; the rest it will never tell.
  for (std::uint32_t before = no_slot; !is_idle() && before != send_room_ + receive_room_;) {
    before = send_room_ + receive_room_;
    collect();
  }
  const auto give_up = [this](work_slot& slot) {
    slot.status = IBV_WC_WR_FLUSH_ERR;
    slot.vendor_code = 0;
    if (lost_memory_) slot.notes |= work_slot::lost;
    failure_->count_flushed();
    constexpr std::uint8_t of_nobody = work_slot::in_scope | work_slot::unheld;
    if ((slot.notes & of_nobody) == of_nobody) ++slot.scope->flushed;
    finish(slot);
  };
  while (oldest_send_ != no_slot) {
    work_slot& slot = slots_[oldest_send_];
    oldest_send_ = slot.next;
    give_up(slot);
  }
  newest_send_ = no_slot;
  for (std::uint32_t i = 0; i < slot_count_; ++i)
    if (slots_[i].is == work_slot::state::posted) give_up(slots_[i]);
  send_room_ = sends_;
  receive_room_ = receives_;
  unsignaled_ = 0;
}

result<void> channel_core::renew(const wait_limit& limit) noexcept {
  if (state_ != channel_state::closed) VERBSPP_TRYV(close(limit));
  return prepare();
}

result<void> channel_core::close(const wait_limit& limit) noexcept {
  if (state_ == channel_state::closed) return success();
  note_root(of_channel(error_kind::not_connected, "close of a channel", "the channel was closed"),
            true);
  stop_device();
  if (!is_idle() && !limit.has_passed()) collect_tail();
  destroy_queue_pair();
  state_ = channel_state::closed;
  if (std::exchange(lost_memory_, false))
    return of_channel(error_kind::driver, "ibv_destroy_qp",
                      "the device did not let go of the queue pair: memory of its work is not "
                      "freed");
  return success();
}

void channel_core::abandon() noexcept {
  static_cast<void>(close(time_to_flush));
  is_orphan_ = true;
  for (std::uint32_t i = 0; i < slot_count_; ++i)
    if (slots_[i].is == work_slot::state::done) {
      slots_[i].notes |= work_slot::orphaned;
      ++orphans_;
    }
  go_if_unused();
}

void channel_core::go_if_unused() noexcept {
  if (orphans_ == 0 && scopes_ == 0) delete this;
}

template <class Done>
std::optional<error> channel_core::wait_until(Done done, const wait_limit* limit) noexcept {
  collect();
  if (done()) return std::nullopt;
  const wait_limit until = limit != nullptr ? *limit : wait_limit(settings_.default_limit);
  for (unsigned round = 0;; ++round) {
    collect();
    if (done()) return std::nullopt;
    if (failure_) {
      collect_tail();
      return std::nullopt;
    }
    if (round % 64 != 0) {
      pause_processor();
      continue;
    }
    if (until.has_passed()) {
      const error ended = ended_by(until);
      break_off(ended);
      return ended;
    }
    // Whoever is to answer may need this processor.
    if (round != 0) sched_yield();
  }
}

std::optional<error> channel_core::wait_for(const work_slot& slot,
                                            const wait_limit* limit) noexcept {
  return wait_until([&] { return slot.is == work_slot::state::done; }, limit);
}

std::optional<error> channel_core::wait_for_all(const scope_state& scope) noexcept {
  mark_end(scope.limit);
  if (scope.outstanding == 0) return std::nullopt;
  return wait_until([&] { return scope.outstanding == 0; }, scope.limit);
}

result<void> channel_core::wait_for_room(const std::uint32_t& room, std::uint32_t wanted,
                                         const wait_limit* limit) noexcept {
  if (!may_send_ && !may_receive_) return refusal(waiting);
  const auto ended = wait_until([&] { return room >= wanted; }, limit);
  if (ended) return *ended;
  if (failure_) return refusal(waiting);
  return success();
}

void channel_core::mark_end(const wait_limit* limit) noexcept {
  if (unsignaled_ == 0 || !may_send_) return;
  if (send_room_ == 0 && !wait_for_room(send_room_, 1, limit).has_value()) return;
  if (unsignaled_ == 0) return;
  // Where this fails, nothing will tell that those before it have finished, but the end of the
  // connection.
  if (const auto marked = post(marker_operation(), nullptr, work_slot::unheld); !marked.has_value())
    break_off(marked.assume_error());
}

void channel_core::end_scope(scope_state& scope) noexcept {
  if (scope.held != 0)
    for (std::uint32_t i = 0; i < slot_count_; ++i) {
      work_slot& slot = slots_[i];
      if (slot.is != work_slot::state::done || (slot.notes & work_slot::in_scope) == 0 ||
          slot.scope != &scope)
        continue;
      if (slot.status == IBV_WC_WR_FLUSH_ERR)
        ++scope.flushed;
      else if (slot.status != IBV_WC_SUCCESS)
        ++scope.failed;
      slot.scope = nullptr;
      slot.notes = static_cast<std::uint8_t>((slot.notes & ~work_slot::in_scope) | work_slot::over);
    }
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
  if ((is_send ? send_room_ : receive_room_) == 0)
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

work_error channel_core::failure_of(const work_slot& slot) const noexcept {
  return work_error(static_cast<work_status>(slot.status), slot.vendor_code, slot.id,
                    local_.number.value())
      .with_operation(static_cast<work_operation>(slot.operation));
}

void channel_core::take_failure(work_slot& slot, const ibv_wc& completion) noexcept {
  if (slot.operation == static_cast<std::uint8_t>(work_operation::receive))
    ++receive_room_;
  else
    leave_send_queue(static_cast<std::uint32_t>(slot.id) & no_slot);
  slot.status = number_of(completion.status);
  slot.vendor_code = completion.vendor_err;
  const bool was_flushed = slot.status == IBV_WC_WR_FLUSH_ERR;
  const bool is_first = !failure_;
  note_root(failure_of(slot), !was_flushed);
  if (is_first) stop_device();
  if (was_flushed) failure_->count_flushed();
  constexpr std::uint8_t of_nobody = work_slot::in_scope | work_slot::unheld;
  if ((slot.notes & of_nobody) == of_nobody)
    ++(was_flushed ? slot.scope->flushed : slot.scope->failed);
  finish(slot);
}

transport_result<completed_work> channel_core::take_late(work_slot& slot) noexcept {
  const bool is_over = (slot.notes & work_slot::over) != 0;
  const bool is_orphaned = (slot.notes & work_slot::orphaned) != 0;
  if (!is_over && (slot.notes & work_slot::in_scope) != 0) --slot.scope->held;
  const bool succeeded = slot.status == IBV_WC_SUCCESS;
  const completed_work done(slot.opcode, slot.byte_count, slot.flags, slot.immediate);
  release(slot);
  if (is_orphaned) {
    --orphans_;
    go_if_unused();
  }
  if (is_over)
    return of_channel(error_kind::invalid_input, "result of a request",
                      "the scope that it was posted in has ended, and reported how it went");
  if (succeeded) return done;
  return of_channel(error_kind::not_connected, "result of a request",
                    "its channel was destroyed before the request had finished");
}

void channel_core::leave_rarely(work_slot& slot) noexcept {
  if (slot.is == work_slot::state::posted) {
    const bool in_scope = (slot.notes & work_slot::in_scope) != 0;
    if ((slot.notes & work_slot::owning) == 0 &&
        (in_scope || (slot.notes & work_slot::keeping) != 0)) {
      // Nobody's memory depends on it.
      slot.notes |= work_slot::unheld;
      if (in_scope) {
        --slot.scope->held;
        ++slot.scope->dropped;
      }
      return;
    }
    static_cast<void>(wait_for(slot, in_scope ? slot.scope->limit : nullptr));
  }
  if ((slot.notes & work_slot::in_scope) != 0) {
    --slot.scope->held;
    ++slot.scope->dropped;
    if (slot.status == IBV_WC_WR_FLUSH_ERR)
      ++slot.scope->flushed;
    else if (slot.status != IBV_WC_SUCCESS)
      ++slot.scope->failed;
  }
  const bool is_orphaned = (slot.notes & work_slot::orphaned) != 0;
  release(slot);
  if (is_orphaned) {
    --orphans_;
    go_if_unused();
  }
}

void channel_core::give_back_memory(work_slot& slot) noexcept {
  if ((slot.notes & work_slot::watched) != 0) {
    const target* const first = targets_of(slot);
    for (std::uint32_t i = 0; i < targets_per_slot_ && first[i].length != 0; ++i)
      device_returns(first[i].address, first[i].length);
  }
  if ((slot.notes & work_slot::keeping) != 0 && !lost_memory_) slot.memory.let_go();
  slot.notes &= static_cast<std::uint8_t>(~(work_slot::keeping | work_slot::watched));
}

channel_core::target* channel_core::targets_of(const work_slot& slot) const noexcept {
  const auto index = static_cast<std::size_t>(slot.id) & no_slot;
  return targets_.get() + index * targets_per_slot_;
}

void channel_core::remember(work_slot& slot, const native_elements& elements) noexcept {
  target* const first = targets_of(slot);
  ibv_sge single;
  const ibv_sge* const range = elements.at(single);
  std::uint32_t count = 0;
  for (std::size_t i = 0; i < elements.size && count < targets_per_slot_; ++i)
    if (range[i].length != 0) first[count++] = {range[i].addr, range[i].length};
  if (count < targets_per_slot_) first[count] = {};
}

void channel_core::hide(work_slot& slot) noexcept {
  const target* const first = targets_of(slot);
  if (first->length == 0) return;
  for (std::uint32_t i = 0; i < targets_per_slot_ && first[i].length != 0; ++i)
    device_takes(first[i].address, first[i].length);
  slot.notes |= work_slot::watched;
}

void channel_core::watch(work_slot& slot, const native_elements& elements) noexcept {
  remember(slot, elements);
  hide(slot);
}

void channel_core::lose_queue(int returned) noexcept {
  if (std::exchange(queue_is_lost_, true)) return;
  note_root(poll_failure(returned), true);
  destroy_queue_pair();
}

}  // namespace verbspp::detail
