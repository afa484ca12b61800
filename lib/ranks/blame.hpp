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
  blame(signals& of, group& peers, const peer_list& ranks, std::uint16_t tag,
        const step_limits& limits, failed_step failed) noexcept;

  /// The result of each rank, or the error by which this rank could not do its part. They include
  /// ranks that were lost since then, whose requests did not finish, except those that had written
  /// a farewell. Such a rank replaces a guess.
  [[nodiscard]] group_results results() && noexcept;

 private:
  void find() noexcept;
  /// Writes the cause to the other ranks as far as this rank knows it. For a rank that lacks the
  /// memory to ask them.
  void tell_without_results(const error& lacking) noexcept;
  /// Reads the counts of all connected ranks without a result. If the limit of the wait has passed,
  /// notes the ranks that have not arrived. Late answers arrive by themselves. \returns true if all
  /// connected ranks have a result
  bool ask() noexcept;
  /// \returns the number of ranks that are being asked
  std::size_t post_questions(bool& has_all) noexcept;
  [[nodiscard]] transport_result<completed_work> check_answer(
      std::uint32_t rank, const transport_result<completed_work>& answered) const noexcept;
  /// The error of a rank, if it is known without an answer from that rank.
  [[nodiscard]] std::optional<error> trouble_with(std::uint32_t rank) const noexcept;
  /// Blames the culprits named in farewells instead of the ranks that left because of them.
  void explain() noexcept;
  /// Called if all ranks that could be asked have arrived: blames the rank that this one waited
  /// for, or that rank's culprit. \returns true if that is a guess
  [[nodiscard]] bool guess() noexcept;
  /// The rank to blame first, and the cause: the one with the highest certainty. \pre there is one
  [[nodiscard]] farewell reason() const noexcept;
  [[nodiscard]] farewell reason_of_waiting() const noexcept {
    return {.culprit = *failed_.with,
            .kind = failed_.cause.kind(),
            .is_lost = failed_.how == certainty::lost,
            .has_refused = failed_.how == certainty::refused};
  }
  [[nodiscard]] bool is_lost(std::uint32_t rank) const noexcept {
    return !peers_.is_due(rank) && !peers_[rank].is_connected();
  }
  [[nodiscard]] peer_result& result_of(std::uint32_t rank) noexcept;

  signals& of_;
  group& peers_;
  const peer_list& ranks_;
  std::uint16_t tag_;
  const step_limits& limits_;
  failed_step failed_;
  bool is_over_;  ///< the limit of the wait has passed
  owned<peer_result[]> all_{};
  std::span<peer_result> told_{};
  std::optional<error> own_cause_{};        ///< the cause if this rank could not do its part
  std::optional<std::uint32_t> guessed_{};  ///< the only rank to blame, without an answer
};

}  // namespace verbspp::detail

#pragma GCC visibility pop
