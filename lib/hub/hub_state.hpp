// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "hub/hub_member.hpp"
#include "hub/hub_rows.hpp"
#include "hub/shared_receives.hpp"
#include "wait/event_set.hpp"
#include "wait/loop_events.hpp"
#include <verbspp/base/detail/brief_lock.hpp>
#include <verbspp/base/result.hpp>
#include <verbspp/device/detail/async_listener.hpp>
#include <verbspp/hub/channel_hub.hpp>
#include <verbspp/hub/detail/hub_reference.hpp>
#include <verbspp/hub/detail/hub_turn.hpp>
#include <verbspp/memory/detail/watched_memory.hpp>
#include <verbspp/queue/completion_queue.hpp>
#include <verbspp/queue/queue_accounting.hpp>
#include <verbspp/queue/shared_receive_queue.hpp>
#include <verbspp/wait/detail/handed_calls.hpp>

#include <infiniband/verbs.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#pragma GCC visibility push(hidden)

namespace verbspp::detail {

/// The name of the operation in the error messages of waits.
inline constexpr const char* waiting_on_hub = "wait on a hub";

/// The state of a hub, shared by its handles and channels. Thread-safe, except for `poll_channels`.
class [[gnu::visibility("hidden")]] hub_state {
 public:
  [[nodiscard]] static result<hub_reference> create(const protection_domain& domain,
                                                    const message_pool* pool,
                                                    const hub_options& options) noexcept;
  hub_state(const hub_state&) = delete;
  hub_state& operator=(const hub_state&) = delete;
  void add_reference() noexcept { __atomic_fetch_add(&references_, 1U, __ATOMIC_RELAXED); }
  void drop_reference() noexcept {
    if (__atomic_fetch_sub(&references_, 1U, __ATOMIC_ACQ_REL) == 1) delete this;
  }

  // Functions that a channel of the hub calls.

  /// Adds the channel to the hub, and assigns an index to it.
  [[nodiscard]] result<void> join(hub_member& member) noexcept;
  /// Registers the number of the channel's queue pair, and reserves a place in the completion queue
  /// for each of its requests.
  [[nodiscard]] result<void> attach(hub_member& member, std::uint32_t number, unsigned port,
                                    std::uint64_t requests) noexcept;
  /// Processes the available completions. Returns 0 immediately if the hub never sleeps and another
  /// thread has the lock. \returns the negative value that a failed poll returned, otherwise 0
  [[nodiscard]] int look() noexcept;
  /// Returns true if polling has failed.
  [[nodiscard]] bool is_lost() const noexcept {
    return __atomic_load_n(&lost_, __ATOMIC_RELAXED) != 0;
  }
  /// Processes the available completions before a queue pair is destroyed. With a pool, continues
  /// until a short time after `channel_connection::stopped_at`, because completions of shared
  /// receives may arrive late.
  void take_all(std::chrono::steady_clock::time_point stopped_at) noexcept;
  /// Removes the queue pair of the channel, and drops the messages that are in its row.
  void detach(hub_member& member, bool is_destroyed) noexcept;
  /// Removes the channel. Undoes `attach` if `detach` was not called. The channel's index may be
  /// reused once no turn uses that index.
  void leave(hub_member& member) noexcept;
  /// Holds back the channel's arrivals until `release` is called, or `admit` if the hub has a table
  /// of clients.
  void hold(const hub_member& member) noexcept;
  /// Ends `hold`, and reports the arrivals that were held back. A no-op if the hub has a table of
  /// clients, which uses `admit` instead.
  void release(const hub_member& member) noexcept;
  /// Reports the channel on the first event of `watched`, which replaces the descriptor `before`. A
  /// negative number means that there is no descriptor.
  void watch(hub_member& member, const watched_descriptor& before,
             const watched_descriptor& watched) noexcept;

  /// From now on, keeps the messages of the channel for its inbox, and reports them as news.
  /// \returns false if the channel has an inbox already
  [[nodiscard]] bool open_inbox(const hub_member& member) noexcept;
  /// From now on, returns the channel's messages to callers of `poll` and `wait` again.
  void drop_inbox(const hub_member& member) noexcept;
  /// Moves the messages of the channel to its inbox. \returns their number
  /// \param is_short set to true if the pool has too few places for the shared receives
  [[nodiscard]] std::uint32_t take_messages(const hub_member& member, message_list& into,
                                            bool& is_short) noexcept;

  /// From now on, reports the channel whenever this descriptor becomes readable, until the
  /// descriptor is closed. \returns false if that is not possible
  [[nodiscard]] bool report_events_of(const hub_member& member, int descriptor) noexcept;
  /// Processes the events that wake waiting threads.
  void take_events() noexcept;
  /// As `take_events`, but also wakes threads for the channels that the events have reported. A
  /// no-op if the hub has never watched a descriptor or set an alarm.
  void look_at_events() noexcept {
    if (!__atomic_load_n(&is_watching_, __ATOMIC_RELAXED)) return;
    take_events();
    wake_waiting();
  }

  /// Makes the hub report the channel at the time `at`, unless the channel has an earlier alarm. If
  /// no timer can be created, the channel is not reported.
  void set_alarm(hub_member& member, std::chrono::steady_clock::time_point at) noexcept;

  /// Reports that the channel has news, if it still exists. Any thread may call this.
  void report(channel_id id) noexcept;
  /// Hands `call` over to a thread that polls or waits, which then makes the call.
  void hand_over(continuation& call) noexcept;

  // Functions for the hub's handles.

  [[nodiscard]] bool has_table() const noexcept { return table_ != nullptr; }
  [[nodiscard]] result<std::span<arrival>> poll(std::span<arrival> into) noexcept;
  [[nodiscard]] result<void> poll_channels() noexcept;
  /// Implements `channel_hub::take`.
  [[nodiscard, gnu::always_inline]] inline std::size_t take(std::span<arrival> into) noexcept;
  /// Waits for at least one arrival. \returns the number of slots filled
  [[nodiscard]] result<std::size_t> wait_longer(std::span<arrival> into, call_limit limit) noexcept;
  /// The next three functions implement the functions of `channel_hub` for event loops.
  [[nodiscard]] int loop_descriptor() noexcept;
  [[nodiscard]] result<bool> request_notification() noexcept;
  [[nodiscard]] wait_limit::time_point deadline() noexcept;
  [[nodiscard]] wait_mode waiting() const noexcept { return waiting_; }
  [[nodiscard]] std::uint32_t size() noexcept;
  [[nodiscard]] std::uint64_t room() noexcept;
  [[nodiscard]] std::uint32_t posted() noexcept;
  [[nodiscard]] std::uint32_t capacity() const noexcept { return rows_.capacity(); }
  [[nodiscard]] const completion_queue& queue() const noexcept { return queue_; }
  [[nodiscard]] const protection_domain& domain() const noexcept { return domain_; }
  [[nodiscard]] bool has_pool(const message_pool& pool) const noexcept {
    return receives_.has_pool(pool);
  }
  [[nodiscard]] const std::optional<shared_receive_queue>& receives() const noexcept {
    return receives_.queue();
  }

 private:
  friend struct hub_turn;  // has the functions for the table of clients

  hub_state(protection_domain domain, completion_queue queue, const hub_options& options) noexcept;
  ~hub_state();
  [[nodiscard]] result<void> start(const message_pool* pool, const hub_options& options) noexcept;

  struct found {
    std::size_t count = 0;
    bool is_short = false;  ///< the pool has too few free places for the receives
    /// True if there are arrivals for other threads, or calls that were handed over.
    bool has_more = false;
    /// True for every 32nd turn: `take_events` has to be called, in case no wait calls it.
    bool is_event_due = false;
  };
  /// The error if looking for arrivals has failed; otherwise empty.
  using cause = std::optional<error>;
  [[nodiscard]] bool has_more() const noexcept { return rows_.has_ready() || calls_.has_some(); }
  /// \param own 1 if the calling thread is counted in `waiting_threads_`; otherwise 0
  [[nodiscard]] found look_for_arrivals(std::span<arrival> into, std::uint32_t own,
                                        cause& failed) noexcept;
  [[nodiscard]] found look_for_turn(hub_turn& taken, cause& failed) noexcept;
  /// Finds the first channel that has news.
  [[nodiscard]] found look_for_news(hub_member*& next, cause& failed) noexcept;
  template <class Find>
  [[nodiscard]] result<found> wait_until(Find find, const wait_limit& limit) noexcept;
  template <class Find>
  [[nodiscard]] result<found> wait_counted(Find find, const wait_limit& limit) noexcept;
  /// Calls `find`, and returns what it reports. If it has found nothing, returns its failure, or a
  /// failure of the device that no poll has returned yet, if there is one.
  template <class Find>
  [[nodiscard]] result<found> poll_with(Find find, bool takes_events = true) noexcept;
  /// Wakes waiting threads and event loops, because there are arrivals or calls for which no
  /// completion will wake them.
  void wake_waiting() noexcept;
  /// Wakes other threads for the arrivals that are left, and makes the calls that were handed over.
  void do_more() noexcept {
    wake_waiting();
    calls_.run();
  }
  void ring_alarms() noexcept;
  [[nodiscard]] result<void> open_loop() noexcept;
  /// True if the device has reported a failure that no poll has returned.
  [[nodiscard]] bool has_new_failure() const noexcept {
    return listener_.has_heard() &&
           listener_.times_heard() != __atomic_load_n(&failures_told_, __ATOMIC_RELAXED);
  }

  // The caller of the following functions holds the lock, or the process has one thread.

  /// The caller's slots that are still empty. Functions that are not inlined take and return this
  /// object by value, so that it stays in registers.
  struct empty_slots {
    arrival* next = nullptr;
    std::size_t left = 0;

    void fill(channel_id source, message&& one) noexcept {
      next->source = source;
      next->message = std::move(one);
      ++next;
      --left;
    }
  };
  /// The progress of `take_usual`.
  struct polled {
    const ibv_wc* next = nullptr;  ///< the first completion that is not in a slot
    int filled = 0;                ///< the result of the poll; 0 if there was no poll
    int left = 0;                  ///< the number of completions from `next` on, or as `filled`
    [[nodiscard]] int done() const noexcept { return filled - left; }
  };
  /// Polls once, and stores the messages in slots, up to a completion that requires more than that.
  /// Does not poll if the hub needs care (`hub_rows::needs_care`), or if there are more slots than
  /// `at_once`. Advances `into.next`, but does not change `into.left`.
  /// \returns true if nothing else has to be done, except counting the receives that have ended,
  /// posting new ones, and looking further if the slots are full and other threads wait; otherwise,
  /// `take_more` has to be called
  [[nodiscard, gnu::always_inline]] inline bool take_usual(empty_slots& into, ibv_wc* completions,
                                                           polled& now) noexcept;
  /// Takes arrivals in every case, after `take_usual`, whose results are the arguments. Posts
  /// receives. \param others_wait true if other threads or event loops wait for arrivals
  /// \returns the number of slots filled, by both functions
  [[nodiscard, gnu::noinline]] std::size_t take_more(empty_slots into, const ibv_wc* next,
                                                     int filled, int done,
                                                     bool others_wait) noexcept;
  /// `take` in a process with several threads. The caller does not hold the lock.
  [[nodiscard, gnu::noinline]] std::size_t take_locked(std::span<arrival> into) noexcept;
  /// The rest of `take` in a process with one thread, after `take_usual`.
  [[nodiscard, gnu::noinline]] std::size_t take_rest(empty_slots into, const ibv_wc* next,
                                                     int filled, int done) noexcept;
  static constexpr std::size_t at_once = 32;  ///< the number of completions that one poll takes
  /// The number of completions that a poll takes if this number of slots is empty.
  [[nodiscard]] static int room_for(std::size_t slots) noexcept {
    return static_cast<int>(std::min(at_once, slots));
  }
  /// True if the message of this completion can be stored in a slot, provided that the list of its
  /// channel contains no earlier messages. Otherwise it has failed, or has to be appended to that
  /// list, because the row has reasons not to report it.
  [[nodiscard, gnu::always_inline]] static inline bool is_for_slot(const ibv_wc& completion,
                                                                   const hub_row& row) noexcept;
  /// Stores the message of a completion in a slot that contains no message, but does not count it.
  /// \pre `is_for_slot`, and the list of its channel contains no messages
  [[gnu::always_inline]] inline void fill(arrival& slot, const ibv_wc& completion,
                                          const hub_row& row) noexcept;
  /// Processes completions: stores messages in slots, or in the lists of their channels if there
  /// are no more slots. If `count` is negative, polling has failed.
  template <bool HasSlots>
  [[gnu::always_inline]] inline void hand_out(const ibv_wc* completions, int count,
                                              empty_slots& into) noexcept;
  /// As `hand_out`, with slots.
  [[nodiscard, gnu::noinline]] empty_slots hand_out_to(empty_slots into, const ibv_wc* completions,
                                                       int count) noexcept;
  [[gnu::always_inline]] inline void hand_out_shared(const ibv_wc& completion,
                                                     hub_row& row) noexcept;
  /// Processes completions until the slots are full, or no more are available.
  [[nodiscard, gnu::noinline]] empty_slots take_completions(empty_slots into) noexcept;
  /// Processes all completions. A thread that will sleep has to do so, since only new completions
  /// wake it.
  void take_all_completions() noexcept;
  void end_watch(const ibv_wc* completions, int count) noexcept;
  [[gnu::noinline]] void list(pool_place& place, hub_row& row) noexcept;
  void fail_shared(const ibv_wc& completion, pool_place& place, hub_row& row) noexcept;
  void lose_queue(int returned) noexcept;
  /// Fills slots with the arrivals of ready rows.
  [[nodiscard, gnu::noinline]] empty_slots take_listed(empty_slots into) noexcept;
  /// Returns the result for the case that no arrivals were found. \param failed set to the error,
  /// if there is one
  [[nodiscard]] found found_none(cause& failed) const noexcept;
  [[nodiscard]] hub_turn begin_turn(hub_row& row) noexcept;
  /// Removes and returns the first message. \pre the list is not empty
  [[nodiscard]] static message take_first(message_list& from) noexcept {
    pool_place& place = from.take_first();
    return {&place, place.message_size()};
  }
  void drop_arrivals(hub_row& row) noexcept;

  brief_lock lock_{};  // comes first, so that calls of its functions need not compute its address
  unsigned references_ = 1;
  protection_domain domain_;
  completion_queue queue_;
  wait_mode waiting_;
  bool is_watched_ = device_memory_is_watched();
  int lost_ = 0;  ///< the negative value that a failed poll returned; 0: none
  completion_queue_accounting room_;
  hub_rows rows_;
  shared_receives receives_{};
  handed_calls calls_{};
  std::unique_ptr<void, void (*)(void*)> table_{nullptr,
                                                nullptr};  ///< the table of clients, if any
  bool is_table_closed_ = false;

  loop_events loop_{waiting_on_hub};  ///< for event loops of the program
  bool has_loop_ = false;    ///< true once `loop_` is completely set up; accessed atomically
  async_listener listener_;  ///< for failures of the device
  std::uint32_t failures_told_ = 0;  ///< `times_heard()` when a poll last handled a failure
  /// The events of the hub that wake all waiting threads: a call of `wake`, an event on a channel's
  /// descriptor, and the expiry of the timer. hub_waits.cpp defines the tags.
  event_set events_{};
  /// True once the descriptor of a channel or the timer was passed to `events_`. Accessed
  /// atomically.
  bool is_watching_ = false;
  std::uint32_t turns_ = 0;  ///< the number of turns found so far
  int timer_ = -1;           ///< expires at the earliest alarm of any channel; in `events_`
  std::int64_t next_alarm_ = hub_member::no_alarm;
  std::uint32_t waiting_threads_ = 0;  ///< accessed atomically
  bool loops_wait_ = false;  ///< an event loop may be asleep and need waking; accessed atomically
};

}  // namespace verbspp::detail

#pragma GCC visibility pop
