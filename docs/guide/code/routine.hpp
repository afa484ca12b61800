// SPDX-License-Identifier: Apache-2.0
/// \file
/// The coroutine type of the guide.
#pragma once

#include <verbspp/base/result.hpp>
#include <verbspp/work/transport_error.hpp>

#include <coroutine>
#include <exception>
#include <optional>
#include <utility>

namespace guide {

using namespace verbspp;

/// A minimal coroutine type.
struct routine {
  struct promise_type {
    routine get_return_object() {
      return {std::coroutine_handle<promise_type>::from_promise(*this)};
    }
    static std::suspend_never initial_suspend() noexcept { return {}; }
    static std::suspend_always final_suspend() noexcept { return {}; }
    void return_value(const transport_result<void>& returned) { result = returned; }
    [[noreturn]] static void unhandled_exception() { std::terminate(); }
    std::optional<transport_result<void>> result{};
  };
  routine(std::coroutine_handle<promise_type> started) : handle(started) {}
  routine(routine&& other) noexcept : handle(std::exchange(other.handle, nullptr)) {}
  routine& operator=(routine&&) = delete;
  ~routine() {
    if (handle) handle.destroy();
  }
  std::coroutine_handle<promise_type> handle;
};

}  // namespace guide
