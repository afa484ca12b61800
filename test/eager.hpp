// SPDX-License-Identifier: Apache-2.0
/// \file
/// A coroutine type for tests. The coroutine starts immediately. The owner of the `eager` object
/// can read the coroutine's result, or destroy the coroutine before it has finished.
#pragma once

#include <coroutine>
#include <exception>
#include <optional>
#include <utility>

namespace verbspp::test {

template <class Outcome>
class [[nodiscard]] eager {
 public:
  struct promise_type {
    eager get_return_object() {
      return eager{std::coroutine_handle<promise_type>::from_promise(*this)};
    }
    std::suspend_never initial_suspend() noexcept { return {}; }
    std::suspend_always final_suspend() noexcept { return {}; }
    void return_value(Outcome outcome) { returned.emplace(std::move(outcome)); }
    void unhandled_exception() { std::terminate(); }

    std::optional<Outcome> returned{};
  };

  explicit eager(std::coroutine_handle<promise_type> handle) : coroutine_(handle) {}
  eager(eager&& other) noexcept : coroutine_(std::exchange(other.coroutine_, nullptr)) {}
  eager& operator=(eager&& other) noexcept {
    std::swap(coroutine_, other.coroutine_);
    return *this;
  }
  ~eager() {
    if (coroutine_) coroutine_.destroy();
  }

  [[nodiscard]] bool is_done() const { return coroutine_.promise().returned.has_value(); }
  /// Returns the result of the coroutine. \pre is_done()
  [[nodiscard]] Outcome& get() { return *coroutine_.promise().returned; }

 private:
  std::coroutine_handle<promise_type> coroutine_;
};

}  // namespace verbspp::test
