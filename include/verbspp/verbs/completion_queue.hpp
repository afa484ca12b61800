// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/detail/reference.hpp>
#include <verbspp/error.hpp>
#include <verbspp/verbs/context.hpp>
#include <verbspp/verbs/work_completion.hpp>

#include <infiniband/verbs.h>

#include <algorithm>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <span>

namespace verbspp {

namespace detail {

struct completion_queue_state : counted {
  completion_queue_state(context parent, ibv_cq* created) noexcept
      : owner(std::move(parent)), native(created) {}
  completion_queue_state(const completion_queue_state&) = delete;
  completion_queue_state& operator=(const completion_queue_state&) = delete;
  ~completion_queue_state();

  context owner;
  ibv_cq* native;
};

/// What a failed `ibv_poll_cq` is; out of line, since it never happens on a healthy queue.
[[nodiscard]] error poll_failure() noexcept;

}  // namespace detail

/// Where the device reports that work has finished.
///
/// A shared handle, cheap to copy; keeps its context alive. Thread-safe as libibverbs is: any
/// thread may poll, each completion goes to one of them.
class completion_queue {
 public:
  /// Creates a queue for at least `capacity` completions (`ibv_create_cq`).
  ///
  /// Size it for everything that can be outstanding at once on the queue pairs that use it: a queue
  /// that overruns is lost, and its queue pairs with it.
  /// \errors `invalid_input` if the capacity is 0, above the device's limit or above INT_MAX;
  /// `resource_exhausted`
  [[nodiscard]] static result<completion_queue> create(const context& parent,
                                                       std::size_t capacity) noexcept;

  /// Takes the completions that are there, up to as many as there are slots; never blocks.
  ///
  /// \returns the slots that were filled, the first ones; none is a normal answer
  /// \errors `driver` if the queue is broken, usually because it overran
  [[nodiscard]] result<std::span<const work_completion>> poll(
      std::span<work_completion> slots VERBSPP_LIFETIMEBOUND) const noexcept {
    const int wanted = static_cast<int>(std::min<std::size_t>(slots.size(), INT_MAX));
    const int filled = ibv_poll_cq(native_, wanted, reinterpret_cast<ibv_wc*>(slots.data()));
    if (filled < 0) [[unlikely]]
      return detail::poll_failure();
    return std::span<const work_completion>(slots.data(), static_cast<std::size_t>(filled));
  }

  /// The number of completions that the device granted room for; at least what was asked for.
  [[nodiscard]] std::size_t capacity() const noexcept {
    return static_cast<std::size_t>(native_->cqe);
  }
  [[nodiscard]] const class context& context() const noexcept { return state_->owner; }
  [[nodiscard]] ibv_cq* native_handle() const noexcept { return native_; }
  friend bool operator==(const completion_queue&, const completion_queue&) noexcept = default;

 private:
  explicit completion_queue(detail::reference<detail::completion_queue_state> state) noexcept
      : native_(state->native), state_(std::move(state)) {}

  ibv_cq* native_;  // also in the state; here it saves the data path a load
  detail::reference<detail::completion_queue_state> state_;
};

}  // namespace verbspp
