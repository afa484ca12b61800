// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ranks/barrier_run.hpp"
#include "ranks/signals.hpp"
#include <verbspp/base/detail/owned.hpp>
#include <verbspp/base/result.hpp>
#include <verbspp/base/wait_limit.hpp>
#include <verbspp/exchange/tcp.hpp>
#include <verbspp/group/detail/kept_peers.hpp>
#include <verbspp/group/group.hpp>
#include <verbspp/group/group_results.hpp>
#include <verbspp/group/peer_list.hpp>
#include <verbspp/ranks/barrier_kind.hpp>
#include <verbspp/ranks/barrier_session.hpp>

#include <optional>
#include <utility>

#pragma GCC visibility push(hidden)

namespace verbspp {

/// The state of a session. While the barrier is in progress, the world has a pointer to this state.
/// If the world is destroyed first, it aborts the barrier.
class [[gnu::visibility("hidden")]] barrier_session::state {
 public:
  /// \param place the world's pointer to the state
  [[nodiscard]] static result<detail::owned<state>> begin(detail::signals& of, group& peers,
                                                          state*& place, const peer_list& ranks,
                                                          barrier_kind kind,
                                                          const wait_limit& limit) noexcept;
  state(const state&) = delete;
  state& operator=(const state&) = delete;
  /// Aborts the barrier if it is in progress.
  ~state() { leave(); }

  [[nodiscard]] bool advance() noexcept;
  /// Aborts the barrier because its world is being destroyed.
  void end_with_world() noexcept;
  /// \pre `advance` has returned true
  [[nodiscard]] group_results take_results() noexcept { return std::move(*results_); }
  [[nodiscard]] int timer() const noexcept { return timer_.descriptor(); }
  /// Makes the timer's descriptor readable when it is time to advance. Does not set the timer again
  /// before the next `advance`. Otherwise, each round of a busy loop would postpone the expiry, and
  /// the barrier would never advance.
  /// \returns true if the barrier is over
  [[nodiscard]] bool set_timer() noexcept;

 private:
  explicit state(const peer_list& ranks) noexcept : ranks_(ranks) {}
  void leave() noexcept;

  detail::kept_peers ranks_;
  tcp_socket timer_{};
  bool is_set_ = false;      ///< the timer has been set since the last `advance`
  state** place_ = nullptr;  ///< null if the barrier is not in progress
  std::optional<detail::signals::barrier_run> run_{};
  std::optional<group_results> results_{};
};

}  // namespace verbspp

#pragma GCC visibility pop
