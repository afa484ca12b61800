// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/config.hpp>
#include <verbspp/base/detail/dependent.hpp>
#include <verbspp/base/detail/reference.hpp>
#include <verbspp/base/result.hpp>
#include <verbspp/base/wait_limit.hpp>
#include <verbspp/device/context.hpp>
#include <verbspp/queue/completion_feature.hpp>
#include <verbspp/queue/completion_queue.hpp>
#include <verbspp/queue/extended_completion.hpp>
#include <verbspp/work/work_completion.hpp>

#include <infiniband/verbs.h>

#include <cassert>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>

namespace verbspp {

/// What a wait found that watches more than a completion queue.
struct watched_completions {
  wait_end ended_by = wait_end::limit;
  std::span<const work_completion> completions{};  ///< none if it ended otherwise
  std::optional<async_event> event{};              ///< that ended it
};

namespace detail {

/// What a poll asks for in addition: nothing. Drivers only read it.
inline constinit ibv_poll_cq_attr no_poll_attributes{};

/// \pre `free_polling_sessions` was counted down
[[nodiscard]] error nested_polling() noexcept;
[[nodiscard]] error start_poll_failure(int returned) noexcept;
/// Ends the session as well.
[[nodiscard]] error next_poll_failure(ibv_cq_ex* queue, int returned) noexcept;

/// `completion_queue_with::wait`.
[[nodiscard]] result<std::span<const work_completion>> wait_for_completions(
    const completion_queue& queue, completion_queue_state* state, std::span<work_completion> into,
    const wait_limit& until, notify_for which) noexcept;
/// `completion_queue_with::wait_watching`.
[[nodiscard]] result<watched_completions> wait_watching(
    const completion_queue& queue, completion_queue_state* state, std::span<work_completion> into,
    const wait_limit& until, int file_descriptor, notify_for which) noexcept;
[[nodiscard]] result<void> request_notification(ibv_cq* queue, notify_for which) noexcept;

/// How many polling sessions this thread may begin now: 1, and none while it is in one.
inline constinit thread_local int free_polling_sessions = 1;

/// Lets the assertion of `completion_queue::poll` know.
VERBSPP_DATA_PATH void note_session([[maybe_unused]] const ibv_cq_ex* queue) noexcept {
#ifndef NDEBUG
  queue_in_session = reinterpret_cast<const ibv_cq*>(queue);
#endif
}

/// A polling session of this thread, from `ibv_start_poll` to `ibv_end_poll`.
class polling_session {
 public:
  VERBSPP_DATA_PATH explicit polling_session(ibv_cq_ex* queue) noexcept : queue_(queue) {
    note_session(queue);
  }
  polling_session(const polling_session&) = delete;
  polling_session& operator=(const polling_session&) = delete;
  /// Unless `end` was called, which does not need the destructor to look: a visitor has thrown.
  VERBSPP_DATA_PATH ~polling_session() {
    if (queue_ != nullptr) [[unlikely]]
      end();
  }

  VERBSPP_DATA_PATH void end() noexcept {
    ibv_end_poll(std::exchange(queue_, nullptr));
    free_polling_sessions = 1;
    note_session(nullptr);
  }
  /// Ends it after `ibv_next_poll` has returned that.
  [[nodiscard]] VERBSPP_DATA_PATH error fail(int returned) noexcept {
    note_session(nullptr);
    return next_poll_failure(std::exchange(queue_, nullptr), returned);
  }

 private:
  ibv_cq_ex* queue_;
};

/// Shows the present completion to a visitor, whatever it takes it by.
template <completion_features Features, class Visit>
VERBSPP_DATA_PATH void show(Visit& visit, ibv_cq_ex* queue) {
  using completion = extended_completion<Features>;
  if constexpr (std::is_invocable_v<Visit&, const completion&>) {
    const completion present(queue);
    visit(present);
  } else {
    visit(completion(queue));
  }
}

}  // namespace detail

/// A completion queue that can do more than be polled for `work_completion`s: be slept on
/// (`waitable_completion_queue`), be read field by field (`extended_completion_queue`), spare its
/// driver locks, or several of these:
///
///     using timed_queue = completion_queue_with<completion_feature::waitable |
///                                               completion_feature::timestamp>;
///     VERBSPP_TRY(queue, timed_queue::create(context, 64));
///     VERBSPP_TRY(count, queue.wait_each([](const auto& completion) { ... }, 100ms));
///
/// A completion queue like every other besides, and a shared handle as cheap: it converts to a
/// `completion_queue`, and to one with fewer features. Thread rule: any thread may poll and wait,
/// unless the queue is `single_threaded`; where completions are read field by field, others wait
/// while one does.
template <completion_features Features>
class completion_queue_with : public completion_queue {
  // The same, but instantiated only where it is used.
  template <class Value>
  using result = verbspp::result<detail::dependent<Value, Features>>;
  using state_type = detail::dependent<detail::completion_queue_state, Features>;

 public:
  static constexpr completion_features features = Features;

  /// Creates a queue for at least `capacity` completions (`ibv_create_cq` or, for what that can't
  /// make, `ibv_create_cq_ex`). One that can be waited for has a completion channel of its own.
  /// \errors as `completion_queue::create`, and `not_supported` if the device has no queues with
  /// all of the features
  [[nodiscard]] static result<completion_queue_with> create(const class context& parent,
                                                            std::size_t capacity) noexcept {
    VERBSPP_TRY(created, state_type::create(parent, capacity, Features));
    return completion_queue_with(std::move(created));
  }
  /// The same, reporting to a channel that serves other queues, too.
  [[nodiscard]] static result<completion_queue_with> create(const class completion_channel& channel,
                                                            std::size_t capacity) noexcept
    requires Waitable<Features>
  {
    VERBSPP_TRY(created, state_type::create(channel, capacity, Features));
    return completion_queue_with(std::move(created));
  }

  /// What a queue with these features is in C.
  using native_type =
      std::conditional_t<detail::with_implied(Features).contains(completion_feature::extended),
                         ibv_cq_ex, ibv_cq>;

  /// Takes over, or borrows, a queue of this context that was made elsewhere, and has these
  /// features. One that is waitable is adopted with its channel.
  /// \errors as `completion_queue::from_native`, and `invalid_input` if it has not all of the
  /// fields
  [[nodiscard]] static result<completion_queue_with> from_native(const class context& parent,
                                                                 native_type* native,
                                                                 ownership whose) noexcept
    requires NeedsNoChannel<Features>
  {
    VERBSPP_TRY(adopted,
                state_type::adopt(parent, reinterpret_cast<ibv_cq*>(native), whose, Features));
    return completion_queue_with(std::move(adopted));
  }
  /// The same of a queue that reports to this channel.
  /// \errors the same, and `invalid_input` if it reports to another channel, or none
  [[nodiscard]] static result<completion_queue_with> from_native(
      const class completion_channel& channel, native_type* native, ownership whose) noexcept
    requires Waitable<Features>
  {
    VERBSPP_TRY(adopted,
                state_type::adopt(channel, reinterpret_cast<ibv_cq*>(native), whose, Features));
    return completion_queue_with(std::move(adopted));
  }

  /// The same queue, of which fewer features are known.
  template <completion_features Others>
    requires(Others != Features && detail::with_implied(Others).contains(Features))
  completion_queue_with(const completion_queue_with<Others>& other) noexcept
      : completion_queue(other) {}

  /// Calls `visit` with an `extended_completion<Features>` for each completion that is there, at
  /// most `most`; never blocks. All of it is one polling session of the device (`ibv_start_poll` to
  /// `ibv_end_poll`), which ends when this returns, or `visit` throws.
  ///
  /// `visit` may not poll: drivers may hold a lock through the session.
  /// \returns the number of completions; none is a normal answer
  /// \errors `busy` from within `visit`, where sessions could wait for each other; `driver` if the
  /// queue is broken, usually because it overran
  template <class Visit>
  VERBSPP_DATA_PATH result<std::size_t> poll_each(Visit&& visit, std::size_t most = SIZE_MAX) const
    requires PolledByField<Features>
  {
    assert(native_handle() != nullptr && "this completion queue was moved from");
    if (most == 0) [[unlikely]]
      return std::size_t{0};
    // Looked at and changed in one step: that is an instruction less.
    if (--detail::free_polling_sessions != 0) [[unlikely]]
      return detail::nested_polling();
    // libibverbs casts one to the other as well.
    auto* const queue = reinterpret_cast<ibv_cq_ex*>(native_handle());
    int returned = ibv_start_poll(queue, &detail::no_poll_attributes);
    // An empty queue is polled again and again: what is likely is what there is work after.
    if (returned != 0) [[unlikely]] {
      detail::free_polling_sessions = 1;
      if (returned == ENOENT) [[likely]]
        return std::size_t{0};
      return detail::start_poll_failure(returned);
    }
    detail::polling_session session(queue);
    // Signed, so that the compiler knows that it does not come round to 0: who asks only whether
    // there were any has nothing counted.
    std::ptrdiff_t count = 1;
    for (;; ++count) {
      detail::show<Features>(visit, queue);
      // Without a limit, which is known here, nothing is compared.
      if (most != SIZE_MAX && static_cast<std::size_t>(count) == most) break;
      returned = ibv_next_poll(queue);
      if (returned == 0) continue;
      if (returned == ENOENT) [[likely]]
        break;
      return session.fail(returned);
    }
    session.end();
    return static_cast<std::size_t>(count);
  }

  /// Takes the completions that are there, or sleeps until some come.
  ///
  /// No completion is slept through, however it falls between poll and request: the queue is polled
  /// again after the request. Several threads may wait for one queue, or for several queues of one
  /// channel; each completion goes to one of them. Does not allocate. With `solicited_only` it
  /// returns what is there, but sleeps through what was not solicited.
  ///
  /// \returns the slots that were filled, the first ones; none at the limit, which may be a request
  /// to stop, and not before. Signals do not end it.
  /// \errors `invalid_input` if there are no slots; `driver` if the queue is broken or the device
  /// is gone. A queue that breaks while it is slept on wakes nobody: the context's asynchronous
  /// events tell, and end a `wait_watching`.
  [[nodiscard]] result<std::span<const work_completion>> wait(
      std::span<work_completion> into VERBSPP_LIFETIMEBOUND, const wait_limit& until,
      notify_for which = notify_for::every_completion) const noexcept
    requires Waitable<Features>
  {
    return detail::wait_for_completions(*this, state(), into, until, which);
  }

  /// As `wait`, and also ends when a file descriptor of the program's is readable, hung up or in
  /// error, such as the socket that tells of the peer's death, and when this queue or the device
  /// fails. Completions that are there go first, and failures before the descriptor.
  ///
  /// The event of a failure is there for `context::poll_async_event` as well. Of a borrowed context
  /// whose asynchronous events are read blocking, only those end the wait that the program takes
  /// meanwhile, by `poll_async_event` of the handle that the queue was made from.
  ///
  /// \param file_descriptor below 0 for none
  /// \returns what ended it, and the slots that were filled
  /// \errors as `wait`; `invalid_input` if the file descriptor is not open; `resource_exhausted` if
  /// none are left for the library
  [[nodiscard]] result<watched_completions> wait_watching(
      std::span<work_completion> into VERBSPP_LIFETIMEBOUND, const wait_limit& until,
      int file_descriptor, notify_for which = notify_for::every_completion) const noexcept
    requires Waitable<Features>
  {
    return detail::wait_watching(*this, state(), into, until, file_descriptor, which);
  }

  /// Calls `visit`, as `poll_each` does, with each of the completions that are there, or sleeps
  /// until some come; at most `most`, all of one polling session. As `wait` otherwise; nothing of
  /// the device's is held while it sleeps.
  /// \returns the number of completions; none at the limit and not before
  /// \errors as `poll_each` and `wait`, `invalid_input` if `most` is 0
  template <class Visit>
  result<std::size_t> wait_each(Visit&& visit, const wait_limit& until, std::size_t most = SIZE_MAX,
                                notify_for which = notify_for::every_completion) const
    requires Waitable<Features> && PolledByField<Features>
  {
    constexpr const char* operation = "wait for completions";
    if (most == 0)
      return error(error_kind::invalid_input, operation, "it may take at most 0 completions");
    state_type* const waited_for = state();
    if (waited_for == nullptr) return detail::moved_from_queue(operation);
    for (;;) {
      VERBSPP_TRY(there, poll_each(visit, most));
      if (there != 0 || until.has_passed()) return there;
      VERBSPP_TRY(events, waited_for->ask_to_be_woken(which));
      VERBSPP_TRY(meanwhile, poll_each(visit, most));
      if (meanwhile != 0) {
        waited_for->stay_awake();
        return meanwhile;
      }
      VERBSPP_TRYV(waited_for->sleep(events, until));
    }
  }

  /// Asks for one event of the next completion from now on (`ibv_req_notify_cq`): for what is there
  /// already there will be none, so poll after it. For event loops; `wait` does it itself.
  /// \errors `driver`
  [[nodiscard]] result<void> request_notification(
      notify_for which = notify_for::every_completion) const noexcept
    requires Waitable<Features>
  {
    return detail::request_notification(native_handle(), which);
  }

  /// Where it reports: the channel that it was created for, or its own.
  [[nodiscard]] detail::dependent<class completion_channel, Features> completion_channel()
      const noexcept
    requires Waitable<Features>
  {
    return detail::dependent<class completion_channel, Features>::of(state());
  }

 private:
  friend class completion_queue;
  friend class completion_channel;

  explicit completion_queue_with(detail::reference<detail::completion_queue_state> state) noexcept
      : completion_queue(std::move(state)) {}
  explicit completion_queue_with(const completion_queue& known) noexcept
      : completion_queue(known) {}
};

/// A completion queue that can be slept on.
using waitable_completion_queue = completion_queue_with<completion_feature::waitable>;

/// A completion queue whose completions are read field by field, and only those that one asks for;
/// some devices have timestamps.
template <completion_features Fields>
using extended_completion_queue = completion_queue_with<Fields | completion_feature::extended>;

template <completion_features Features>
result<completion_queue_with<Features>> completion_queue::with() const noexcept {
  if (native_ == nullptr) return detail::moved_from_queue("completion_queue::with");
  if (!has(Features)) return detail::queue_without_features();
  return completion_queue_with<Features>(*this);
}

}  // namespace verbspp
