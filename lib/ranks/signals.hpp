// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ranks/farewell.hpp"
#include "ranks/signal_counts.hpp"
#include "ranks/signal_memory.hpp"
#include "ranks/step_limits.hpp"
#include <verbspp/base/detail/owned.hpp>
#include <verbspp/base/result.hpp>
#include <verbspp/base/wait_limit.hpp>
#include <verbspp/channel/channel.hpp>
#include <verbspp/channel/pending.hpp>
#include <verbspp/group/group.hpp>
#include <verbspp/group/group_error.hpp>
#include <verbspp/group/group_results.hpp>
#include <verbspp/memory/protection_domain.hpp>
#include <verbspp/memory/remote_memory.hpp>
#include <verbspp/memory/shared_buffer.hpp>
#include <verbspp/ranks/barrier_kind.hpp>
#include <verbspp/wait/waiting.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#pragma GCC visibility push(hidden)

namespace verbspp::detail {

/// Exchanges the signals and values that make up steps. Ranks write them into each other's memory
/// (`signal_layout`), and count them (`signal_counts`). If a step fails, `blame` determines the
/// cause, and writes it to the other ranks (`farewell`).
///
/// Most counts are stored together with a tag that identifies the step, so that ranks notice if
/// they execute different steps.
class [[gnu::visibility("hidden")]] signals {
 public:
  static constexpr access_flags rights =
      access::local_write | access::remote_write | access::remote_read;
  using place = remote_memory<access::remote_write | access::remote_read>;
  static constexpr std::size_t largest_value = signal_layout::largest_value;

  using combining = void (*)(void* context, std::byte* into, const std::byte* with);

  [[nodiscard]] result<void> open(const protection_domain& domain, std::uint32_t rank,
                                  std::uint32_t size, wait_mode waiting) noexcept;
  /// The handle to this rank's memory that the other ranks need.
  [[nodiscard]] result<place> memory() const noexcept { return memory_->remote(); }
  void set_memory_of(std::uint32_t rank, const place& memory) noexcept {
    other(rank).memory = memory;
  }
  [[nodiscard]] bool knows_memory_of(std::uint32_t rank) const noexcept {
    return other(rank).memory.has_value();
  }
  /// Stores the ends of the channel that the world uses for that rank. If the program replaces this
  /// channel, or connects it to a different peer, the world stops writing to that rank.
  void set_channel_to(std::uint32_t rank, const channel& connected) noexcept;
  /// Tells `rank`, with a write, that this rank is connected to the endpoint of `rank`, which
  /// `mark` identifies. `has_told_connected` returns true if `rank` has written that it is
  /// connected to this rank's endpoint, which `mark` identifies.
  void tell_connected(group& peers, std::uint32_t rank, std::uint64_t mark) noexcept;
  [[nodiscard]] bool has_told_connected(std::uint32_t rank, std::uint64_t mark) const noexcept {
    return look(data() + layout_.at(signal_word::connected_from, rank)) == mark;
  }

  [[nodiscard]] signal_counts::encoded counts_with(std::uint32_t rank) const noexcept {
    return other(rank).counts.encode(all_gathers_);
  }
  /// Makes both ends continue from the same counts. \pre nothing is in flight between the two ranks
  void agree(std::uint32_t rank, const signal_counts::encoded& theirs) noexcept;

  /// Whether the caller waits for the step to end. If it does, functions of the step may block.
  enum class blocks : bool { no, yes };
  class barrier_run;

  /// The list of all ranks.
  [[nodiscard]] peer_list everybody() const noexcept {
    return std::span<const std::uint32_t>(everybody_.get(), size_);
  }
  /// The reason why this rank cannot begin a step with these ranks; empty if there is none.
  [[nodiscard]] std::optional<error> objection(const peer_list& ranks) noexcept;
  /// The reason why this rank cannot begin any step now; empty if there is none.
  [[nodiscard]] std::optional<error> objection() const noexcept;

  /// Performs a barrier. If `left_out` contains a cause, this rank only counts the signals of the
  /// barrier, and notifies the other ranks of the cause.
  [[nodiscard]] group_results barrier(group& peers, const peer_list& ranks, barrier_kind kind,
                                      const wait_limit& limit,
                                      const std::optional<error>& left_out = {}) noexcept;
  [[nodiscard]] group_results broadcast(group& peers, std::span<std::byte> value,
                                        std::uint32_t root, const wait_limit& limit) noexcept;
  /// Only the root uses `all`.
  [[nodiscard]] group_results gather(group& peers, std::span<const std::byte> mine,
                                     std::span<std::byte> all, std::uint32_t root,
                                     const wait_limit& limit) noexcept;
  [[nodiscard]] group_results all_gather(group& peers, std::span<const std::byte> mine,
                                         std::span<std::byte> all,
                                         const wait_limit& limit) noexcept;
  /// Throws the exceptions of `combine`.
  [[nodiscard]] group_results all_reduce(group& peers, std::span<std::byte> value,
                                         combining combine, void* context, const wait_limit& limit);

 private:
  class step;
  class blame;

  /// The certainty that a rank is the culprit of a failed step.
  enum class certainty : std::uint8_t {
    waited_for,  ///< this rank waited for the culprit, which may itself have waited for others
    known,
    refused,  ///< the culprit has reported that it cannot do its part
    /// The connection between the culprit and this rank, or another rank, is broken.
    lost,
  };
  struct failed_step {
    bool has_failed = false;
    /// The culprit. Empty if this rank is the culprit, for instance because it lacks memory.
    std::optional<std::uint32_t> with{};
    error cause{};
    certainty how = certainty::waited_for;
    /// True if `with` has reported that a connection to this rank is lost.
    bool is_itself_lost = false;
    std::optional<group_results> reached{};  ///< the results of connecting ranks for the step
  };

  /// The `owner` numbers in the endpoints at both ends of a channel. They stay the same when the
  /// channel is renewed.
  struct ends {
    std::uint32_t here = 0;
    std::uint32_t there = 0;
    friend bool operator==(const ends&, const ends&) = default;
  };
  /// The data that this rank keeps about another rank.
  struct other_rank {
    signal_counts counts{};
    std::optional<place> memory{};
    ends connected{};  ///< the ends of the channel that connects the two ranks in the world
    /// True for the ranks of a list while it is being checked, and for the partners of a step until
    /// it begins.
    bool is_named = false;
    bool is_expected = false;  ///< will send this rank a value in the step about to begin
    /// The request that reads the other rank's step count is queued behind other requests.
    bool is_behind_work = false;
  };
  [[nodiscard]] other_rank& other(std::uint32_t rank) const noexcept { return others_.get()[rank]; }

  [[nodiscard]] std::optional<error> objection(std::uint32_t root) const noexcept;
  /// Counts, for each of these ranks, that this rank has joined a step with it.
  void join(const peer_list& ranks, std::uint16_t tag) noexcept;
  /// Creates a step, calls `function` with it, and ends it.
  template <class Function>
  [[nodiscard]] group_results run_step(group& peers, const peer_list& ranks, std::uint16_t tag,
                                       const wait_limit& limit, Function function);
  /// Writes a value to a word of that rank, from a word of this rank. \returns a handle that refers
  /// to no request if the request could not be posted
  [[nodiscard]] kept_pending write_unwaited(const channel& with, const place& theirs,
                                            std::size_t from, std::size_t into,
                                            std::uint64_t value) noexcept;
  /// Posts the farewells to the other ranks. \returns the number of requests in `unwaited_`
  [[nodiscard]] std::size_t post_farewells(group& peers, const peer_list& ranks,
                                           const farewell& why) noexcept;
  /// Returns the farewell of `rank`, which contains the reason why `rank` has aborted the current
  /// step with these ranks. Empty if `rank` has written no farewell for that step, or if the
  /// farewell is invalid, blames a rank outside of `ranks`, or blames this rank for a reason other
  /// than a lost connection.
  [[nodiscard]] std::optional<farewell> farewell_of(std::uint32_t rank,
                                                    const peer_list& ranks) const noexcept;
  /// True if `rank` has aborted a later step. If so, it has aborted the current step as well,
  /// unless its signal or value has arrived.
  [[nodiscard]] bool has_gone_on(std::uint32_t rank) const noexcept;
  [[nodiscard]] static ends ends_of(const channel& of) noexcept;
  /// The memory of `rank`; null if it is not known, or if the channel is not the one that the world
  /// has connected.
  [[nodiscard]] const place* place_at(const group& peers, std::uint32_t rank) const noexcept;

  [[nodiscard]] std::byte* data() noexcept { return memory_->data(); }
  [[nodiscard]] const std::byte* data() const noexcept { return memory_->data(); }

  std::uint32_t rank_ = 0;
  std::uint32_t size_ = 0;
  signal_layout layout_{0};
  std::uint64_t all_gathers_ = 0;
  wait_mode waiting_ = wait_mode::spin();
  /// Shared with the requests for which the library does not wait: the program may move a channel
  /// out of the world, and its requests may then still use this memory after the world has ended.
  std::optional<shared_buffer<rights>> memory_{};
  owned<other_rank[]> others_{};
  owned<std::uint32_t[]> everybody_{};
  /// The other ranks with which this rank exchanges signals or values in the current step.
  owned<std::uint32_t[]> partners_{};
  owned<kept_pending[]> unwaited_{};  ///< requests that ask or notify other ranks after a failure
  bool is_in_step_ = false;
};

/// Converts a failure to a result for its peer, or to an error if it names no peer or memory is
/// exhausted.
[[nodiscard]] group_results results_of(const group_error& failed) noexcept;

}  // namespace verbspp::detail

#pragma GCC visibility pop
