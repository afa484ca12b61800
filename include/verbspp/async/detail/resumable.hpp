// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <coroutine>
#include <cstddef>
#include <exception>
#include <new>

namespace verbspp::detail {

/// An object that has a `coroutine_handle`, and that calls a function when the handle is resumed.
/// So the object can wait for everything that a coroutine can await, although it is not a
/// coroutine itself.
///
/// The handle belongs to a coroutine, whose frame is a part of the object; a frame is allocated
/// only if the compiler needs a larger one.
class resumable {
 public:
  using function = void (*)(resumable& self) noexcept;

  explicit resumable(function resumed) noexcept : resumed_(resumed) {}
  resumable(const resumable&) = delete;
  resumable& operator=(const resumable&) = delete;
  ~resumable() {
    if (caller_) caller_.destroy();
  }

  /// Returns the handle. The function that is called when the handle is resumed may destroy the
  /// object.
  [[nodiscard]] std::coroutine_handle<> handle() noexcept {
    if (!caller_) caller_ = call_when_resumed(*this).handle;
    return caller_;
  }

 private:
  struct coroutine {
    struct promise_type {
      [[nodiscard]] static void* operator new(std::size_t size, resumable& of) {
        return size <= sizeof(of.frame_) ? of.frame_ : ::operator new(size);
      }
      static void operator delete(void* frame, std::size_t size) noexcept {
        if (size > sizeof(resumable::frame_)) ::operator delete(frame);
      }
      [[nodiscard]] coroutine get_return_object() noexcept {
        return {std::coroutine_handle<promise_type>::from_promise(*this)};
      }
      [[nodiscard]] static std::suspend_always initial_suspend() noexcept { return {}; }
      [[nodiscard]] static std::suspend_always final_suspend() noexcept { return {}; }
      static void return_void() noexcept {}
      [[noreturn]] static void unhandled_exception() noexcept { std::terminate(); }
    };
    std::coroutine_handle<> handle;
  };
  // The coroutine awaits the object, which calls the function while the coroutine is suspended, so
  // that the function may destroy the object, and the coroutine with it.
  [[nodiscard]] static bool await_ready() noexcept { return false; }
  void await_suspend(std::coroutine_handle<> /*caller*/) noexcept { resumed_(*this); }
  static void await_resume() noexcept {}
  [[nodiscard]] static coroutine call_when_resumed(resumable& self) noexcept {
    for (;;) co_await self;
  }

  function resumed_;
  std::coroutine_handle<> caller_{};
  alignas(std::max_align_t) std::byte frame_[128];
};

}  // namespace verbspp::detail
