// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/async/detail/awaited.hpp>
#include <verbspp/async/detail/execution.hpp>
#include <verbspp/async/detail/resumable.hpp>
#include <verbspp/base/detail/because.hpp>
#include <verbspp/base/detail/outcome.hpp>
#include <verbspp/channel/lease.hpp>
#include <verbspp/channel/pending.hpp>
#include <verbspp/core/detail/channel_core.hpp>
#include <verbspp/wait/continuation.hpp>
#include <verbspp/work/work_completion.hpp>

#include <concepts>
#include <coroutine>
#include <optional>
#include <type_traits>
#include <utility>

namespace verbspp {

namespace detail {

template <class Function>
using awaited_by = std::invoke_result_t<Function&>;
template <class Function>
using result_of_awaited = decltype(std::declval<awaited_by<Function>&>().await_resume());

// The signatures with which a sender completes, depending on the type of its call's result. A call
// that owns its memory returns the memory with the result, even on failure.

template <class Value, class Error>
using completions = execution::completion_signatures<Value, execution::set_error_t(Error),
                                                     execution::set_stopped_t()>;
template <class Value, class Error>
auto completions_of(const outcome<Value, Error>&)
    -> completions<execution::set_value_t(Value), Error>;
template <class Error>
auto completions_of(const outcome<void, Error>&) -> completions<execution::set_value_t(), Error>;
template <class Memory>
auto completions_of(const finished<Memory>&)
    -> completions<execution::set_value_t(completed_work, Memory), finished<Memory>>;
template <class Memory>
auto completions_of(const revoked<Memory>&)
    -> completions<execution::set_value_t(Memory), revoked<Memory>>;

/// Completes a sender with the result of its call.
template <class Receiver, class Result>
void complete_with(Receiver& to, Result&& done) noexcept {
  if constexpr (requires { done.memory; }) {
    if (!done.result.has_value())
      std::move(to).set_error(std::forward<Result>(done));
    else if constexpr (std::is_void_v<typename decltype(done.result)::value_type>)
      std::move(to).set_value(std::move(done.memory));
    else
      std::move(to).set_value(std::move(done.result).assume_value(), std::move(done.memory));
  } else if (!done.has_value()) {
    std::move(to).set_error(typename Result::error_type(done.assume_error()));
  } else if constexpr (std::is_void_v<typename Result::value_type>) {
    std::move(to).set_value();
  } else {
    std::move(to).set_value(std::forward<Result>(done).assume_value());
  }
}

/// The operation state of a sender, for one awaited call.
template <class Function, class Receiver>
class sender_operation : resumable {
 public:
  using operation_state_concept = execution::operation_state_tag;

  sender_operation(Function&& begin, Receiver&& to)
      : resumable(
            [](resumable& self) noexcept { static_cast<sender_operation&>(self).complete(); }),
        begin_(std::move(begin)),
        receiver_(std::move(to)) {}
  sender_operation(const Function& begin, Receiver&& to)
      : sender_operation(Function(begin), std::move(to)) {}
  sender_operation(const sender_operation&) = delete;
  sender_operation& operator=(const sender_operation&) = delete;
  /// Does not complete the operation. If the call is waiting, the wait ends, as it does when a
  /// coroutine is destroyed.
  ~sender_operation() {
    if (work_) forget_stop();
  }

  /// Makes the call, unless a stop was already requested.
  /// \pre called once, on the thread of the channel
  void start() & noexcept {
    if (const token stop = stop_token_of(receiver_); stop.stop_requested())
      return std::move(receiver_).set_stopped();
    work_.emplace(*this);
    if (work_->call.await_ready() || !suspend()) return complete();
    if constexpr (is_stoppable) {
      token stop = stop_token_of(receiver_);
      if constexpr (requires { stop.stop_possible(); })
        if (!stop.stop_possible()) return;
      work_->core = &work_->call.polled();
      work_->core->polls().expect_call();
      // If a stop was requested in the meantime, the registration itself calls the stop function.
      work_->registered.emplace(std::move(stop), stop_function{this});
    }
  }

 private:
  using token = stop_token_of_t<Receiver>;
  using awaited = awaited_by<Function>;

  struct stop_function {
    sender_operation* self;
    /// Called on any thread.
    void operator()() const noexcept { self->work_->core->polls().hand_over(*self->work_); }
  };
  using stop_callback = typename callback_of_token<token, stop_function>::type;
  static constexpr bool is_stoppable =
      !std::is_void_v<stop_callback> && requires(awaited& one) { one.polled(); };

  /// The members that only stop requests need, and the call that a stop request hands over to the
  /// thread that polls.
  struct stoppable_parts : continuation {
    explicit stoppable_parts(sender_operation& of) noexcept
        : continuation([](continuation& self) noexcept {
            static_cast<stoppable_parts&>(self).operation.stop();
          }),
          operation(of) {}
    stoppable_parts(const stoppable_parts&) = delete;
    stoppable_parts& operator=(const stoppable_parts&) = delete;
    ~stoppable_parts() = default;
    sender_operation& operation;
    channel_core* core = nullptr;  ///< null: no callback was registered
    std::optional<std::conditional_t<is_stoppable, stop_callback, int>> registered{};
  };
  struct no_parts {
    explicit no_parts(sender_operation& /*of*/) noexcept {}
  };
  using parts = std::conditional_t<is_stoppable, stoppable_parts, no_parts>;
  struct work : parts {
    explicit work(sender_operation& of) noexcept : parts(of), call(of.begin_()) {}
    awaited call;
  };

  /// \returns false if the result is available
  [[nodiscard]] bool suspend() noexcept {
    if constexpr (std::is_void_v<decltype(work_->call.await_suspend(handle()))>) {
      work_->call.await_suspend(handle());
      return true;
    } else {
      return work_->call.await_suspend(handle());
    }
  }
  /// Unregisters the callback for stop requests. On return, no other thread uses this object.
  void forget_stop() noexcept {
    if constexpr (is_stoppable) {
      if (work_->core == nullptr) return;
      work_->registered.reset();
      // A stop request may have queued a call that the polling thread has not made yet. Other
      // threads may be queueing calls next to it, so only `withdraw` may check this.
      work_->core->polls().withdraw(*work_);
      work_->core->polls().stop_expecting();
    }
  }
  void complete() noexcept {
    forget_stop();
    result_of_awaited<Function> done = work_->call.await_resume();
    work_.reset();
    complete_with(receiver_, std::move(done));
  }
  /// Called on the thread that polls, after a stop request.
  void stop() noexcept {
    forget_stop();
    work_.reset();
    std::move(receiver_).set_stopped();
  }

  Function begin_;
  [[no_unique_address]] Receiver receiver_;
  std::optional<work> work_{};
};

/// A function for `as_sender`.
template <class Function>
concept MakesAwaitedCall =
    because(
        requires(Function& function) {
          { function() } -> AwaitedCall;
          completions_of(function().await_resume());
        },
        "a sender needs a function that returns an awaited call, as in as_sender([&] { return "
        "link.async_write({.elements = shared, .remote = theirs}); })") &&
    std::move_constructible<Function>;

/// A sender that makes an awaited call when it is started.
template <class Function>
class call_sender {
 public:
  using sender_concept = execution::sender_tag;

  explicit call_sender(Function begin) noexcept(std::is_nothrow_move_constructible_v<Function>)
      : begin_(std::move(begin)) {}

  template <class Self, class... Environment>
  [[nodiscard]] static consteval auto get_completion_signatures() noexcept {
    return decltype(completions_of(std::declval<result_of_awaited<Function>>()))();
  }
  template <class Receiver>
  [[nodiscard]] sender_operation<Function, std::remove_cvref_t<Receiver>> connect(Receiver to) && {
    return {std::move(begin_), std::move(to)};
  }
  template <class Receiver>
    requires std::copy_constructible<Function>
  [[nodiscard]] sender_operation<Function, std::remove_cvref_t<Receiver>> connect(
      Receiver to) const& {
    return {begin_, std::move(to)};
  }

 private:
  Function begin_;
};

}  // namespace detail

/// A sender that calls the function when it is started, and completes when the awaited call that
/// the function returns has its result. Awaited calls are those that a coroutine can await, such as
/// `async_write` of a channel, or `inbox::async_wait`.
///
///     as_sender([&] { return link.async_write({.elements = shared, .remote = theirs}); });
///     as_sender([&, mine = std::move(buffer)]() mutable {
///       return link.async_read(std::move(mine), {.remote = theirs});
///     });
///
/// It completes where a coroutine that awaits the call would be resumed, usually in
/// `channel::poll`, or in `start` if the result is available immediately. It calls one of these
/// functions of the receiver:
///  - `set_value(value)`: the value of the call's result. A request that owns its memory returns it
///    with `set_value(completed_work, memory)`, a revoked lease with `set_value(memory)`.
///  - `set_error(error)`: the error of the call's result. A request that owns its memory returns it
///    with `set_error(finished<Memory>)`, a revoked lease with `set_error(revoked<Memory>)`.
///  - `set_stopped()`: a stop was requested through the token of the receiver's environment. If it
///    was requested before `start`, the sender does not call its function, and posts nothing.
///
/// A stop may be requested on any thread. It ends only the wait: the channel stays connected, a
/// request that was posted continues, and its memory is released when the device no longer uses it
/// (see `async_operations`). A stop request wakes a loop that sleeps on the descriptor of the
/// channel or its hub, and a thread that sleeps in `channel_hub::wait` or `channel::wait`. In two
/// cases, a stop request is detected in `start` only: if the token has no callbacks, and if the
/// call is an access of a `received_call` or a wait of an `event_loop`.
///
/// The operation state keeps the function, with all that the function has captured, until the state
/// is destroyed. The function makes the call in `start`, so the call's arguments may be
/// temporaries, except for views that are read later if the queue is full: capture the bytes of an
/// `inline_payload` and, in an `async_scope`, a range of several elements. Capture the arguments of
/// `caller::async_call` and of an `async_lease` that owns its memory, too, since these calls refer
/// to them. An exception that the function throws ends the program.
///
///     as_sender([&, flag = 1U] {
///       return link.async_write({.elements = inline_payload(flag), .remote = theirs});
///     });
///
/// The sender can be copied if the function can. An operation state that is destroyed before
/// `start` has posted nothing. Destroying the channel completes its operations with errors; only
/// `start` requires that the channel exists. Thread rule of `start`: as for the channel; use a
/// `hub_scheduler` to switch to the thread that polls its hub.
template <detail::MakesAwaitedCall Function>
[[nodiscard]] detail::call_sender<Function> as_sender(Function begin) noexcept(
    std::is_nothrow_move_constructible_v<Function>) {
  return detail::call_sender<Function>(std::move(begin));
}

}  // namespace verbspp
