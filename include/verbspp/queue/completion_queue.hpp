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

/// Which completions make an event; the values are those of `ibv_req_notify_cq`.
enum class notify_for : int {
  every_completion = 0,
  /// Receives whose sender asked for it (`solicited`), and every failure.
  solicited_only = 1,
};

/// What ended a wait that watches more than a completion queue.
enum class wait_end : std::uint8_t {
  completions,      ///< there are some
  file_descriptor,  ///< the program's is readable, hung up or in error
  async_event,      ///< the queue or the device has failed
  limit,            ///< the time has come, or a stop was requested
};

[[nodiscard]] const char* to_string(wait_end end) noexcept;

/// What of a file descriptor of the program's ends a wait. One that is in error does in any case.
enum class watch_for : std::uint8_t {
  data_or_hang_up,  ///< there is something to read, or the other end has closed it
  hang_up,          ///< only that; data in it are no concern of the wait's
};

namespace detail {

struct completion_channel_state;

struct completion_queue_access;

/// A file descriptor of the program's that ends waits.
struct watched_descriptor {
  int number = -1;  ///< below 0 for none
  watch_for what = watch_for::data_or_hang_up;
};

/// What a sleep watches besides a completion queue.
struct also_watched {
  watched_descriptor descriptor{};
  watched_descriptor another{};
  const async_listener* listener = nullptr;  ///< null for none; it has to listen
};

struct completion_queue_state : counted {
  completion_queue_state(context parent, reference<completion_channel_state> reports_to,
                         completion_features with) noexcept;
  completion_queue_state(const completion_queue_state&) = delete;
  completion_queue_state& operator=(const completion_queue_state&) = delete;
  ~completion_queue_state();

  /// Creates a queue; if it is to be waitable, with a channel of its own.
  [[nodiscard]] static result<reference<completion_queue_state>> create(
      const context& parent, std::size_t capacity, completion_features features) noexcept;
  /// The same, reporting to that channel.
  [[nodiscard]] static result<reference<completion_queue_state>> create(
      const completion_channel& channel, std::size_t capacity,
      completion_features features) noexcept;

  /// For a queue that was made elsewhere.
  [[nodiscard]] static result<reference<completion_queue_state>> adopt(
      const context& parent, ibv_cq* native, ownership whose,
      completion_features features) noexcept;
  /// The same, of one that reports to that channel.
  [[nodiscard]] static result<reference<completion_queue_state>> adopt(
      const completion_channel& channel, ibv_cq* native, ownership whose,
      completion_features features) noexcept;

  /// For a queue that is there now.
  void begin_reporting(bool is_stranger) noexcept;

  // A wait looks for completions, asks to be woken, looks again, since what came before it asked
  // wakes nobody, and sleeps.

  /// Asks for an event of the next completion.
  /// \returns the number of the events so far
  [[nodiscard]] result<std::uint64_t> ask_to_be_woken(notify_for which) noexcept;
  /// There is no need to sleep: the event that was asked for may come, and is not left to pile up.
  void stay_awake() noexcept;
  /// Sleeps until there are more events than that (`completions`, all of which another thread may
  /// have polled by now), until what else is watched has something to tell, or until the limit.
  /// Poll again whichever it was: they may have come together. Asynchronous events that are there
  /// are read, and kept for the program.
  /// \errors `invalid_input` if the file descriptor is not open; `driver` if the device is gone and
  /// the listener knows no more of it; `resource_exhausted` for file descriptors
  [[nodiscard]] result<wait_end> sleep(std::uint64_t events, const wait_limit& until,
                                       const also_watched& also = {}) noexcept;

  context owner;
  reference<completion_channel_state> channel;  ///< none if nobody can wait for the queue
  ibv_cq* native = nullptr;
  ownership destroyed_by = ownership::taken;
  completion_features features;
  std::uint64_t created_at;  ///< as `moment_now` counts
  async_listener failures;   ///< listens if there is a channel

  /// What the channel knows of the queue; its lock guards it.
  struct {
    std::uint64_t count = 0;                   ///< of the events so far
    unsigned unacknowledged = 0;               ///< of these
    bool pending = false;                      ///< an event that nobody has been given
    bool closed = false;                       ///< the queue is being destroyed
    completion_queue_state* before = nullptr;  ///< among the pending ones
    completion_queue_state* after = nullptr;
    completion_queue_state* previous = nullptr;  ///< among all of the channel
    completion_queue_state* next = nullptr;
  } events;
};

/// What a failed `ibv_poll_cq` is; out of line, since it never happens on a healthy queue.
[[nodiscard]] error poll_failure(int returned) noexcept VERBSPP_NONBLOCKING;
[[nodiscard]] error no_slots(const char* operation) noexcept VERBSPP_NONBLOCKING;
[[nodiscard]] error moved_from_queue(const char* operation) noexcept;
[[nodiscard]] error queue_without_features() noexcept;

/// The queue of this thread's polling session, for assertions: where there are none, it stays null.
inline constinit thread_local const ibv_cq* queue_in_session = nullptr;

}  // namespace detail

/// Where the device reports that work has finished.
///
/// One that can do more than be polled, such as be slept on, or tell when work was done, is a
/// `completion_queue_with<features>`. It is a completion queue like every other besides: whatever
/// takes one, such as a queue pair's builder, takes it; `with` has it back.
///
/// A shared handle, cheap to copy; keeps its context alive. Thread-safe as libibverbs is: any
/// thread may poll, each completion goes to one of them; but see
/// `completion_feature::single_threaded`. That it overran, the context's asynchronous events tell.
///
/// A handle that was moved from is empty: its native handle is null, it has room for nothing, and
/// what asks the device is refused (`invalid_input`). But nobody may poll it, nor ask it for its
/// context: these are assertions.
class completion_queue {
 public:
  /// Creates a queue for at least `capacity` completions (`ibv_create_cq`).
  ///
  /// Size it for everything that can be outstanding at once on the queue pairs that use it: a queue
  /// that overruns is lost, and its queue pairs with it.
  /// \errors `invalid_input` if the capacity is 0, above the device's limit or above INT_MAX;
  /// `resource_exhausted`
  [[nodiscard]] static result<completion_queue> create(const context& parent,
                                                       std::size_t capacity) noexcept;

  /// Takes over, or borrows, a queue of this context that was made elsewhere (`ibv_create_cq`,
  /// librdmacm). It can be polled; to wait for it, see `completion_queue_with::from_native`.
  /// Asynchronous events that were taken before this concern some other queue.
  /// \errors `invalid_input` for null, or one of another context; `resource_exhausted`
  [[nodiscard]] static result<completion_queue> from_native(const class context& parent,
                                                            ibv_cq* native,
                                                            ownership whose) noexcept;
  /// Gives the queue away as it is: whoever takes it destroys it, before its completion channel, if
  /// it has one, and its context. The library's own channel of the queue has to be kept so long, or
  /// be released, too.
  /// \errors `busy` while there are other handles of it, such as a queue pair's, and it stays as it
  /// is; `invalid_input` if it was moved from
  [[nodiscard]] result<ibv_cq*> release() && noexcept;

  /// Takes the completions that are there, up to as many as there are slots; never blocks.
  ///
  /// Not from within the function that `poll_each` of the same queue calls, which holds what this
  /// would wait for: an assertion.
  /// \returns the slots that were filled, the first ones; none is a normal answer
  /// \errors `invalid_input` if there are no slots; `driver` if the queue is broken, usually
  /// because it overran
  [[nodiscard]] VERBSPP_DATA_PATH result<std::span<const work_completion>> poll(
      std::span<work_completion> into VERBSPP_LIFETIMEBOUND) const noexcept VERBSPP_NONBLOCKING {
    assert(native_ != nullptr && "this completion queue was moved from");
    assert(detail::queue_in_session != native_ &&
           "poll from within the function that poll_each of the same queue calls");
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

  /// The same queue with the features that it was created with, or some of them: for where a
  /// `completion_queue` was all that was passed on.
  /// \errors `invalid_input` if it was not created with all of them
  template <completion_features Features>
  [[nodiscard]] result<completion_queue_with<Features>> with() const noexcept;

  // The same calls of a `completion_queue_with` have their requirements.
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

  /// The number of completions that the device granted room for; at least what was asked for.
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
  /// Null if this was moved from.
  [[nodiscard]] detail::completion_queue_state* state() const noexcept { return state_.get(); }

 private:
  friend class async_event;
  friend struct detail::completion_queue_access;

  [[nodiscard]] bool has(completion_features features) const noexcept {
    return state_->features.contains(features);
  }

  ibv_cq* native_;  // also in the state; here it saves the data path a load
  detail::reference<detail::completion_queue_state> state_;
};

namespace detail {
/// For the floors above: what a handle refers to, for waits of their own.
struct completion_queue_access {
  /// Null if it was moved from.
  [[nodiscard]] static completion_queue_state* state_of(const completion_queue& queue) noexcept {
    return queue.state();
  }
};
}  // namespace detail

}  // namespace verbspp
