// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/config.hpp>
#include <verbspp/base/wait_limit.hpp>
#include <verbspp/channel/call_limit.hpp>
#include <verbspp/channel/continuation.hpp>
#include <verbspp/channel/detail/channel_core.hpp>
#include <verbspp/channel/detail/channel_polls.hpp>

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
  /// \param about see `condition`
  VERBSPP_DATA_PATH awaited(function called, test is_met, const wait_limit& limit,
                            void* about = nullptr) noexcept
      : condition(called, is_met, about) {
    if (const wait_limit* const own = given(limit)) [[unlikely]]
      set_limit(*own);
  }
  /// For a wait without a condition. The limit is set separately.
  VERBSPP_DATA_PATH awaited(function called, channel_core* about) noexcept
      : condition(called, nullptr, about) {}
  ~awaited() = default;

  /// The function for awaitables that have to do nothing but resume the coroutine.
  static void resume(continuation& self) noexcept { static_cast<awaited&>(self).waiting_.resume(); }

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

  /// Does nothing until a coroutine waits: a request may finish before a coroutine awaits it.
  std::coroutine_handle<> waiting_ = std::noop_coroutine();
};

}  // namespace verbspp::detail
