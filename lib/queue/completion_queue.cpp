// SPDX-License-Identifier: Apache-2.0
#include "queue/completion_channel_state.hpp"
#include "quirks/rxe.hpp"
#include <verbspp/base/destroy_failure.hpp>
#include <verbspp/device/async_event.hpp>
#include <verbspp/queue/completion_queue.hpp>

#include <algorithm>
#include <cerrno>
#include <new>
#include <ostream>
#include <string>
#include <utility>

namespace verbspp {

namespace detail {

namespace {

/// Checks the capacity and creates the queue by `create`, which is given the state and what the
/// device is.
template <class Create>
result<reference<completion_queue_state>> create_by(const char* operation, const context& parent,
                                                    reference<completion_channel_state> channel,
                                                    std::size_t capacity, Create create) noexcept {
  if (capacity == 0)
    return error::out_of_range(operation, "capacity, completions", 0, "the smallest queue holds 1");
  VERBSPP_TRY(device, parent.query_device());
  const auto limit = static_cast<std::size_t>(std::max(device.max_cqe, 0));
  if (capacity > limit)
    return error::above_limit(operation, "capacity, completions", capacity, limit,
                              "the limit is the device's (max_cqe)");
  // First the state, since events find the queue by it.
  reference<completion_queue_state> state(new (std::nothrow)
                                              completion_queue_state(parent, std::move(channel)));
  if (!state) return error::from_errno(ENOMEM, operation);
  errno = 0;
  state->native = create(state.get(), device);
  if (state->native == nullptr) return error::from_errno(errno, operation);
  return state;
}

}  // namespace

completion_queue_state::completion_queue_state(
    context parent, reference<completion_channel_state> reports_to) noexcept
    : owner(std::move(parent)), channel(std::move(reports_to)), created_at(moment_now()) {}

completion_queue_state::~completion_queue_state() {
  if (native == nullptr) return;
  if (channel) channel->forget(*this);
  report_destroy(errno_of(ibv_destroy_cq(native)), "ibv_destroy_cq");
}

error poll_failure(int returned) noexcept {
  // Drivers return a negative errno, but for those that have codes of their own: -1 and -2.
  return error::from_errno(returned < -2 ? -returned : 0, "ibv_poll_cq")
      .as(error_kind::driver,
          "the completion queue is broken, usually because it overran: give it room for all work "
          "that can be outstanding on its queue pairs");
}

error no_slots(const char* operation) noexcept {
  return {error_kind::invalid_input, operation,
          "there are no slots to fill, so no completion could ever be taken"};
}

result<reference<completion_queue_state>> completion_queue_state::create(
    const context& parent, reference<completion_channel_state> channel,
    std::size_t capacity) noexcept {
  ibv_comp_channel* const native_channel = channel ? channel->native : nullptr;
  return create_by("ibv_create_cq", parent, std::move(channel), capacity,
                   [&](completion_queue_state* state, const ibv_device_attr& /*device*/) {
                     return ibv_create_cq(parent.native_handle(), static_cast<int>(capacity), state,
                                          native_channel, 0);
                   });
}

result<reference<completion_queue_state>> completion_queue_state::create_extended(
    const context& parent, std::size_t capacity, std::uint64_t fields) noexcept {
  auto created = create_by("ibv_create_cq_ex", parent, {}, capacity,
                           [&](completion_queue_state* state, const ibv_device_attr& device) {
                             ibv_cq_init_attr_ex initial{};
                             initial.cqe = static_cast<std::uint32_t>(capacity);
                             initial.cq_context = state;
                             initial.wc_flags = fields;
                             ibv_cq_ex* const extended =
                                 ibv_create_cq_ex(parent.native_handle(), &initial);
                             if (extended == nullptr) return static_cast<ibv_cq*>(nullptr);
                             if (is_rxe(device)) mend_rxe_sessions(*extended);
                             return ibv_cq_ex_to_cq(extended);
                           });
  if (created.has_error() && created.error() == error_kind::not_supported)
    return created.error().as(error_kind::not_supported,
                              "the device has no extended completion queues, or not with all of "
                              "these fields: ask for fewer, or take a plain completion_queue");
  return created;
}

}  // namespace detail

result<completion_queue> completion_queue::create(const class context& parent,
                                                  std::size_t capacity) noexcept {
  VERBSPP_TRY(state, detail::completion_queue_state::create(parent, {}, capacity));
  return completion_queue(std::move(state));
}

bool async_event::concerns(const completion_queue& queue) const noexcept {
  // A queue at the same address that is younger than the event is another one.
  return element() == async_event_element::completion_queue && queue.state() != nullptr &&
         is_at(queue.native_handle()) && queue.state()->created_at < taken_at_;
}

std::ostream& operator<<(std::ostream& out, const completion_queue& queue) {
  if (queue.state() == nullptr) return out << "completion queue that was moved from";
  // Not by the stream's own formatting of numbers, which the caller may have changed.
  out << "completion queue " << std::to_string(queue.native_handle()->handle) << ", room for "
      << std::to_string(queue.capacity());
  if (queue.state()->channel)
    out << ", completion channel fd " << std::to_string(queue.state()->channel->native->fd);
  return out << ", device " << queue.context().device_name();
}

}  // namespace verbspp
