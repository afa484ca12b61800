// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/config.hpp>
#include <verbspp/base/detail/because.hpp>
#include <verbspp/base/detail/reference.hpp>
#include <verbspp/base/detail/trust_driver.hpp>
#include <verbspp/base/ownership.hpp>
#include <verbspp/base/result.hpp>
#include <verbspp/base/wait_limit.hpp>
#include <verbspp/device/context.hpp>
#include <verbspp/device/detail/async_listener.hpp>
#include <verbspp/queue/completion_feature.hpp>
#include <verbspp/work/work_completion.hpp>

#include <infiniband/verbs.h>

#include <cassert>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <span>
#include <utility>

namespace verbspp {

class completion_channel;
template <completion_features Features>
class completion_queue_with;

/// The completions that cause an event. The enumerators have the values of the argument
/// `solicited_only` of `ibv_req_notify_cq`.
enum class notify_for : int {
  every_completion = 0,
  /// Receives for which the sender requested an event (`solicited`), and all failures.
  solicited_only = 1,
};

/// The event that ended a wait for a completion queue and possibly for other objects.
enum class wait_end : std::uint8_t {
  completions,      ///< completions have arrived
  file_descriptor,  ///< a watched descriptor is ready, hung up or in error
  async_event,      ///< an object that the wait watches, or the device, has failed
  limit,            ///< the limit was reached, or a stop was requested
};

[[nodiscard]] const char* to_string(wait_end end) noexcept;

/// The conditions of a watched file descriptor that end a wait. An error of the descriptor always
/// ends the wait.
enum class watch_for : std::uint8_t {
  data_or_hang_up,  ///< data to read, or the other end was closed
  hang_up,          ///< the other end was closed; data does not end the wait
};

namespace detail {

struct completion_channel_state;

struct completion_queue_access;

/// A file descriptor to watch during a wait, which ends when the descriptor becomes ready.
struct watched_descriptor {
  int number = -1;  ///< negative for none
  watch_for what = watch_for::data_or_hang_up;
};

/// The objects that a sleeping thread watches besides a completion queue.
struct also_watched {
  watched_descriptor descriptor{};
  watched_descriptor another{};
  /// An eventfd that ends the sleep as a completion does; negative for none. It is ignored if there
  /// is no descriptor and no listener.
  int signal = -1;
  async_listener* listener = nullptr;  ///< null for none; it must be listening
};

struct completion_queue_state : counted {
  completion_queue_state(context parent, reference<completion_channel_state> reports_to,
                         completion_features with) noexcept;
  completion_queue_state(const completion_queue_state&) = delete;
  completion_queue_state& operator=(const completion_queue_state&) = delete;
  ~completion_queue_state();

  /// Creates a queue. A waitable queue gets a separate channel.
  [[nodiscard]] static result<reference<completion_queue_state>> create(
      const context& parent, std::size_t capacity, completion_features features) noexcept;
  /// Creates a queue that reports to this channel.
  [[nodiscard]] static result<reference<completion_queue_state>> create(
      const completion_channel& channel, std::size_t capacity,
      completion_features features) noexcept;

  /// Adopts a queue that was created elsewhere.
  [[nodiscard]] static result<reference<completion_queue_state>> adopt(
      const context& parent, ibv_cq* native, ownership whose,
      completion_features features) noexcept;
  /// Adopts a queue that reports to this channel.
  [[nodiscard]] static result<reference<completion_queue_state>> adopt(
      const completion_channel& channel, ibv_cq* native, ownership whose,
      completion_features features) noexcept;

  /// If the queue has a completion channel, registers the queue with it, and listens for failures.
  /// \param is_stranger true if the queue was created elsewhere
  /// \pre `native` is set
  void begin_reporting(bool is_stranger) noexcept;

  // A wait polls for completions, requests an event, polls again, and then sleeps. The second poll
  // is needed because completions that arrived before the event was requested cause no event.

  /// Requests an event for the next completion.
  /// \returns the number of events so far
  [[nodiscard]] result<std::uint64_t> ask_to_be_woken(notify_for which) noexcept;
  /// Like `ask_to_be_woken` with `every_completion`, but for a queue whose events only the library
  /// reads. If an event that it requested earlier has not been read yet, this function does not
  /// request another one, because the unread event will wake the thread. So at most one of its
  /// events is unread at any time.
  [[nodiscard]] result<std::uint64_t> stay_wakeable() noexcept;
  /// Reads the events that have arrived, so that they do not accumulate. Called when a wait does
  /// not need to sleep, and for event loops.
  void stay_awake() noexcept;
  /// Sleeps until the number of events exceeds `events`, until another watched object ends the
  /// wait, or until the limit expires. The caller has to poll again in each of these cases, because
  /// several of them can occur together. The result `completions` means that there was an event,
  /// or that `also.signal` was raised. Another thread may already have polled the completions that
  /// caused the event. If a listener is watched, this function also reads the available
  /// asynchronous events, and keeps them for the program.
  /// \errors `invalid_input` if the file descriptor is not open; `driver` if the device no longer
  /// exists, unless the listener has received an event about this failure; `resource_exhausted` if
  /// no file descriptor is left
  [[nodiscard]] result<wait_end> sleep(std::uint64_t events, const wait_limit& until,
                                       const also_watched& also = {}) noexcept;

  context owner;
  reference<completion_channel_state> channel;  ///< null if the queue is not waitable
  ibv_cq* native = nullptr;
  ownership destroyed_by = ownership::taken;
  completion_features features;
  std::uint64_t created_at;  ///< moment_now() when the queue was created or adopted
  async_listener failures;   ///< listens only if the queue has a channel

  /// The channel's data about the queue, guarded by the channel's lock.
  struct {
    std::uint64_t count = 0;      ///< the number of events so far
    unsigned unacknowledged = 0;  ///< the number of events to be acknowledged
    bool pending = false;         ///< an event has not been returned to a caller
    bool closed = false;          ///< the queue is being destroyed
    bool is_due = false;          ///< an event that `stay_wakeable` requested has not been read
    completion_queue_state* before = nullptr;  ///< in the channel's list of pending queues
    completion_queue_state* after = nullptr;
    completion_queue_state* previous = nullptr;  ///< in the channel's list of all queues
    completion_queue_state* next = nullptr;
  } events;
};

/// The error for a failed `ibv_poll_cq`. Not inline, because polling a healthy queue never fails.
[[nodiscard]] error poll_failure(int returned) noexcept VERBSPP_NONBLOCKING;
[[nodiscard]] error no_slots(const char* operation) noexcept VERBSPP_NONBLOCKING;
[[nodiscard]] error moved_from_queue(const char* operation) noexcept;
[[nodiscard]] error queue_without_features() noexcept;

/// The queue on which this thread has a polling session, for assertions. Always null if assertions
/// are disabled.
inline constinit thread_local const ibv_cq* queue_in_session = nullptr;

}  // namespace detail

/// The queue in which the device reports finished work.
///
/// A queue with more features, such as waiting or timestamps, is a
/// `completion_queue_with<features>`. That class is derived from this one, so its objects can be
/// passed wherever a `completion_queue` is expected, for instance to a queue pair's builder; `with`
/// converts back.
///
/// A shared handle, which is cheap to copy, and keeps its context alive. Any thread may poll,
/// unless the queue has the feature `completion_feature::single_threaded`; each completion is
/// returned to one thread. An overrun is reported by an asynchronous event of the context.
///
/// A moved-from handle is empty: its native handle is null, its capacity is 0, and calls that need
/// the device return `invalid_input`. Polling it, or calling its `context`, is an error, for which
/// debug builds have an assertion.
class completion_queue {
 public:
  /// Creates a queue for at least `capacity` completions (`ibv_create_cq`).
  ///
  /// The queue must have room for all work that can be outstanding at the same time on the queue
  /// pairs that use it. If the queue overruns, it becomes unusable, and so do its queue pairs.
  /// \errors `invalid_input` if the capacity is 0, above the device's limit or above INT_MAX;
  /// `resource_exhausted`, `driver`
  [[nodiscard]] static result<completion_queue> create(const context& parent,
                                                       std::size_t capacity) noexcept;

  /// Takes over or borrows a queue of this context that was created elsewhere (`ibv_create_cq`,
  /// librdmacm). It can be polled; to wait for it, see `completion_queue_with::from_native`.
  /// Asynchronous events that were read before this call are not attributed to this queue.
  /// \errors `invalid_input` for null, or for a queue of another context; `resource_exhausted`
  [[nodiscard]] static result<completion_queue> from_native(const class context& parent,
                                                            ibv_cq* native,
                                                            ownership whose) noexcept;
  /// Releases the queue to the caller, which must destroy the queue before its context is closed
  /// and, if it has a completion channel, before that channel is destroyed. If the library created
  /// that channel, keep a handle to it, or release it, too.
  /// \errors `busy` if there are other handles to the queue, such as one that a queue pair keeps;
  /// this handle then keeps the queue. `invalid_input` if this handle was moved from
  [[nodiscard]] result<ibv_cq*> release() && noexcept;

  /// Polls for completions, and writes them to the slots of `into`; does not wait for any.
  ///
  /// Must not be called within the function that is passed to `poll_each` of the same queue,
  /// because the driver may then hold a lock that this call needs. Debug builds assert this.
  /// \returns the filled slots, which are the first ones of `into`; empty if there are no
  /// completions
  /// \errors `invalid_input` if there are no slots; `driver` if the queue is broken, usually
  /// because it overran; `busy` if the driver refuses a call within `poll_each`
  [[nodiscard]] VERBSPP_DATA_PATH result<std::span<const work_completion>> poll(
      std::span<work_completion> into VERBSPP_LIFETIMEBOUND) const noexcept VERBSPP_NONBLOCKING {
    assert(native_ != nullptr && "this completion queue was moved from");
    assert(detail::queue_in_session != native_ &&
           "poll was called from the function that was passed to poll_each or wait_each of the "
           "same queue: call it only after poll_each or wait_each has returned");
    if (into.empty()) [[unlikely]]
      return detail::no_slots("ibv_poll_cq");
    const int wanted = into.size() < INT_MAX ? static_cast<int>(into.size()) : INT_MAX;
    const int filled = detail::trust_driver([&]() __attribute__((always_inline)) {
      return ibv_poll_cq(native_, wanted, reinterpret_cast<ibv_wc*>(into.data()));
    });
    if (filled < 0) [[unlikely]]
      return detail::poll_failure(filled);
    return std::span<const work_completion>(into.data(), static_cast<std::size_t>(filled));
  }

  /// Returns this queue with all or some of the features that it was created with, for code that
  /// was passed only a `completion_queue`.
  /// \errors `invalid_input` if the queue was not created with all of `Features`
  template <completion_features Features>
  [[nodiscard]] result<completion_queue_with<Features>> with() const noexcept;

  // These functions are declared only for their constraints, which are never satisfied here. So a
  // call does not compile, and the compiler's message names the feature that the queue lacks.
  template <completion_features Features = completion_features()>
  void wait(...) const
    requires Waitable<Features>;
  template <completion_features Features = completion_features()>
  void wait_each(...) const
    requires Waitable<Features>;
  template <completion_features Features = completion_features()>
  void request_notification(...) const
    requires Waitable<Features>;
  template <completion_features Features = completion_features()>
  void poll_each(...) const
    requires PolledByField<Features>;

  completion_queue(const completion_queue&) noexcept = default;
  completion_queue(completion_queue&& other) noexcept
      : native_(std::exchange(other.native_, nullptr)), state_(std::move(other.state_)) {}
  completion_queue& operator=(completion_queue other) noexcept {
    std::swap(native_, other.native_);
    std::swap(state_, other.state_);
    return *this;
  }
  ~completion_queue() = default;

  /// The number of completions for which the queue has room, which is at least the requested
  /// number.
  [[nodiscard]] std::size_t capacity() const noexcept {
    return native_ != nullptr ? static_cast<std::size_t>(native_->cqe) : 0;
  }
  [[nodiscard]] const class context& context() const& noexcept VERBSPP_LIFETIMEBOUND {
    assert(native_ != nullptr && "this completion queue was moved from");
    return state_->owner;
  }
  [[nodiscard]] class context context() && noexcept { return std::as_const(*this).context(); }
  [[nodiscard]] ibv_cq* native_handle() const noexcept { return native_; }
  friend bool operator==(const completion_queue&, const completion_queue&) noexcept = default;
  friend std::ostream& operator<<(std::ostream& out, const completion_queue& queue);

 protected:
  explicit completion_queue(detail::reference<detail::completion_queue_state> state) noexcept
      : native_(state->native), state_(std::move(state)) {}
  /// Null if this handle was moved from.
  [[nodiscard]] detail::completion_queue_state* state() const noexcept { return state_.get(); }

 private:
  friend class async_event;
  friend struct detail::completion_queue_access;

  [[nodiscard]] bool has(completion_features features) const noexcept {
    return state_->features.contains(features);
  }

  ibv_cq* native_;  // copied from the state, to save a load in the data path
  detail::reference<detail::completion_queue_state> state_;
};

namespace detail {
/// Gives higher layers access to a queue's state, so that they can implement their own waits.
struct completion_queue_access {
  /// Null if the handle was moved from.
  [[nodiscard]] static completion_queue_state* state_of(const completion_queue& queue) noexcept {
    return queue.state();
  }
};
}  // namespace detail

}  // namespace verbspp
