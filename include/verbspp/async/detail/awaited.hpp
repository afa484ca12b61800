// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/config.hpp>
#include <verbspp/base/wait_limit.hpp>
#include <verbspp/core/detail/channel_core.hpp>
#include <verbspp/core/detail/channel_polls.hpp>
#include <verbspp/wait/call_limit.hpp>
#include <verbspp/wait/continuation.hpp>

#include <concepts>
#include <coroutine>

namespace verbspp::detail {

/// A call that a coroutine of any type can await.
template <class Call>
concept AwaitedCall = requires(Call& call, std::coroutine_handle<> waiting) {
  { call.await_ready() } -> std::convertible_to<bool>;
  call.await_suspend(waiting);
  call.await_resume();
};

/// The wait of a coroutine for a request, or for a condition on a channel. This is the base class
/// of most awaitables. Its subject is the channel's core, unless the derived class has a function
/// `polled` of its own.
class awaited : public condition {
 public:
  /// The channel whose `poll` ends the wait. \pre `subject()` is not null
  [[nodiscard]] channel_core& polled() const noexcept {
    return *static_cast<channel_core*>(subject());
  }

 protected:
  /// For a wait that ends with a call of `called`, which resumes the coroutine.
  /// \param about see `condition`
  awaited(function called, test is_met, const wait_limit& limit, void* about = nullptr) noexcept
      : condition(called, is_met, about) {
    set_given(limit);
  }
  /// For a wait whose end resumes the coroutine. Until `set_waiting`, its end has no effect: a
  /// request may finish before a coroutine awaits it.
  awaited(test is_met, const wait_limit& limit, channel_core* about) noexcept
      : condition(std::noop_coroutine().address(), is_met, about) {
    set_given(limit);
  }
  /// For a wait without a condition, which resumes the coroutine. The limit is set separately.
  VERBSPP_DATA_PATH explicit awaited(channel_core* about) noexcept
      : condition(std::noop_coroutine().address(), about) {}
  ~awaited() = default;

  void set_given(const wait_limit& limit) noexcept {
    if (const wait_limit* const own = given(limit)) set_limit(*own);
  }
  /// \pre not for a wait that ends with a call of a function
  VERBSPP_DATA_PATH void set_waiting(std::coroutine_handle<> waiting) noexcept {
    set_frame(waiting.address());
  }

  // An awaited request waits in a line if its queue has no room, or if other requests wait already.
  // The requests to one queue are posted in the order of the line.

  /// The test for awaited requests to the send queue.
  [[nodiscard]] static state test_room(condition& self) noexcept {
    return static_cast<awaited&>(self).polled().sends().need_not_wait() ? state::met : state::unmet;
  }
  /// True if a request to the send queue has to wait.
  [[nodiscard]] bool must_line_up() const noexcept {
    return !polled().sends().need_not_wait() || polled().polls().has_delayed();
  }
  void line_up() noexcept {
    polled().polls().note_delayed(1);
    polled().continue_when(*this);
  }
  void leave_line() noexcept { polled().polls().note_delayed(-1); }
};

}  // namespace verbspp::detail
