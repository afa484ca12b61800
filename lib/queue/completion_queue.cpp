// SPDX-License-Identifier: Apache-2.0
#include "device/async_events.hpp"
#include "device/usable.hpp"
#include "queue/completion_channel_state.hpp"
#include "queue/poll_failure.hpp"
#include "queue/queue_memory.hpp"
#include "quirks/rxe.hpp"
#include <verbspp/base/destroy_failure.hpp>
#include <verbspp/base/object_trace.hpp>
#include <verbspp/device/async_event.hpp>
#include <verbspp/queue/completion_channel.hpp>
#include <verbspp/queue/completion_queue.hpp>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <new>
#include <ostream>
#include <string>
#include <utility>

namespace verbspp {

namespace detail {

namespace {

constexpr const char* adopting_queue = "completion_queue::from_native";

/// True if creating a queue with these features requires `ibv_create_cq_ex`.
bool needs_extended_call(completion_features features) noexcept {
  return features.intersects(completion_feature::extended | completion_feature::single_threaded);
}

const char* creation_of(completion_features features) noexcept {
  return needs_extended_call(features) ? "ibv_create_cq_ex" : "ibv_create_cq";
}

ibv_cq* create_native(completion_queue_state& state, std::size_t capacity,
                      const ibv_device_attr& device) noexcept {
  ibv_context* const parent = state.owner.native_handle();
  ibv_comp_channel* const channel = state.channel ? state.channel->native : nullptr;
  if (!needs_extended_call(state.features))
    return ibv_create_cq(parent, static_cast<int>(capacity), &state, channel, 0);
  ibv_cq_init_attr_ex initial{};
  initial.cqe = static_cast<std::uint32_t>(capacity);
  initial.cq_context = &state;
  initial.channel = channel;
  initial.wc_flags = (state.features & all_completion_fields).bits;
  if (state.features.contains(completion_feature::single_threaded)) {
    initial.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS;
    initial.flags = IBV_CREATE_CQ_ATTR_SINGLE_THREADED;
  }
  ibv_cq_ex* const created = ibv_create_cq_ex(parent, &initial);
  if (created == nullptr) return nullptr;
  if (is_rxe(device)) mend_rxe_sessions(*created);
  return ibv_cq_ex_to_cq(created);
}

result<reference<completion_queue_state>> create_queue(const context& parent,
                                                       reference<completion_channel_state> channel,
                                                       std::size_t capacity,
                                                       completion_features features) noexcept {
  const char* const operation = creation_of(features);
  if (capacity == 0)
    return error::out_of_range(operation, "capacity in completions", 0,
                               "the smallest queue holds 1");
  VERBSPP_TRY(device, parent.query_device());
  const auto limit = static_cast<std::size_t>(std::max(device.max_cqe, 0));
  if (capacity > limit)
    return error::above_limit(
        operation, "capacity in completions", capacity, limit,
        "the device imposes this limit (max_cqe): request a smaller queue (for a channel or group, "
        "shorter send and receive queues), or use several queues");
  // The state is created first, because the queue's events refer to it.
  reference<completion_queue_state> state(
      new (std::nothrow) completion_queue_state(parent, std::move(channel), features));
  if (!state) return error::from_errno(ENOMEM, operation);
  errno = 0;
  state->native = create_native(*state.get(), capacity, device);
  if (state->native != nullptr) {
    trace(operation, state->native);
    state->begin_reporting(false);
    return state;
  }
  const int errnum = errno;
  const error failure = error::from_errno(errnum, operation, advice_on_queue_memory(errnum));
  if (!needs_extended_call(features) || failure != error_kind::not_supported) return failure;
  return failure.as(error_kind::not_supported,
                    "the device has no extended completion queues, or none with all of these "
                    "features: request fewer, or use a plain completion_queue");
}

/// True if a queue can report these fields. A queue has functions only for the fields with which it
/// was created.
bool has_fields(const ibv_cq_ex& queue, completion_features features) noexcept {
  const auto lacks = [&](completion_feature field, auto* function) {
    return features.contains(field) && function == nullptr;
  };
  return queue.start_poll != nullptr && queue.next_poll != nullptr && queue.end_poll != nullptr &&
         !lacks(completion_feature::byte_count, queue.read_byte_len) &&
         !lacks(completion_feature::immediate, queue.read_imm_data) &&
         !lacks(completion_feature::queue_pair_number, queue.read_qp_num) &&
         !lacks(completion_feature::source, queue.read_src_qp) &&
         !lacks(completion_feature::source_lid, queue.read_slid) &&
         !lacks(completion_feature::service_level, queue.read_sl) &&
         !lacks(completion_feature::timestamp, queue.read_completion_ts) &&
         !lacks(completion_feature::wall_clock, queue.read_completion_wallclock_ns);
}

result<reference<completion_queue_state>> adopt_queue(const context& parent,
                                                      reference<completion_channel_state> channel,
                                                      ibv_cq* native, ownership whose,
                                                      completion_features features) noexcept {
  const auto refused = [](const char* why) {
    return error(error_kind::invalid_input, adopting_queue, why);
  };
  VERBSPP_TRYV(check_usable(adopting_queue, parent));
  if (native == nullptr) return refused("the queue is null");
  if (native->context != parent.native_handle())
    return refused("the queue belongs to another context: pass the one from which it was created");
  if (channel && native->channel != channel->native)
    return refused(
        "the queue reports to another completion channel, or to none: pass the one with which it "
        "was created, or adopt it as a queue that is not waitable");
  if (features.contains(completion_feature::extended)) {
    VERBSPP_TRY(device, parent.query_device());
    auto& extended = *reinterpret_cast<ibv_cq_ex*>(native);
    if (!has_fields(extended, features))
      return refused(
          "the queue was not created with all of these completion fields, or not by "
          "ibv_create_cq_ex: leave out the fields that its wc_flags did not contain, or adopt it "
          "as a completion_queue");
    if (is_rxe(device)) mend_rxe_sessions(extended);
  }
  reference<completion_queue_state> state(
      new (std::nothrow) completion_queue_state(parent, std::move(channel), features));
  if (!state) return error::from_errno(ENOMEM, adopting_queue);
  state->native = native;
  state->destroyed_by = whose;
  state->begin_reporting(true);
  return state;
}

}  // namespace

completion_queue_state::completion_queue_state(context parent,
                                               reference<completion_channel_state> reports_to,
                                               completion_features with) noexcept
    : owner(std::move(parent)),
      channel(std::move(reports_to)),
      features(with),
      created_at(moment_now()) {}

void completion_queue_state::begin_reporting(bool is_stranger) noexcept {
  if (!channel) return;
  channel->admit(*this, is_stranger);
  failures.listen(owner, {.completion_queue = native});
}

completion_queue_state::~completion_queue_state() {
  if (native == nullptr) return;
  failures.stop();
  if (channel) channel->forget(*this);
  if (destroyed_by == ownership::taken) {
    report_destroy(native, errno_of(ibv_destroy_cq(native)), "ibv_destroy_cq");
    forget_async_events(owner, async_event_element::completion_queue,
                        reinterpret_cast<std::uintptr_t>(native));
  }
  if (channel) channel->dismiss(*this);
}

error poll_failure(int returned) noexcept VERBSPP_NONBLOCKING {
  // Drivers return a negative errno, or one of their own codes, which are -1 and -2.
  return poll_failure(returned < -2 ? -returned : 0, "ibv_poll_cq");
}

error poll_failure(int errnum, const char* operation) noexcept VERBSPP_NONBLOCKING {
  const error failure = error::from_errno(errnum, operation);
  if (errnum == EBUSY)
    return failure.as(
        error_kind::busy,
        "the driver refused to start polling: do not poll in the function that poll_each or "
        "wait_each calls; if the queue has completion_feature::wall_clock, poll again, because the "
        "driver cannot read the clock at every moment");
  return failure.as(error_kind::driver,
                    "the completion queue is unusable, usually because it overran, the device "
                    "failed, or a forked child polls its parent's queue: see the kernel's log; a "
                    "queue that the program itself created needs room for all work that can be "
                    "outstanding on its queue pairs");
}

error no_slots(const char* operation) noexcept VERBSPP_NONBLOCKING {
  return {error_kind::invalid_input, operation,
          "the span for the results is empty: pass at least one slot"};
}

error moved_from_queue(const char* operation) noexcept {
  return {error_kind::invalid_input, operation, "this completion queue was moved from"};
}

error queue_without_features() noexcept {
  return {error_kind::invalid_input, "completion_queue::with",
          "this completion queue was not created or adopted with all of these features: create or "
          "adopt a completion_queue_with that has them"};
}

result<reference<completion_queue_state>> completion_queue_state::create(
    const context& parent, std::size_t capacity, completion_features features) noexcept {
  if (!features.contains(completion_feature::waitable))
    return create_queue(parent, {}, capacity, with_implied(features));
  VERBSPP_TRY(channel, completion_channel::create(parent));
  return create(channel, capacity, features);
}

result<reference<completion_queue_state>> completion_queue_state::create(
    const completion_channel& channel, std::size_t capacity,
    completion_features features) noexcept {
  const completion_features all = with_implied(features);
  if (!channel.state_) return channel_moved_from(creation_of(all));
  return create_queue(channel.context(), channel.state_, capacity, all);
}

result<reference<completion_queue_state>> completion_queue_state::adopt(
    const context& parent, ibv_cq* native, ownership whose, completion_features features) noexcept {
  return adopt_queue(parent, {}, native, whose, with_implied(features));
}

result<reference<completion_queue_state>> completion_queue_state::adopt(
    const completion_channel& channel, ibv_cq* native, ownership whose,
    completion_features features) noexcept {
  if (!channel.state_) return channel_moved_from(adopting_queue);
  return adopt_queue(channel.context(), channel.state_, native, whose, with_implied(features));
}

}  // namespace detail

result<completion_queue> completion_queue::create(const class context& parent,
                                                  std::size_t capacity) noexcept {
  VERBSPP_TRY(state, detail::completion_queue_state::create(parent, capacity, {}));
  return completion_queue(std::move(state));
}

result<completion_queue> completion_queue::from_native(const class context& parent, ibv_cq* native,
                                                       ownership whose) noexcept {
  VERBSPP_TRY(state, detail::completion_queue_state::adopt(parent, native, whose, {}));
  return completion_queue(std::move(state));
}

result<ibv_cq*> completion_queue::release() && noexcept {
  constexpr const char* operation = "completion_queue::release";
  if (!state_) return detail::moved_from_queue(operation);
  if (!state_.is_only())
    return error(error_kind::busy, operation,
                 "other handles of the queue, or queue pairs that complete in it, still exist: "
                 "destroy them first");
  state_->destroyed_by = ownership::borrowed;
  state_ = {};
  return std::exchange(native_, nullptr);
}

bool async_event::concerns(const completion_queue& queue) const noexcept {
  // A queue that has the same address, but was created after the event was read, is a different
  // queue.
  return element() == async_event_element::completion_queue && queue.state() != nullptr &&
         is_at(queue.native_handle()) && queue.state()->created_at < taken_at_;
}

std::ostream& operator<<(std::ostream& out, const completion_queue& queue) {
  if (queue.state() == nullptr) return out << "completion queue that was moved from";
  // Avoids the stream's number formatting, which the caller may have changed.
  out << "completion queue " << std::to_string(queue.native_handle()->handle) << ", room for "
      << std::to_string(queue.capacity());
  if (queue.state()->channel)
    out << ", completion channel fd " << std::to_string(queue.state()->channel->native->fd);
  return out << ", device " << queue.context().device_name();
}

}  // namespace verbspp
