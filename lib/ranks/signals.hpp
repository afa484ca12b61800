// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ranks/step_limits.hpp"
#include <verbspp/base/detail/owned.hpp>
#include <verbspp/base/result.hpp>
#include <verbspp/base/wait_limit.hpp>
#include <verbspp/channel/channel.hpp>
#include <verbspp/channel/pending.hpp>
#include <verbspp/channel/waiting.hpp>
#include <verbspp/group/group.hpp>
#include <verbspp/group/group_error.hpp>
#include <verbspp/group/group_results.hpp>
#include <verbspp/memory/protection_domain.hpp>
#include <verbspp/memory/remote_memory.hpp>
#include <verbspp/memory/shared_buffer.hpp>
#include <verbspp/ranks/barrier_kind.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#pragma GCC visibility push(hidden)

namespace verbspp::detail {

/// What ranks tell each other by writing into each other's memory.
///
/// A signal is a count that goes up: the n-th signal of a pair of ranks writes n. Both ends know
/// which signals a step takes, and count them whether the step goes well or not. So who comes late
/// to a step that others have given up finds, or makes up for, what was missed with the next one,
/// and nothing has to be set back. For who is missing, each rank has a count of the steps that it
/// has come to with each other rank, which those read.
///
/// Values go into two places for each pair of ranks, in turn, each with its number written behind
/// it. The receiver gives a number back when it has done with the value, or has given it up; the
/// sender is never more than two ahead of that. So a value is that of its step, however late the
/// receiver comes.
///
/// Beside each count is a tag of what the step is, by which ranks that do different things find
/// that out.
///
/// A rank whose step failed tells the others of that step why, as soon as it knows: each by a word
/// with the rank to blame, which may be itself, the kind of error, and the count of steps that both
/// have come to; and whether that one itself has told that it can't do its part, which those who
/// pass it on repeat. It is news of that step alone. Those who wait in it look at the words: unless
/// it was only a limit that has passed at one of them, they need not wait for theirs; and who finds
/// a rank gone knows because of whom. There are two words for each pair, in turn, so that the next
/// step does not overwrite it at once. Nobody waits for room to tell, nor long for the others'
/// devices, and nothing is given up for it: who is not told finds out itself. It takes no memory
/// that may be lacking.
class [[gnu::visibility("hidden")]] signals {
 public:
  static constexpr access_flags rights =
      access::local_write | access::remote_write | access::remote_read;
  using place = remote_memory<access::remote_write | access::remote_read>;
  static constexpr std::size_t largest_value = 256;

  /// What two ranks have counted of each other.
  struct counts {
    std::uint64_t signaled = 0;
    std::uint64_t awaited = 0;
    std::uint64_t joined = 0;
    std::uint64_t given = 0;     ///< values to it
    std::uint64_t expected = 0;  ///< values of it
    std::uint64_t released = 0;  ///< of which it knows that they are done with
  };
  using encoded_counts = std::array<std::uint64_t, 6>;
  using combining = void (*)(void* context, std::byte* into, const std::byte* with);

  [[nodiscard]] result<void> open(const protection_domain& domain, std::uint32_t rank,
                                  std::uint32_t size, wait_mode waiting) noexcept;
  /// This rank's memory, for the others.
  [[nodiscard]] result<place> memory() const noexcept { return memory_->remote(); }
  void set_memory_of(std::uint32_t rank, const place& memory) noexcept {
    theirs_.get()[rank] = memory;
  }
  [[nodiscard]] bool knows_memory_of(std::uint32_t rank) const noexcept {
    return theirs_.get()[rank].has_value();
  }
  /// The world has connected that rank by this channel. What the program puts there instead, or
  /// connects to somebody else, leads to who knows where: nothing is written by it.
  void set_channel_to(std::uint32_t rank, const channel& connected) noexcept;

  [[nodiscard]] encoded_counts counts_with(std::uint32_t rank) const noexcept;
  /// Both ends go on from the same counts. \pre nothing is under way between them
  void agree(std::uint32_t rank, const encoded_counts& theirs) noexcept;

  [[nodiscard]] group_results barrier(group& peers, const peer_list& ranks, barrier_kind kind,
                                      const wait_limit& limit) noexcept;
  /// Counts what the others count, and tells them why this rank does not come.
  void leave_out_barrier(group& peers, const peer_list& ranks, barrier_kind kind,
                         const error& cause, const wait_limit& limit) noexcept;
  [[nodiscard]] group_results broadcast(group& peers, std::span<std::byte> value,
                                        std::uint32_t root, const wait_limit& limit) noexcept;
  /// `all` is used by the root alone.
  [[nodiscard]] group_results gather(group& peers, std::span<const std::byte> mine,
                                     std::span<std::byte> all, std::uint32_t root,
                                     const wait_limit& limit) noexcept;
  [[nodiscard]] group_results all_gather(group& peers, std::span<const std::byte> mine,
                                         std::span<std::byte> all,
                                         const wait_limit& limit) noexcept;
  /// Throws what `combine` throws.
  [[nodiscard]] group_results all_reduce(group& peers, std::span<std::byte> value,
                                         combining combine, void* context, const wait_limit& limit);

 private:
  class step;

  /// What there is in each rank's memory for each rank.
  enum class word : std::uint8_t {
    signal_from,
    joined_with,
    number_from,  // and one more, for the other place
    other_number_from,
    taken_by,
    farewell_from,  // and one more, for the next step
    other_farewell_from,
    // What the device writes elsewhere.
    signal_to,
    number_to,
    taken_to,
    farewell_to,
    other_farewell_to,
    answer_of,
    count,
  };

  /// How sure it is who is to blame for a step that failed.
  enum class certainty : std::uint8_t {
    waited_for,  ///< this rank waited for that one, which may have waited for others
    known,
    refused,  ///< it has told that it can't do its part
    lost,     ///< and its connection is broken, here or at who has told so
  };
  struct failed_step {
    bool has_failed = false;
    std::optional<std::uint32_t> with{};  ///< nobody if it was this rank, as for lack of memory
    error cause{};
    certainty how = certainty::waited_for;
    bool is_itself_lost = false;             ///< as the rank `with` has told this one
    std::optional<group_results> reached{};  ///< those that were to be connected for the step
  };
  /// Why a rank has given the present step up.
  struct farewell {
    std::uint32_t culprit;
    error_kind kind;
    bool is_lost;
    bool has_refused;  ///< the culprit itself has told that it can't do its part
  };

  [[nodiscard]] std::optional<error> objection(const peer_list& ranks) noexcept;
  [[nodiscard]] std::optional<error> objection(std::uint32_t root) const noexcept;
  [[nodiscard]] peer_list everybody() const noexcept {
    return std::span<const std::uint32_t>(everybody_.get(), size_);
  }
  /// This rank has come to a step with these.
  void join(const peer_list& ranks, std::uint16_t tag) noexcept;
  /// Does what the kind of barrier takes, by `signal(rank)` and `await(rank)`.
  template <class Signal, class Await>
  void run(barrier_kind kind, const peer_list& ranks, Signal signal, Await await) const noexcept;
  struct findings {
    owned<peer_result[]> of_each{};
    std::optional<std::uint32_t> guessed{};  ///< the only one to blame, for what is known by now
  };
  /// Of each rank of a step what came of it, or why this rank could not do its part.
  using verdict = result<findings>;

  /// Calls the function with a step, in a scope of the group.
  template <class Function>
  [[nodiscard]] group_results run_step(group& peers, const peer_list& ranks, std::uint16_t tag,
                                       const wait_limit& limit, Function function);
  /// Which of the ranks are to blame; the others are told.
  [[nodiscard]] verdict blame(group& peers, const peer_list& ranks, std::uint16_t tag,
                              failed_step failed, const step_limits& limits) noexcept;
  /// Adds those that were lost since then, as what was posted to them did not finish; but for those
  /// that had told why they would leave. Then nobody is guessed.
  [[nodiscard]] group_results add_lost(const group& peers, const peer_list& ranks,
                                       verdict found) const noexcept;
  /// Asks those that nothing is told of yet, and that are connected, how often they have come, and
  /// tells who has not, if the wait for them is over by its limit. Late answers go on by
  /// themselves.
  /// \returns whether all are told of then, but for those that are not connected
  bool ask(group& peers, std::uint16_t tag, const failed_step& failed, const step_limits& limits,
           std::span<peer_result> told) noexcept;
  [[nodiscard]] transport_result<completed_work> check_answer(
      std::uint32_t rank, std::uint16_t tag, const transport_result<completed_work>& answered,
      bool is_over, const error& cause) const noexcept;
  /// What is known of a rank without an answer of it.
  [[nodiscard]] std::optional<error> trouble_with(group& peers, std::uint32_t rank,
                                                  const failed_step& failed) const noexcept;
  /// Replaces those who left because of another rank by that one.
  void explain(const group& peers, const peer_list& ranks, std::span<peer_result> told,
               failed_step& failed) const noexcept;
  /// The rank to blame first, and why: of whom it is surest. \pre there is one
  [[nodiscard]] static farewell reason_of(const group& peers, std::span<const peer_result> told,
                                          const failed_step& failed) noexcept;
  void tell(group& peers, const peer_list& ranks, const farewell& why,
            const step_limits& limits) noexcept;
  /// That this rank can't do its part.
  void tell_own(group& peers, const peer_list& ranks, error_kind kind,
                const step_limits& limits) noexcept {
    tell(peers, ranks, {.culprit = rank_, .kind = kind, .is_lost = false, .has_refused = true},
         limits);
  }
  /// Why that rank has given up the step of these ranks that this one is in; nothing if it has told
  /// nothing, or no sense.
  [[nodiscard]] std::optional<farewell> farewell_of(std::uint32_t rank,
                                                    const peer_list& ranks) const noexcept;
  /// Whether that rank has given up a later step: this one, too, unless what it owes has come.
  [[nodiscard]] bool has_gone_on(std::uint32_t rank) const noexcept;
  /// The owners of both ends of a channel, which stay the same when they are renewed.
  struct ends {
    std::uint32_t here = 0;
    std::uint32_t there = 0;
    friend bool operator==(const ends&, const ends&) = default;
  };
  [[nodiscard]] static ends ends_of(const channel& of) noexcept;
  /// The memory of that rank; null if it is not the world that has connected this one to it.
  [[nodiscard]] const place* place_at(const group& peers, std::uint32_t rank) const noexcept;

  [[nodiscard]] std::byte* data() noexcept { return memory_->data(); }
  [[nodiscard]] const std::byte* data() const noexcept { return memory_->data(); }
  // Where things are in each rank's memory.
  [[nodiscard]] std::size_t at(word which, std::uint32_t rank) const noexcept {
    return (std::size_t{size_} * static_cast<std::size_t>(which) + rank) * sizeof(std::uint64_t);
  }
  [[nodiscard]] std::size_t number_from(std::uint32_t rank, std::uint64_t number) const noexcept {
    return at(number % 2 == 0 ? word::number_from : word::other_number_from, rank);
  }
  /// Of the step of that count.
  [[nodiscard]] std::size_t farewell_from(std::uint32_t rank, std::uint64_t joined) const noexcept {
    return at(joined % 2 == 0 ? word::farewell_from : word::other_farewell_from, rank);
  }
  [[nodiscard]] std::size_t farewell_to(std::uint32_t rank, std::uint64_t joined) const noexcept {
    return at(joined % 2 == 0 ? word::farewell_to : word::other_farewell_to, rank);
  }
  [[nodiscard]] std::size_t value_from(std::uint32_t rank, std::uint64_t number) const noexcept {
    return at(word::count, 0) + (std::size_t{rank} * 2 + number % 2) * largest_value;
  }
  /// The values of all, one behind the other, of one of two steps in turn.
  [[nodiscard]] std::size_t values_of_all(std::uint64_t turn) const noexcept {
    return value_from(size_, 0) + std::size_t{size_} * (turn % 2) * largest_value;
  }
  /// What this rank has of its own; there are two, as what goes up a tree may be under way still
  /// when other things go down.
  [[nodiscard]] std::size_t own_value(std::uint32_t which) const noexcept {
    return values_of_all(0) + std::size_t{size_} * 2 * largest_value + which * largest_value;
  }

  [[nodiscard]] std::size_t end_of_memory() const noexcept { return own_value(2); }

  std::uint32_t rank_ = 0;
  std::uint32_t size_ = 0;
  std::uint64_t all_gathers_ = 0;
  wait_mode waiting_ = wait_mode::spin();
  /// What is posted and not waited for keeps it: the program may take channels out of the world.
  std::optional<shared_buffer<rights>> memory_{};
  owned<counts[]> counts_{};
  owned<bool[]> is_named_{};
  owned<std::uint32_t[]> partners_{};  ///< with whom a step is
  owned<bool[]> is_expected_{};        ///< which of them have a value for this rank
  owned<std::optional<place>[]> theirs_{};
  owned<ends[]> ends_{};  ///< of the channels by which the world connects this rank
  owned<std::uint32_t[]> everybody_{};
  // For the time that this rank asks or tells others.
  owned<kept_pending[]> unwaited_{};
  owned<bool[]> is_behind_{};  ///< other work: what is asked of that one
};

/// The first peer's failure, as results.
[[nodiscard]] group_results results_of(const group_error& failed) noexcept;

}  // namespace verbspp::detail

#pragma GCC visibility pop
