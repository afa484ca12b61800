// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ranks/blame.hpp"
#include "ranks/signals.hpp"
#include <verbspp/base/error.hpp>
#include <verbspp/base/result.hpp>
#include <verbspp/base/wait_limit.hpp>
#include <verbspp/channel/detail/channel_access.hpp>
#include <verbspp/channel/detail/channel_core.hpp>
#include <verbspp/channel/pending.hpp>
#include <verbspp/group/group.hpp>
#include <verbspp/group/group_results.hpp>
#include <verbspp/group/group_scope.hpp>
#include <verbspp/memory/detail/memory_keeper.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <utility>

#pragma GCC visibility push(hidden)

namespace verbspp::detail {

/// The interval between polls for answers and acknowledgements from other ranks.
inline constexpr auto time_between_polls = std::chrono::microseconds(50);

/// Posts a request whose completion is not waited for. \returns a handle that refers to no request
/// if the request could not be posted, for instance because the queue is full
template <class Operation>
[[nodiscard]] kept_pending post_unwaited(const channel& with, const Operation& operation,
                                         const kept_memory& memory) noexcept {
  channel_core& core = channel_access::core_of(with);
  request made;
  const auto posted = core.post(operation, made, {}, memory);
  return posted.has_value() ? kept_pending(&core, made) : kept_pending();
}

inline constexpr const char* collective_step = "collective step of a world";

[[nodiscard]] inline error other_step() noexcept {
  return {error_kind::mismatch, collective_step,
          "that rank is at another step: all ranks have to call the same steps, in the same order, "
          "with the same list of ranks, root, type of value and kind of barrier"};
}

[[nodiscard]] inline error told_by_others(error_kind kind) noexcept {
  return {
      kind, collective_step,
      "another rank has reported an error of this kind about that rank, and has aborted the step"};
}
/// The error that reports a farewell from `rank`. The culprit may be `rank` itself. If `is_lost` is
/// true in that case, `rank` has lost its connection to the calling rank.
[[nodiscard]] inline error told_by(std::uint32_t rank, std::uint32_t culprit, error_kind kind,
                                   bool is_lost) noexcept {
  if (culprit != rank) return told_by_others(kind);
  if (!is_lost)
    return {kind, collective_step,
            "that rank has reported that it cannot do its part of the step: see the error there"};
  return {kind, collective_step,
          "that rank has reported that a connection between it and this rank, or another rank of "
          "the step, is lost, and has aborted the step: call mend() on all ranks"};
}

[[nodiscard]] inline error given_up() noexcept {
  return {error_kind::timed_out, collective_step,
          "that rank is at a later step, and has not done its part of this one: see the error "
          "there, and check that all ranks call the same steps"};
}

[[nodiscard]] inline error not_of_the_world() noexcept {
  return {error_kind::not_connected, collective_step,
          "the channel to that rank is not one that the world has connected: the program has "
          "replaced it or connected it to another peer, or mend() has failed"};
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

/// This rank's part in one step. After a failure, its functions no longer write or wait, but they
/// still count.
///
/// Values are counted before the step begins, and signals even after a failure, so that the counts
/// match those of the other ranks however the step ends. In one step, at most one value is sent in
/// each direction between two ranks.
class [[gnu::visibility("hidden")]] signals::step {
 public:
  step(signals& of, group& peers, group_scope* scope, const peer_list& ranks, std::uint16_t tag,
       const step_limits& limits) noexcept
      : of_(of),
        peers_(peers),
        scope_(scope),
        ranks_(ranks),
        tag_(tag),
        limits_(limits),
        limit_(limits.waiting()) {}
  step(const step&) = delete;
  step& operator=(const step&) = delete;
  /// If `end` was not called, the step's function has thrown an exception, so the other ranks are
  /// notified.
  ~step() {
    if (!has_ended_) of_.tell_own(peers_, ranks_, error_kind::cancelled, limits_);
  }

  /// Adds a rank that takes part in the step.
  void note(std::uint32_t with) noexcept;
  /// Connects all partners that are not connected yet, at once, since each partner waits for the
  /// others as well. Also releases the places of values that earlier, failed steps have left.
  void begin() noexcept;

  /// The first function sends a signal, and the second one waits for a signal. Both count the
  /// signal even if the step has failed.
  void signal(std::uint32_t to) noexcept;
  void await(std::uint32_t from) noexcept;

  /// Counts a value that will be sent to that rank, or received from it. Called before `begin`.
  void promise(std::uint32_t to) noexcept {
    note(to);
    ++of_.other(to).counts.given;
  }
  void expect(std::uint32_t from) noexcept;
  /// Writes a part of this rank's memory to the place that is reserved for the promised value.
  void give(std::uint32_t to, std::size_t from, std::size_t size) noexcept;
  /// These functions write a value to a place that the caller chooses: the first waits until there
  /// is room for the next value, the second writes a part of this rank's memory, and the third
  /// writes the value's number.
  [[nodiscard]] bool has_room(std::uint32_t to) noexcept;
  void write(std::uint32_t to, std::size_t from, std::size_t size, std::size_t into) noexcept;
  void write_number(std::uint32_t to) noexcept;
  /// Waits for the expected value. \returns its address; null if the step has failed
  [[nodiscard]] const std::byte* take(std::uint32_t from) noexcept;
  /// Copies the value, and releases its place. \returns true if the value has arrived
  [[nodiscard]] bool take_into(std::uint32_t from, std::span<std::byte> value) noexcept;
  /// Allows the sender to overwrite the value that was returned or copied.
  void release(std::uint32_t from) noexcept;

  /// Makes the step fail at once. From then on, it only counts signals and values.
  void leave_out(const error& cause) noexcept { fail(std::nullopt, cause, certainty::known); }
  /// Ends the step. \returns whether and how it failed
  [[nodiscard]] failed_step end() noexcept {
    has_ended_ = true;
    return std::move(failed_);
  }

 private:
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
  /// Allows the rank `from` to overwrite its values up to the one with this number.
  void give_back(std::uint32_t from, std::uint64_t number) noexcept;
  void write_word(std::uint32_t to, signal_word source, std::size_t into,
                  std::uint64_t value) noexcept;
  /// Makes the step fail if the word `seen` contains `number`, but with the tag of a different
  /// step.
  void check_tag(std::uint32_t from, std::uint64_t seen, std::uint64_t number) noexcept;
  /// Makes the step fail if that rank, which has reached a later step, has aborted this one.
  void check_farewell(std::uint32_t from) noexcept;
  /// Makes the step fail for the reason that the rank has written.
  void heed(std::uint32_t from, const farewell& why) noexcept;
  /// The times of the next check of the connection and of the next write of 0 bytes.
  struct lookout {
    std::chrono::steady_clock::time_point next{};
    std::chrono::steady_clock::time_point next_probe{};
  };
  /// Makes the step fail if the connection to that rank is broken, if that rank has aborted a later
  /// step, or if any rank has reported a failure other than its time limit. Also probes the
  /// connection. Does this only at intervals.
  void look_for_lost(std::uint32_t for_rank, std::optional<lookout>& looks) noexcept;
  /// Makes the step fail if any rank has reported that it has aborted the step for a reason other
  /// than its time limit. Does this only at intervals.
  void heed_news(std::chrono::steady_clock::time_point now) noexcept;
  /// The stop token for connecting the partners. It reports a stop if another rank has reported a
  /// failure, or if the program has requested a stop.
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
  template <class Condition>
  [[nodiscard]] bool wait_until(std::uint32_t for_rank, Condition holds,
                                const char* missing = "that rank did not arrive") noexcept;
  /// Waits until a request can be posted to that rank, or its channel has failed. Returns false if
  /// the step has failed, for instance because the limit has expired. The post itself would wait as
  /// well, but would not notice failures that other ranks report.
  [[nodiscard]] bool has_send_room(std::uint32_t to) noexcept;

  signals& of_;
  group& peers_;
  group_scope* scope_;  ///< null if the step failed before it began
  const peer_list& ranks_;
  std::uint16_t tag_;
  const step_limits& limits_;
  const wait_limit& limit_;  ///< the first part of `limits_`, for all of the step's waits
  failed_step failed_{};
  bool has_ended_ = false;
  std::uint32_t partners_ = 0;  ///< the number of entries of `of_.partners_`
  std::chrono::steady_clock::time_point next_look_at_news_{};
};

template <class Function>
group_results signals::run_step(group& peers, const peer_list& ranks, std::uint16_t tag,
                                const wait_limit& limit, Function function) {
  const step_limits limits(limit);
  std::optional<blame> found;
  bool has_begun = false;
  const auto done = peers.scope(
      [&](group_scope& scope) noexcept(noexcept(function(std::declval<step&>()))) {
        has_begun = true;
        join(ranks, tag);
        step now(*this, peers, &scope, ranks, tag, limits);
        function(now);
        // The blame is determined before the scope waits for the posted requests, because that may
        // take until the limit.
        if (failed_step failed = now.end(); failed.has_failed)
          found.emplace(*this, peers, ranks, tag, limits, std::move(failed));
      },
      limit);
  if (!has_begun) {
    // There was not enough memory to open the scope, so this rank does not take part.
    for (const std::uint32_t rank : ranks) ++other(rank).counts.joined;
    step now(*this, peers, nullptr, ranks, tag, limits);
    now.leave_out(done.error());
    function(now);
    found.emplace(*this, peers, ranks, tag, limits, now.end());
  } else if (!found) {
    if (done.has_value()) return {owned<peer_result[]>(), 0};
    found.emplace(
        *this, peers, ranks, tag, limits,
        failed_step{.has_failed = true, .with = done.error().peer(), .cause = done.error()});
  }
  return std::move(*found).results();
}

}  // namespace verbspp::detail

#pragma GCC visibility pop
