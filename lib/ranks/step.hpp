// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ranks/blame.hpp"
#include "ranks/farewell.hpp"
#include "ranks/signal_memory.hpp"
#include "ranks/signals.hpp"
#include "ranks/step_limits.hpp"
#include <verbspp/base/detail/owned.hpp>
#include <verbspp/base/error.hpp>
#include <verbspp/base/result.hpp>
#include <verbspp/base/wait_limit.hpp>
#include <verbspp/channel/pending.hpp>
#include <verbspp/channel/scope.hpp>
#include <verbspp/core/detail/channel_core.hpp>
#include <verbspp/group/detail/member_connector.hpp>
#include <verbspp/group/group.hpp>
#include <verbspp/group/group_error.hpp>
#include <verbspp/group/group_results.hpp>
#include <verbspp/group/peer_list.hpp>
#include <verbspp/memory/detail/memory_keeper.hpp>

#include <sched.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <thread>
#include <utility>

#pragma GCC visibility push(hidden)

namespace verbspp::detail {

/// The time for which a thread sleeps between two polls while it waits for other ranks; also the
/// shortest pause between two polls in an event loop.
inline constexpr auto time_between_polls = std::chrono::microseconds(50);

/// Posts a request for whose completion nothing waits. \returns a handle that refers to no request
/// if the request could not be posted, for instance because the queue is full
template <class Operation>
[[nodiscard]] kept_pending post_unwaited(const channel& with, const Operation& operation,
                                         kept_memory memory) noexcept {
  channel_core& core = with.core();
  request made;
  if (core.post(operation, made).has_value()) {
    core.keep(made, memory);
    return {&core, made};
  }
  memory.let_go();
  return {};
}

inline constexpr const char* collective_step = "collective step of a world";

[[nodiscard]] inline error other_step() noexcept {
  return {error_kind::mismatch, collective_step,
          "that rank is at another step: all ranks have to call the same steps, in the same order, "
          "with the same list of ranks, root, type of value and kind of barrier"};
}

[[nodiscard]] inline error told_by_others(error_kind kind) noexcept {
  return {kind, collective_step,
          "another rank has reported this kind of failure for that rank, and has aborted the step: "
          "see the output of that rank"};
}
/// The error that reports a farewell from `rank`. The culprit may be `rank` itself. If `is_lost` is
/// true in that case, `rank` has reported that a connection to the calling rank is lost.
[[nodiscard]] inline error told_by(std::uint32_t rank, std::uint32_t culprit, error_kind kind,
                                   bool is_lost) noexcept {
  if (culprit != rank) return told_by_others(kind);
  if (!is_lost)
    return {
        kind, collective_step,
        "that rank has aborted the step: see the error there; if there is none, its program has "
        "destroyed the barrier_session or the world"};
  return {
      kind, collective_step,
      "that rank has aborted the step, because a connection of this rank or of that rank is lost: "
      "call mend() on all ranks"};
}

[[nodiscard]] inline error given_up() noexcept {
  return {error_kind::timed_out, collective_step,
          "that rank is at a later step, and has not done its part of this one: see the error "
          "there, and check that all ranks call the same steps"};
}

[[nodiscard]] inline error aborted() noexcept {
  return {error_kind::cancelled, collective_step, "this rank has aborted the step"};
}

[[nodiscard]] inline error not_of_the_world() noexcept {
  return {error_kind::not_connected, collective_step,
          "the channel to that rank is not the one that the world has connected: the program has "
          "replaced it, connected it to another peer, or moved it out of the world, or mend() has "
          "failed"};
}

/// Mixes a value into a hash that distinguishes steps from one another.
[[nodiscard]] constexpr std::uint64_t mixed(std::uint64_t hash, std::uint64_t value) noexcept {
  return (hash ^ value) * 0x100'0000'01b3U;
}
[[nodiscard]] constexpr std::uint16_t tag_of(std::initializer_list<std::uint64_t> what) noexcept {
  std::uint64_t hash = 0xcbf2'9ce4'8422'2325U;
  for (const std::uint64_t each : what) hash = mixed(hash, each);
  return static_cast<std::uint16_t>(hash ^ (hash >> 32));
}

/// This rank's part in one step. After a failure, signals and values are no longer written or
/// awaited, but still counted.
///
/// Values are counted before the step begins, and signals even after a failure, so that the counts
/// match those of the other ranks however the step ends. In one step, at most one value is sent in
/// each direction between two ranks.
///
/// `begin`, `signal`, `await` and `end` return true when they are done, and have to be called again
/// otherwise. If the caller may block, `begin` waits for addresses from the bootstrap, and `end`
/// for the step's requests. Otherwise, `begin` waits for addresses for up to 200 ms in each call,
/// and `end` does not wait for requests, but closes their connections when the limit is reached.
/// `signal` and `await` do not wait for the other rank. `checks` makes a call also respond to
/// connection requests, which may take up to 200 ms for each new rank, and look for failures and
/// for the limit. That is too expensive for each round of a thread that polls. The functions for
/// values wait, except `promise` and `expect`. `drive` and `finish` wait as well: they repeat a
/// call until it returns true.
class [[gnu::visibility("hidden")]] signals::step {
 public:
  /// \param ranks must stay valid as long as this object exists
  /// \param left_out the reason why this rank does not take part, if there is one. This rank then
  /// only counts signals and values, and notifies the others.
  step(signals& of, group& peers, const peer_list& ranks, std::uint16_t tag,
       const wait_limit& limit, blocks may_block,
       const std::optional<error>& left_out = {}) noexcept;
  step(const step&) = delete;
  step& operator=(const step&) = delete;
  /// If `finish` was not called, the step's function has thrown an exception, so the other ranks
  /// are notified.
  ~step() {
    if (has_ended()) return;
    leave_out(aborted());
    finish();
  }

  /// Adds a partner, which is another rank with which this rank exchanges signals or values.
  void note(std::uint32_t with) noexcept;
  /// Connects all partners that are not connected yet. It connects them at the same time, since
  /// each partner waits for the others as well. Also releases the places of values that earlier,
  /// failed steps have left.
  [[nodiscard]] bool begin(bool checks) noexcept;
  /// As `begin`, but waits until it is done.
  void wait_to_begin() noexcept {
    drive([this](bool checks) noexcept { return begin(checks); });
  }

  /// `signal` sends a signal to a rank, and `await` takes the next signal from a rank, if it has
  /// arrived. Both count the signal even if the step has failed.
  [[nodiscard]] bool signal(std::uint32_t to, bool checks) noexcept;
  [[nodiscard]] bool await(std::uint32_t from, bool checks) noexcept;

  /// Counts a value that will be sent to that rank, or received from it. Called before `begin`.
  void promise(std::uint32_t to) noexcept {
    note(to);
    ++of_.other(to).counts.given;
  }
  void expect(std::uint32_t from) noexcept;
  /// Writes a part of this rank's memory to the place that is reserved for the promised value.
  void give(std::uint32_t to, std::size_t from, std::size_t size) noexcept;
  /// With these functions, the caller writes a value to a place of its choice: `has_room` waits
  /// until there is room for the next value, `write` writes a part of this rank's memory, and
  /// `write_number` writes the value's number.
  [[nodiscard]] bool has_room(std::uint32_t to) noexcept;
  void write(std::uint32_t to, std::size_t from, std::size_t size, std::size_t into) noexcept;
  void write_number(std::uint32_t to) noexcept;
  /// Waits for the expected value. \returns its address; null if the step has failed
  [[nodiscard]] const std::byte* take(std::uint32_t from) noexcept;
  /// Copies the value, and releases its place. \returns true if the value has arrived
  [[nodiscard]] bool take_into(std::uint32_t from, std::span<std::byte> value) noexcept;
  /// Allows the sender to overwrite the value that was returned or copied.
  void release(std::uint32_t from) noexcept;

  /// Makes the step fail immediately, and limits how long it may take to end. From then on, the
  /// step only counts signals and values.
  void abort() noexcept;
  /// Ends the step: determines which ranks are to blame if it has failed, and completes its
  /// requests.
  [[nodiscard]] bool end() noexcept;
  /// As `end`, but waits until it is done.
  void finish() noexcept {
    while (!end()) std::this_thread::sleep_for(time_between_polls);
  }
  [[nodiscard]] bool has_ended() const noexcept { return stage_ == stage::over; }
  /// \pre `has_ended`
  [[nodiscard]] group_results results() && noexcept;

  /// Calls `advance(checks)` until it returns true, and spins or sleeps between the calls.
  template <class Advance>
  void drive(Advance advance) noexcept {
    for (unsigned round = 1;; ++round) {
      const bool checks = round % rounds_before_yield == 0;
      if (advance(checks)) return;
      if (!checks) continue;
      if (may_sleep())
        std::this_thread::sleep_for(time_between_polls);
      else
        sched_yield();
    }
  }
  /// The time when an event loop should continue the step. The time between two calls grows with
  /// the time for which this rank has waited.
  [[nodiscard]] wait_limit::time_point next_look() const noexcept;

 private:
  static constexpr unsigned rounds_before_yield = 64;

  enum class stage : std::uint8_t { beginning, connecting, acting, ending, over };

  [[nodiscard]] std::uint64_t tagged(std::uint64_t number) const noexcept {
    return number << 16 | tag_;
  }
  [[nodiscard]] bool has_failed() const noexcept { return failed_.has_failed; }
  void fail(std::optional<std::uint32_t> with, const error& cause, certainty how) noexcept {
    if (has_failed()) return;
    failed_.has_failed = true;
    failed_.with = with;
    failed_.cause = cause;
    failed_.how = how;
  }
  /// Makes the step fail because this rank cannot do its part.
  void leave_out(const error& cause) noexcept { fail(std::nullopt, cause, certainty::known); }
  /// Allows the rank `from` to overwrite its values up to value `number`.
  void give_back(std::uint32_t from, std::uint64_t number) noexcept;
  void write_word(std::uint32_t to, signal_word source, std::size_t into,
                  std::uint64_t value) noexcept;
  /// Posts a write of a part of this rank's memory. \pre `may_post` has returned true
  void post_write(std::uint32_t to, std::size_t from, std::size_t size, std::size_t into) noexcept;
  /// Makes the step fail if the word `seen` contains `number`, but with the tag of a different
  /// step.
  void check_tag(std::uint32_t from, std::uint64_t seen, std::uint64_t number) noexcept;
  /// Makes the step fail if that rank, which has reached a later step, has aborted this one.
  void check_farewell(std::uint32_t from) noexcept;
  /// Makes the step fail with the cause that the rank `from` gave in its farewell `why`.
  void heed(std::uint32_t from, const farewell& why) noexcept;
  /// When a wait began, when the connection is to be checked next, and when 0 bytes are to be
  /// written next.
  struct lookout {
    std::chrono::steady_clock::time_point begin{};
    std::chrono::steady_clock::time_point next{};
    std::chrono::steady_clock::time_point next_probe{};
  };
  /// Records `now` as the beginning of this wait, unless a wait is recorded already.
  void note_wait(std::chrono::steady_clock::time_point now) noexcept;
  /// Makes the step fail if the connection to that rank is broken or was replaced, if that rank has
  /// aborted a later step, or if any rank has reported a failure other than its limit. Also probes
  /// the connection. Acts only at intervals, even if it is called more often.
  void look_for_lost(std::uint32_t for_rank) noexcept;
  /// Makes the step fail if any rank has reported that it has aborted the step for a reason other
  /// than its limit. Checks only at intervals, even if it is called more often.
  void heed_news(std::chrono::steady_clock::time_point now) noexcept;
  /// The stop token for connecting the partners. It reports a stop if the program has requested
  /// one, or if the step has failed, for instance because of a farewell from another rank.
  class news_or_stop {
   public:
    explicit news_or_stop(step& of) noexcept : of_(&of) {}
    [[nodiscard]] bool stop_requested() const noexcept {
      of_->heed_news(std::chrono::steady_clock::now());
      return of_->has_failed() || of_->limit_.stop_requested();
    }

   private:
    step* of_;
  };
  [[nodiscard]] wait_limit connecting_limit() noexcept {
    return {limit_.deadline(), news_or_stop(*this)};
  }
  /// Reads the addresses of the partners. \returns false if it has to be called again
  [[nodiscard]] bool has_begun_to_connect(std::span<const std::uint32_t> partners) noexcept;
  void note_connected() noexcept;
  /// True if the wait for that rank is over, because the condition holds or the step has failed.
  template <class Condition>
  [[nodiscard]] bool is_over(
      std::uint32_t for_rank, bool checks, Condition holds,
      const char* missing = "that rank has not done its part in time") noexcept;
  /// Waits until the condition holds. \returns false if the step has failed
  template <class Condition>
  [[nodiscard]] bool wait_until(std::uint32_t for_rank, Condition holds) noexcept {
    drive([&](bool checks) noexcept { return is_over(for_rank, checks, holds); });
    return !has_failed();
  }
  /// True if a request can be posted to that rank, if its channel has failed, or if the step has
  /// failed. The post itself would wait as well, but would not notice failures that other ranks
  /// report.
  [[nodiscard]] bool may_post(std::uint32_t to, bool checks) noexcept;
  [[nodiscard]] bool may_sleep() const noexcept {
    return of_.waiting_.sleeps() && looks_ &&
           std::chrono::steady_clock::now() - looks_->begin >= of_.waiting_.spins_for();
  }
  /// True if all requests have finished, the limit has been reached, or the caller may wait for the
  /// requests.
  [[nodiscard]] bool may_end_requests() noexcept;
  /// Waits for all requests. \returns their first failure, with the rank
  [[nodiscard]] std::optional<group_error> end_requests() noexcept;

  signals& of_;
  group& peers_;
  const peer_list ranks_;
  std::uint16_t tag_;
  const bool may_block_;
  wait_limit whole_;  ///< the limit of the step, and of its requests
  step_limits limits_{whole_};
  const wait_limit& limit_ = limits_.waiting();  ///< for the wait for other ranks
  failed_step failed_{};
  stage stage_ = stage::beginning;
  std::uint32_t partners_ = 0;  ///< the number of entries of `of_.partners_`
  std::chrono::steady_clock::time_point next_look_at_news_{};
  std::optional<lookout> looks_{};  ///< the times of the current wait, if it was noted
  std::optional<connecting_peers> connecting_{};
  std::chrono::steady_clock::time_point next_look_up_{};  ///< when to look for missing addresses
  /// The scopes of the channels, by rank, for the requests of the step. Null if this rank does not
  /// take part.
  owned<std::optional<channel_scope>[]> scopes_{};
  std::optional<blame> blame_{};
};

template <class Function>
group_results signals::run_step(group& peers, const peer_list& ranks, std::uint16_t tag,
                                const wait_limit& limit, Function function) {
  step now(*this, peers, ranks, tag, limit, blocks::yes);
  function(now);
  now.finish();
  return std::move(now).results();
}

}  // namespace verbspp::detail

#pragma GCC visibility pop
