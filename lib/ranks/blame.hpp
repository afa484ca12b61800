// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ranks/signals.hpp"
#include "ranks/step_limits.hpp"
#include <verbspp/base/detail/owned.hpp>
#include <verbspp/base/error.hpp>
#include <verbspp/channel/pending.hpp>
#include <verbspp/group/group.hpp>
#include <verbspp/group/group_results.hpp>
#include <verbspp/group/peer_list.hpp>

#include <cstdint>
#include <optional>
#include <span>

#pragma GCC visibility push(hidden)

namespace verbspp::detail {

/// Determines which ranks are to blame for a failed step, and notifies the others.
class [[gnu::visibility("hidden")]] signals::blame {
 public:
  /// \param ranks must stay valid as long as this object exists
  blame(signals& of, group& peers, const peer_list& ranks, std::uint16_t tag,
        const step_limits& limits, failed_step failed) noexcept;

  /// Proceeds as far as possible without waiting for the other ranks. \returns true when the blame
  /// is determined, and the others were notified
  [[nodiscard]] bool advance() noexcept;
  /// Returns the result for each rank, or the error that prevented this rank from doing its part. A
  /// rank whose connection has broken since the failure gets an error as well, unless it had
  /// written a farewell. If there is such a rank, a rank that was blamed merely by guesswork is no
  /// longer blamed.
  [[nodiscard]] group_results results() && noexcept;

 private:
  void begin() noexcept;
  /// Determines the blame, and notifies the other ranks.
  void conclude(bool has_asked_all) noexcept;
  void tell(const farewell& why) noexcept;
  /// Notifies the other ranks that this rank cannot do its part.
  void tell_own(error_kind kind) noexcept {
    tell({.culprit = of_.rank_, .kind = kind, .is_lost = false, .has_refused = true});
  }
  /// True if the devices of the other ranks have acknowledged the farewells, or have not done so in
  /// time.
  [[nodiscard]] bool has_told() noexcept;
  /// Writes the cause to the other ranks, as far as it is known. Used if this rank lacks the memory
  /// to ask them.
  void tell_without_results(const error& lacking) noexcept;
  /// Posts requests that read, from every connected rank that has no error yet, the number of steps
  /// that it has joined with this rank.
  void ask() noexcept;
  /// Takes the answers that have arrived. A rank gets an error if its answer is late (unless other
  /// requests may have delayed it), if the read failed, if the rank is at a different step, or if
  /// it has not arrived although the limit of the wait has passed. The memory for late answers is
  /// kept until they arrive.
  /// \returns true if no more answers are expected
  [[nodiscard]] bool has_answers() noexcept;
  [[nodiscard]] transport_result<completed_work> check_answer(
      std::uint32_t rank, const transport_result<completed_work>& answered) const noexcept;
  /// Returns the error that is already known for `rank`, so that `rank` need not be asked; empty if
  /// there is none.
  [[nodiscard]] std::optional<error> trouble_with(std::uint32_t rank) const noexcept;
  /// Blames the culprits named in farewells instead of the ranks that left because of them.
  void explain() noexcept;
  /// Called if no rank has an error after `ask`. Blames the rank for which this rank waited, or the
  /// culprit that the farewell of that rank names. \returns true if the blame is a guess
  [[nodiscard]] bool guess() noexcept;
  /// Returns the cause to report to the other ranks, which is the failure with the highest
  /// certainty.
  /// \pre at least one rank has an error
  [[nodiscard]] farewell reason() const noexcept;
  [[nodiscard]] farewell reason_of_waiting() const noexcept {
    return {.culprit = *failed_.with,
            .kind = failed_.cause.kind(),
            .is_lost = failed_.how == certainty::lost,
            .has_refused = failed_.how == certainty::refused};
  }
  [[nodiscard]] bool is_lost(std::uint32_t rank) const noexcept {
    return rank < peers_.size() && !peers_.is_due(rank) && !peers_[rank].is_connected();
  }
  [[nodiscard]] peer_result& result_of(std::uint32_t rank) noexcept;

  signals& of_;
  group& peers_;
  const peer_list& ranks_;
  std::uint16_t tag_;
  const step_limits& limits_;
  failed_step failed_;
  bool is_over_;  ///< the limit of the wait has passed
  bool asks_ = false;
  bool has_all_answers_ = true;         ///< each rank to ask has answered, or has an error
  std::size_t open_ = 0;                ///< the number of ranks that have not answered yet
  std::size_t farewells_ = 0;           ///< the number of farewells in `of_.unwaited_`
  step_limits::time_point begun_at_{};  ///< the time when this rank began to ask, or to notify
  owned<peer_result[]> all_{};
  std::span<peer_result> told_{};
  std::optional<error> own_cause_{};        ///< the cause if this rank could not do its part
  std::optional<std::uint32_t> guessed_{};  ///< the rank that is blamed by guesswork
};

}  // namespace verbspp::detail

#pragma GCC visibility pop
