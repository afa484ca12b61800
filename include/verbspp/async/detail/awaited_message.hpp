// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/async/detail/awaited.hpp>
#include <verbspp/base/error.hpp>
#include <verbspp/base/result.hpp>
#include <verbspp/base/wait_limit.hpp>
#include <verbspp/channel/inbox.hpp>
#include <verbspp/pool/message.hpp>
#include <verbspp/wait/continuation.hpp>

#include <coroutine>
#include <optional>
#include <utility>

namespace verbspp {

namespace detail {

/// The awaitable of `inbox::async_wait`. It gives the coroutine the next message of the inbox, or
/// an error.
class [[nodiscard]] awaited_message : awaited {
 public:
  awaited_message(inbox_state* of, const wait_limit& limit) noexcept
      : awaited(proceed, test_arrival, limit, of) {}

  /// For `as_sender` only: the channel whose `poll` resumes the operation. \pre the inbox exists
  [[nodiscard]] channel_core& polled() const noexcept;

  /// \returns true if a message, or an error, is available, and no other coroutine waits for it
  [[nodiscard]] bool await_ready() noexcept { return !others_wait() && look(); }
  void await_suspend(std::coroutine_handle<> waiting) noexcept {
    waiting_ = waiting;
    wait();
  }
  [[nodiscard]] result<message> await_resume() noexcept { return *std::move(taken_); }

 private:
  [[nodiscard]] static error gone() noexcept;
  [[nodiscard]] static state test_arrival(condition& self) noexcept;
  static void proceed(continuation& self) noexcept;
  /// True if another coroutine already waits for a message of the inbox.
  [[nodiscard]] bool others_wait() const noexcept;
  /// Stores the next message, or an error, in `taken_`. \returns false if neither is available yet
  [[nodiscard]] bool look() noexcept;
  void wait() noexcept;

  std::optional<result<message>> taken_{};
  std::coroutine_handle<> waiting_{};
};

}  // namespace detail

inline detail::awaited_message inbox::async_wait(const wait_limit& limit) noexcept {
  return {state_.get(), limit};
}

}  // namespace verbspp
