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

/// The outcome of `wait_watching`, which waits for a completion queue and for other objects.
struct watched_completions {
  wait_end ended_by = wait_end::limit;
  std::span<const work_completion> completions{};  ///< empty if the wait ended for another reason
  std::optional<async_event> event{};              ///< the event that ended the wait
};

namespace detail {

/// The attributes that `poll_each` passes to the driver. They request no additional data, and
/// drivers only read them.
inline constinit ibv_poll_cq_attr no_poll_attributes{};

/// Returns the error for a call of `poll_each` within another polling session of the same thread,
/// and undoes that call's decrement of `free_polling_sessions`.
[[nodiscard]] error nested_polling() noexcept;
[[nodiscard]] error start_poll_failure(int returned) noexcept;
/// Returns the error for a failed call of `ibv_next_poll`, and ends the session.
[[nodiscard]] error next_poll_failure(ibv_cq_ex* queue, int returned) noexcept;

/// Implements `completion_queue_with::wait`.
[[nodiscard]] result<std::span<const work_completion>> wait_for_completions(
    const completion_queue& queue, completion_queue_state* state, std::span<work_completion> into,
    const wait_limit& until, notify_for which) noexcept;
/// Implements `completion_queue_with::wait_watching`.
[[nodiscard]] result<watched_completions> wait_watching(
    const completion_queue& queue, completion_queue_state* state, std::span<work_completion> into,
    const wait_limit& until, int file_descriptor, notify_for which) noexcept;
[[nodiscard]] result<void> request_notification(ibv_cq* queue, notify_for which) noexcept;

/// The number of polling sessions that this thread may start now: 1, or 0 during a session.
inline constinit thread_local int free_polling_sessions = 1;

/// Records the session for the assertion in `completion_queue::poll`.
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
  /// Ends the session if a visitor has thrown an exception. After `end`, the compiler knows that
  /// the pointer is null, and omits the test.
  VERBSPP_DATA_PATH ~polling_session() {
    if (queue_ != nullptr) [[unlikely]]
      end();
  }

  VERBSPP_DATA_PATH void end() noexcept {
    ibv_end_poll(std::exchange(queue_, nullptr));
    free_polling_sessions = 1;
    note_session(nullptr);
  }
  /// Ends the session after `ibv_next_poll` has failed and returned this value, and returns the
  /// error.
  [[nodiscard]] VERBSPP_DATA_PATH error fail(int returned) noexcept {
    note_session(nullptr);
    return next_poll_failure(std::exchange(queue_, nullptr), returned);
  }

 private:
  ibv_cq_ex* queue_;
};

/// Passes the current completion to a visitor, either as a constant or as a temporary, depending on
/// the type of the visitor's parameter.
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

/// A completion queue with one or more features beyond polling for `work_completion`s: threads can
/// sleep on it (`waitable_completion_queue`), completions can be read field by field
/// (`extended_completion_queue`), or the driver may omit locks:
///
///     using timed_queue = completion_queue_with<completion_feature::waitable |
///                                               completion_feature::timestamp>;
///     VERBSPP_TRY(queue, timed_queue::create(context, 64));
///     VERBSPP_TRY(count, queue.wait_each([](const auto& completion) { ... }, 100ms));
///
/// Like every completion queue, this is a shared handle that is cheap to copy. It converts to a
/// `completion_queue`, and to a queue with fewer features. Thread rule: any thread may poll and
/// wait, unless the queue is `single_threaded`. While one thread reads completions field by field,
/// other threads that poll the queue may block, because drivers may hold a lock.
template <completion_features Features>
class completion_queue_with : public completion_queue {
  // The same type as `verbspp::result<Value>`, but instantiated only where it is used.
  template <class Value>
  using result = verbspp::result<detail::dependent<Value, Features>>;
  using state_type = detail::dependent<detail::completion_queue_state, Features>;

 public:
  static constexpr completion_features features = Features;

  /// Creates a queue for at least `capacity` completions (`ibv_create_cq`, or `ibv_create_cq_ex` if
  /// the features require it). A waitable queue gets a separate completion channel.
  /// \errors those of `completion_queue::create`, and `not_supported` if the device has no queues
  /// with all of these features
  [[nodiscard]] static result<completion_queue_with> create(const class context& parent,
                                                            std::size_t capacity) noexcept {
    VERBSPP_TRY(created, state_type::create(parent, capacity, Features));
    return completion_queue_with(std::move(created));
  }
  /// Creates a queue that reports to this channel, which other queues may share.
  [[nodiscard]] static result<completion_queue_with> create(const class completion_channel& channel,
                                                            std::size_t capacity) noexcept
    requires Waitable<Features>
  {
    VERBSPP_TRY(created, state_type::create(channel, capacity, Features));
    return completion_queue_with(std::move(created));
  }

  /// The C type of a queue with these features.
  using native_type =
      std::conditional_t<detail::with_implied(Features).contains(completion_feature::extended),
                         ibv_cq_ex, ibv_cq>;

  /// Takes over or borrows a queue of this context that was created elsewhere with these features.
  /// A waitable queue must be adopted with its channel.
  /// \errors those of `completion_queue::from_native`, `invalid_input` if the queue lacks one of
  /// the fields, and `driver`
  [[nodiscard]] static result<completion_queue_with> from_native(const class context& parent,
                                                                 native_type* native,
                                                                 ownership whose) noexcept
    requires NeedsNoChannel<Features>
  {
    VERBSPP_TRY(adopted,
                state_type::adopt(parent, reinterpret_cast<ibv_cq*>(native), whose, Features));
    return completion_queue_with(std::move(adopted));
  }
  /// Takes over or borrows a queue that reports to this channel.
  /// \errors as above, and `invalid_input` if the queue reports to another channel, or to none
  [[nodiscard]] static result<completion_queue_with> from_native(
      const class completion_channel& channel, native_type* native, ownership whose) noexcept
    requires Waitable<Features>
  {
    VERBSPP_TRY(adopted,
                state_type::adopt(channel, reinterpret_cast<ibv_cq*>(native), whose, Features));
    return completion_queue_with(std::move(adopted));
  }

  /// Converts from a queue with more features.
  template <completion_features Others>
    requires(Others != Features && detail::with_implied(Others).contains(Features))
  completion_queue_with(const completion_queue_with<Others>& other) noexcept
      : completion_queue(other) {}

  /// Calls `visit` with an `extended_completion<Features>` for each available completion, at most
  /// `most` times; does not wait for any. All calls are part of one polling session of the device
  /// (`ibv_start_poll` to `ibv_end_poll`), which ends when this function returns or `visit` throws.
  ///
  /// `visit` must not poll this queue, because drivers may hold a lock during the session.
  /// \returns the number of completions; 0 if none are available
  /// \errors `busy` if `visit` calls `poll_each`, of this or another queue, because two sessions
  /// could deadlock, or, with `wall_clock`, if the driver (mlx5) cannot read the device's clock at
  /// the moment; `driver` if the queue is broken, usually because it overran
  template <class Visit>
  VERBSPP_DATA_PATH result<std::size_t> poll_each(Visit&& visit, std::size_t most = SIZE_MAX) const
    requires PolledByField<Features>
  {
    assert(native_handle() != nullptr && "this completion queue was moved from");
    if (most == 0) [[unlikely]]
      return std::size_t{0};
    // One expression both changes and tests the counter, which saves an instruction.
    if (--detail::free_polling_sessions != 0) [[unlikely]]
      return detail::nested_polling();
    // libibverbs uses the same cast between the two types.
    auto* const queue = reinterpret_cast<ibv_cq_ex*>(native_handle());
    int returned = ibv_start_poll(queue, &detail::no_poll_attributes);
    // Polls that find nothing are frequent, but the path with work to do is the one to optimize.
    if (returned != 0) [[unlikely]] {
      detail::free_polling_sessions = 1;
      if (returned == ENOENT) [[likely]]
        return std::size_t{0};
      return detail::start_poll_failure(returned);
    }
    detail::polling_session session(queue);
    // The count is signed, so that the compiler knows that it does not wrap to 0. If a caller only
    // tests for 0, the compiler then omits the counting.
    std::ptrdiff_t count = 1;
    for (;; ++count) {
      detail::show<Features>(visit, queue);
      // If the caller sets no maximum, the compiler knows this here, and omits the test.
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

  /// Polls for completions, and sleeps until one arrives if there are none.
  ///
  /// No completion is missed: the queue is polled, an event is requested, and the queue is polled
  /// again before the thread sleeps. Several threads may wait for one queue, or for several queues
  /// of one channel; each completion is returned to one of them. The wait does not allocate memory,
  /// except when a thread sleeps with a stop token for the first time.
  /// With `solicited_only`, a successful completion that is not solicited does not end the sleep.
  /// The wait still returns available completions of both kinds.
  ///
  /// \returns the filled slots, which are the first ones of `into`; empty only if the limit has
  /// expired or a stop was requested. Signals do not end the wait.
  /// \errors `invalid_input` if there are no slots; `driver` if the queue is broken or the device
  /// no longer exists; `resource_exhausted` if no file descriptor is left (only with a stop token).
  /// A thread that sleeps in this function is not woken when the queue fails. The failure is
  /// reported by an asynchronous event of the context, which also ends `wait_watching`.
  [[nodiscard]] result<std::span<const work_completion>> wait(
      std::span<work_completion> into VERBSPP_LIFETIMEBOUND, const wait_limit& until,
      notify_for which = notify_for::every_completion) const noexcept
    requires Waitable<Features>
  {
    return detail::wait_for_completions(*this, state(), into, until, which);
  }

  /// Like `wait`, but also ends when this queue or the device fails, or when a file descriptor of
  /// the program (such as a socket that reports the peer's death) is readable, hung up or in error.
  /// If several of these occur together, completions take precedence over failures, and failures
  /// over the descriptor.
  ///
  /// Each failure is reported by an asynchronous event, which `context::poll_async_event` returns
  /// to the program as well.
  ///
  /// If the context is borrowed, and the file descriptor of its asynchronous events is blocking,
  /// the wait does not read these events. To end such a wait when a failure occurs, another thread
  /// has to call `poll_async_event` on the context handle from which the queue was created.
  ///
  /// \param file_descriptor the descriptor; a negative number means none
  /// \returns the cause that ended the wait, and the slots that were filled
  /// \errors those of `wait`; `invalid_input` if the file descriptor is not open;
  /// `resource_exhausted` if no file descriptor is left for the library
  [[nodiscard]] result<watched_completions> wait_watching(
      std::span<work_completion> into VERBSPP_LIFETIMEBOUND, const wait_limit& until,
      int file_descriptor, notify_for which = notify_for::every_completion) const noexcept
    requires Waitable<Features>
  {
    return detail::wait_watching(*this, state(), into, until, file_descriptor, which);
  }

  /// Waits as `wait` does, and calls `visit` for each completion, as `poll_each` does: for at most
  /// `most` completions, all in one polling session. No polling session is open while the thread
  /// sleeps.
  /// \returns the number of completions; 0 only if the limit has expired or a stop was requested
  /// \errors those of `poll_each` and `wait`, `invalid_input` if `most` is 0
  template <class Visit>
  result<std::size_t> wait_each(Visit&& visit, const wait_limit& until, std::size_t most = SIZE_MAX,
                                notify_for which = notify_for::every_completion) const
    requires Waitable<Features> && PolledByField<Features>
  {
    constexpr const char* operation = "wait for completions";
    if (most == 0)
      return error(error_kind::invalid_input, operation,
                   "the maximum number of completions is 0: pass at least 1");
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

  /// Requests one event for the next completion that arrives after this call (`ibv_req_notify_cq`).
  /// Completions that have already arrived cause no event, so poll after the call. This function is
  /// for event loops; `wait` does this itself.
  /// \errors `driver`
  [[nodiscard]] result<void> request_notification(
      notify_for which = notify_for::every_completion) const noexcept
    requires Waitable<Features>
  {
    return detail::request_notification(native_handle(), which);
  }

  /// The channel to which the queue reports.
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

/// A completion queue that threads can sleep on.
using waitable_completion_queue = completion_queue_with<completion_feature::waitable>;

/// A completion queue whose completions are read field by field. Besides the id, the status and the
/// operation, they have only the requested fields. Not all devices offer the timestamp fields.
template <completion_features Fields>
using extended_completion_queue = completion_queue_with<Fields | completion_feature::extended>;

template <completion_features Features>
result<completion_queue_with<Features>> completion_queue::with() const noexcept {
  if (native_ == nullptr) return detail::moved_from_queue("completion_queue::with");
  if (!has(Features)) return detail::queue_without_features();
  return completion_queue_with<Features>(*this);
}

}  // namespace verbspp
