// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ranks/signals.hpp"
#include "ranks/written_memory.hpp"
#include <verbspp/base/error.hpp>
#include <verbspp/base/result.hpp>
#include <verbspp/base/wait_limit.hpp>
#include <verbspp/group/group.hpp>
#include <verbspp/group/group_results.hpp>
#include <verbspp/group/group_scope.hpp>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <utility>

#pragma GCC visibility push(hidden)

namespace verbspp::detail {

inline constexpr const char* collective_step = "collective step of a world";

[[nodiscard]] inline error other_step() noexcept {
  return {error_kind::mismatch, collective_step,
          "this rank is at another step: all have to call the same ones, in the same order, with "
          "the same ranks, root and type of value"};
}

/// Some bits that differ where steps do.
[[nodiscard]] constexpr std::uint64_t mixed(std::uint64_t hash, std::uint64_t value) noexcept {
  return (hash ^ value) * 0x100'0000'01b3U;
}
[[nodiscard]] constexpr std::uint16_t tag_of(std::initializer_list<std::uint64_t> what) noexcept {
  std::uint64_t hash = 0xcbf2'9ce4'8422'2325U;
  for (const std::uint64_t each : what) hash = mixed(hash, each);
  return static_cast<std::uint16_t>(hash ^ (hash >> 32));
}

/// What a rank does in one step, until it fails: then it does nothing more.
///
/// All that it will signal, give and take is counted first, so that the counts are the others',
/// however the step ends. In one step, at most one value goes each way between two ranks.
class [[gnu::visibility("hidden")]] signals::step {
 public:
  step(signals& of, group& peers, group_scope& scope, std::uint16_t tag,
       const wait_limit& limit) noexcept
      : of_(of), peers_(peers), scope_(scope), tag_(tag), limit_(limit) {}
  step(const step&) = delete;
  step& operator=(const step&) = delete;
  ~step() = default;

  /// The step is with that rank.
  void note(std::uint32_t with) noexcept;
  /// Connects those with whom it is that are still to be connected. All at once, since each of them
  /// waits for the others, too.
  void begin() noexcept;

  /// Counts them, also where the step has failed.
  void signal(std::uint32_t to) noexcept;
  void await(std::uint32_t from) noexcept;

  void promise(std::uint32_t to) noexcept {
    note(to);
    ++of_.counts_.get()[to].given;
  }
  void expect(std::uint32_t from) noexcept;
  /// A piece of this rank's memory into the place for the value that was promised.
  void give(std::uint32_t to, std::size_t from, std::size_t size) noexcept;
  /// The number alone, behind what was written elsewhere by `write`, once there is `room`.
  [[nodiscard]] bool has_room(std::uint32_t to) noexcept;
  void write(std::uint32_t to, std::size_t from, std::size_t size, std::size_t into) noexcept;
  void write_number(std::uint32_t to) noexcept;
  /// Waits for the value that was expected. \returns where it is; null if the step has failed
  [[nodiscard]] const std::byte* take(std::uint32_t from) noexcept;
  /// Copies it, and gives the place back. \returns whether it came
  [[nodiscard]] bool take_into(std::uint32_t from, std::span<std::byte> value) noexcept;
  /// What was taken may be written again.
  void release(std::uint32_t from) noexcept;

  [[nodiscard]] bool has_failed() const noexcept { return failed_.has_value(); }
  [[nodiscard]] std::optional<std::uint32_t> with() const noexcept { return failed_; }
  [[nodiscard]] const error& cause() const noexcept { return cause_; }
  /// Whether it is known that this rank is the one to blame.
  [[nodiscard]] bool is_known() const noexcept { return is_known_; }
  /// What came of connecting, if anything had to be.
  [[nodiscard]] std::optional<group_results> take_reached() noexcept { return std::move(reached_); }

 private:
  [[nodiscard]] std::uint64_t tagged(std::uint64_t number) const noexcept {
    return number << 16 | tag_;
  }
  void fail(std::uint32_t with, const error& cause, bool is_known) noexcept {
    if (failed_) return;
    failed_ = with;
    cause_ = cause;
    is_known_ = is_known;
  }
  /// That the values up to that number may be written again.
  void give_back(std::uint32_t from, std::uint64_t number) noexcept;
  void write_word(std::uint32_t to, word source, std::size_t into, std::uint64_t value) noexcept;
  /// Whether the word of that number says the same step; fails if not.
  void check_tag(std::uint32_t from, std::uint64_t seen, std::uint64_t number) noexcept;
  template <class Condition>
  [[nodiscard]] bool wait_until(std::uint32_t for_rank, Condition holds) noexcept;

  signals& of_;
  group& peers_;
  group_scope& scope_;
  std::uint16_t tag_;
  const wait_limit& limit_;
  std::optional<std::uint32_t> failed_{};
  error cause_{};
  bool is_known_ = false;
  std::uint32_t partners_ = 0;  ///< how many
  std::optional<group_results> reached_{};
};

template <class Function>
group_results signals::run_step(group& peers, const peer_list& ranks, std::uint16_t tag,
                                const wait_limit& limit, Function function) {
  join(ranks, tag);
  std::optional<std::uint32_t> with;
  error cause;
  bool is_known = false;
  std::optional<group_results> reached;
  const auto done = peers.scope(
      [&](group_scope& scope) noexcept(noexcept(function(std::declval<step&>()))) {
        step now(*this, peers, scope, tag, limit);
        function(now);
        with = now.with();
        cause = now.cause();
        is_known = now.is_known();
        reached = now.take_reached();
      },
      limit);
  if (done.has_value() && !with) return {owned<peer_result[]>(), 0};
  if (!with) return blame(peers, ranks, tag, done.error().peer(), done.error(), false, reached);
  return blame(peers, ranks, tag, with, cause, is_known, reached);
}

}  // namespace verbspp::detail

#pragma GCC visibility pop
