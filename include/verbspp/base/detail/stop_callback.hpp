// SPDX-License-Identifier: Apache-2.0
/// \file
/// The callbacks with which a stop request wakes a sleeping thread.
#pragma once

#include <cstddef>
#include <new>
#include <type_traits>
#include <utility>
#include <version>

// This declares the two classes as libstdc++ does, so that <verbspp/verbspp.hpp> does not include
// <stop_token>. That header would make programs compile noticeably more slowly.
#if defined(__cpp_lib_jthread) && defined(_GLIBCXX_BEGIN_NAMESPACE_VERSION)
namespace std {  // NOLINT(bugprone-std-namespace-modification, cert-dcl58-cpp)
_GLIBCXX_BEGIN_NAMESPACE_VERSION
class stop_token;
template <class Function>
class stop_callback;
_GLIBCXX_END_NAMESPACE_VERSION
}  // namespace std
#elif defined(__cpp_lib_jthread)
#include <stop_token>
#endif

namespace verbspp::detail {

/// The sleep of a thread or an event loop, which a stop request can end.
struct stoppable_sleep {
  /// Wakes the sleeper. Each registered callback calls this at most once, on any thread, and
  /// possibly before the sleep has begun or after it has ended.
  void (*wake)(stoppable_sleep& self) noexcept;
};

/// The function object that a token calls on a stop request.
class wake_sleeper {
 public:
  explicit wake_sleeper(stoppable_sleep& asleep) noexcept : asleep_(&asleep) {}
  void operator()() const noexcept { asleep_->wake(*asleep_); }

 private:
  stoppable_sleep* asleep_;
};

/// Names the type whose objects keep a function registered with a token as long as they exist; void
/// if the token has no callbacks.
template <class Token, class Function = wake_sleeper>
struct callback_of_token {
  using type = void;
};
template <class Token, class Function>
  requires requires { typename Token::template callback_type<Function>; }
struct callback_of_token<Token, Function> {
  using type = typename Token::template callback_type<Function>;
};
#ifdef __cpp_lib_jthread
template <class Function>
struct callback_of_token<std::stop_token, Function> {
  using type = std::stop_callback<Function>;
};
#endif

/// The maximum size of a callback that can be registered.
inline constexpr std::size_t largest_callback = 8 * sizeof(void*);

/// A token type with callbacks whose registration cannot throw an exception, and which are small
/// enough to be stored.
template <class Token>
concept TokenWithCallbacks =
    std::is_nothrow_constructible_v<typename callback_of_token<Token>::type, const Token&,
                                    wake_sleeper> &&
    sizeof(typename callback_of_token<Token>::type) <= largest_callback &&
    alignof(typename callback_of_token<Token>::type) <= alignof(void*);

/// Keeps a callback registered with a token, without an allocation.
class stop_registration {
 public:
  stop_registration() noexcept = default;
  stop_registration(const stop_registration&) = delete;
  stop_registration& operator=(const stop_registration&) = delete;
  ~stop_registration() { end(); }

  [[nodiscard]] bool is_active() const noexcept { return destroy_ != nullptr; }
  /// Registers a callback that calls `asleep.wake`.
  template <TokenWithCallbacks Token>
  void begin(const Token& token, stoppable_sleep& asleep) noexcept {
    using callback = typename callback_of_token<Token>::type;
    ::new (static_cast<void*>(place_)) callback(token, wake_sleeper(asleep));
    destroy_ = [](void* place) noexcept {
      std::launder(static_cast<callback*>(place))->~callback();
    };
  }
  /// Removes the callback. If it runs on another thread, waits until it has returned.
  void end() noexcept {
    if (is_active()) std::exchange(destroy_, nullptr)(place_);
  }

 private:
  void (*destroy_)(void* place) noexcept = nullptr;
  alignas(void*) std::byte place_[largest_callback];
};

}  // namespace verbspp::detail
