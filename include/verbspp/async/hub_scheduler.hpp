// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/async/detail/execution.hpp>
#include <verbspp/hub/channel_hub.hpp>
#include <verbspp/hub/detail/hub_reference.hpp>
#include <verbspp/wait/continuation.hpp>

#include <utility>

namespace verbspp {

class hub_scheduler;

namespace detail {

/// The operation state of a sender that `schedule()` has returned.
template <class Receiver>
class schedule_operation : continuation {
 public:
  using operation_state_concept = execution::operation_state_tag;

  schedule_operation(hub_reference hub, Receiver&& to)
      : continuation(
            [](continuation& self) noexcept { static_cast<schedule_operation&>(self).complete(); }),
        hub_(std::move(hub)),
        receiver_(std::move(to)) {}
  schedule_operation(const schedule_operation&) = delete;
  schedule_operation& operator=(const schedule_operation&) = delete;
  ~schedule_operation() = default;

  /// Any thread may call this, once.
  void start() & noexcept { hub_.hand_over(*this); }

 private:
  void complete() noexcept {
    if (stop_token_of(receiver_).stop_requested())
      std::move(receiver_).set_stopped();
    else
      std::move(receiver_).set_value();
  }

  hub_reference hub_;
  [[no_unique_address]] Receiver receiver_;
};

}  // namespace detail

/// A scheduler for the thread that polls a hub: each sender from `schedule()` completes in
/// `channel_hub::poll` or `channel_hub::wait`, or in the `wait` or `poll` of its `hub_clients`. If
/// several threads poll or wait, one of them completes the sender.
///
///     hub_scheduler on_hub(hub);
///     on_hub.schedule() | stdexec::let_value([&] { return as_sender(...); })
///
/// `schedule` and `start` may be called on any thread; `start` wakes the hub. The sender completes
/// with `set_value()`, or with `set_stopped()` if a stop was requested before that.
///
/// A value that is cheap to copy. It keeps the hub alive. A sender that is started after the last
/// call of these `poll` and `wait` functions never completes. \pre the hub was not moved from
class hub_scheduler {
 public:
  using scheduler_concept = execution::scheduler_tag;

  /// The sender of `schedule()`.
  class sender {
   public:
    using sender_concept = execution::sender_tag;

    template <class Self, class... Environment>
    [[nodiscard]] static consteval auto get_completion_signatures() noexcept {
      return execution::completion_signatures<execution::set_value_t(),
                                              execution::set_stopped_t()>();
    }
    template <class Receiver>
    [[nodiscard]] detail::schedule_operation<Receiver> connect(Receiver to) const {
      return {hub_, std::move(to)};
    }

    /// The sender is its own environment, which names its scheduler.
    [[nodiscard]] const sender& get_env() const noexcept { return *this; }
    [[nodiscard]] hub_scheduler query(
        execution::get_completion_scheduler_t<execution::set_value_t> /*query*/) const noexcept {
      return hub_scheduler(hub_);
    }
    [[nodiscard]] hub_scheduler query(
        execution::get_completion_scheduler_t<execution::set_stopped_t> /*query*/) const noexcept {
      return hub_scheduler(hub_);
    }

   private:
    friend hub_scheduler;
    explicit sender(detail::hub_reference hub) noexcept : hub_(std::move(hub)) {}
    detail::hub_reference hub_;
  };

  explicit hub_scheduler(const channel_hub& of) noexcept;

  [[nodiscard]] sender schedule() const noexcept { return sender(hub_); }
  /// True for schedulers of the same hub.
  friend bool operator==(const hub_scheduler& one, const hub_scheduler& other) noexcept {
    return one.hub_ == other.hub_;
  }

 private:
  explicit hub_scheduler(detail::hub_reference hub) noexcept : hub_(std::move(hub)) {}
  detail::hub_reference hub_;
};

inline hub_scheduler::hub_scheduler(const channel_hub& of) noexcept : hub_(of.state_) {}

}  // namespace verbspp
