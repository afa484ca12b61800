// SPDX-License-Identifier: Apache-2.0
#include "verbs/completion_channel_state.hpp"
#include <verbspp/verbs/completion_queue.hpp>

#include <atomic>
#include <cerrno>
#include <new>
#include <ostream>
#include <string>

namespace verbspp {

namespace detail {

namespace {
constexpr const char* operation = "ibv_create_cq";
}

std::uint64_t moment_now() noexcept {
  static std::atomic<std::uint64_t> moment{0};
  return moment.fetch_add(1, std::memory_order_relaxed);
}

completion_queue_state::completion_queue_state(
    context parent, reference<completion_channel_state> reports_to) noexcept
    : owner(std::move(parent)), channel(std::move(reports_to)), created_at(moment_now()) {}

completion_queue_state::~completion_queue_state() {
  if (native == nullptr) return;
  if (channel) channel->forget(*this);
  report_destroy(errno_of(ibv_destroy_cq(native)), "ibv_destroy_cq");
}

error poll_failure() noexcept {
  return {error_kind::driver, "ibv_poll_cq",
          "the completion queue is broken, usually because it overran: give it room for all work "
          "that can be outstanding on its queue pairs"};
}

result<reference<completion_queue_state>> create_completion_queue(
    const context& parent, reference<completion_channel_state> channel,
    std::size_t capacity) noexcept {
  if (capacity == 0)
    return error::out_of_range(operation, "capacity, completions", 0, "the smallest queue holds 1");
  VERBSPP_TRY(device, parent.query_device());
  const auto limit = static_cast<std::size_t>(std::max(device.max_cqe, 0));
  if (capacity > limit)
    return error::above_limit(operation, "capacity, completions", capacity, limit,
                              "the limit is the device's (max_cqe)");
  ibv_comp_channel* const native_channel = channel ? channel->native : nullptr;
  // First the state, since events find the queue by it.
  reference<completion_queue_state> state(new (std::nothrow)
                                              completion_queue_state(parent, std::move(channel)));
  if (!state) return error::from_errno(ENOMEM, operation);
  errno = 0;
  state->native = ibv_create_cq(parent.native_handle(), static_cast<int>(capacity), state.get(),
                                native_channel, 0);
  if (state->native == nullptr) return error::from_errno(errno, operation);
  return state;
}

}  // namespace detail

result<completion_queue> completion_queue::create(const class context& parent,
                                                  std::size_t capacity) noexcept {
  VERBSPP_TRY(state, detail::create_completion_queue(parent, {}, capacity));
  return completion_queue(std::move(state));
}

std::ostream& operator<<(std::ostream& out, const completion_queue& queue) {
  // Not by the stream's own formatting of numbers, which the caller may have changed.
  out << "completion queue " << std::to_string(queue.native_handle()->handle) << ", room for "
      << std::to_string(queue.capacity());
  if (queue.state().channel)
    out << ", completion channel fd " << std::to_string(queue.state().channel->native->fd);
  return out << ", device " << queue.context().device_name();
}

}  // namespace verbspp
