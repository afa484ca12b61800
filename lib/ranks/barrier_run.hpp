// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ranks/barrier_pattern.hpp"
#include "ranks/signals.hpp"
#include "ranks/step.hpp"
#include <verbspp/base/error.hpp>
#include <verbspp/base/wait_limit.hpp>
#include <verbspp/group/group.hpp>
#include <verbspp/group/group_results.hpp>
#include <verbspp/group/peer_list.hpp>
#include <verbspp/ranks/barrier_kind.hpp>

#include <optional>
#include <utility>

#pragma GCC visibility push(hidden)

namespace verbspp::detail {

/// A barrier in progress: one step, in which this rank performs the actions of its kind of barrier.
class [[gnu::visibility("hidden")]] signals::barrier_run {
 public:
  /// \param ranks must stay valid as long as this object exists
  /// \pre there is no `objection` to the step
  barrier_run(signals& of, group& peers, const peer_list& ranks, barrier_kind kind,
              const wait_limit& limit, blocks may_block,
              const std::optional<error>& left_out = {}) noexcept;
  barrier_run(const barrier_run&) = delete;
  barrier_run& operator=(const barrier_run&) = delete;
  ~barrier_run() {
    if (!step_.has_ended()) abort();
  }

  /// Proceeds as far as possible without waiting for the other ranks. \returns true when the
  /// barrier has ended
  [[nodiscard]] bool advance() noexcept { return has_acted(true) && step_.end(); }
  /// \pre `advance` has returned true
  [[nodiscard]] group_results results() noexcept { return std::move(step_).results(); }
  /// The time when `advance` should be called again.
  [[nodiscard]] wait_limit::time_point next_look() const noexcept { return step_.next_look(); }
  /// Performs the whole barrier.
  [[nodiscard]] group_results run() noexcept;

 private:
  /// Aborts the barrier, and notifies the other ranks.
  void abort() noexcept;
  /// Performs the actions. \returns true when all of them are done
  [[nodiscard]] bool has_acted(bool checks) noexcept;

  step step_;
  barrier_acts acts_;
  std::optional<barrier_act> act_{};  ///< the current action; empty if all of them are done
};

}  // namespace verbspp::detail

#pragma GCC visibility pop
