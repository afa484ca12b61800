// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/detail/owned.hpp>
#include <verbspp/base/result.hpp>
#include <verbspp/base/wait_limit.hpp>
#include <verbspp/group/group_results.hpp>

namespace verbspp {

class world;

/// This rank's part in a barrier that an event loop drives, as returned by `world::start_barrier`.
/// It is an `EventSource`, for which `event_loop::async_run` can wait:
///
///     VERBSPP_TRY(session, all.start_barrier(5s));
///     for (;;) {
///       VERBSPP_TRY(is_done, session.poll());
///       if (is_done) break;
///       VERBSPP_TRYV(session.request_notification());
///       ... wait until session.file_descriptor() is readable, and serve other things
///     }
///     VERBSPP_TRYV(std::move(session).finish());
///
/// The device reports no event when another rank arrives, so the descriptor belongs to a timer. The
/// timer wakes the loop after 50 us at first, and then at intervals that grow to a millisecond.
/// This works with every `wait_mode`.
///
/// While the barrier is in progress, other steps of its world, and `mend`, are refused (`busy`). In
/// a world that was joined lazily, `poll` answers other ranks, as `world::serve` does.
///
/// Destroying a session that is not done, or its world, aborts the barrier. The connected ranks are
/// notified: on a rank that still waits, the barrier fails, and the result for this rank is
/// `cancelled`. The destructor waits until the devices of the other ranks have acknowledged the
/// notification, which takes microseconds, and 0.2 s at most. Then, as when a limit is reached, it
/// closes each connection on which a signal of the barrier has not been acknowledged. This takes up
/// to 50 ms for each connection. The next step works, unless a connection was closed or is broken
/// (see `world::mend`). In a world that was joined lazily, the destructor also answers other ranks
/// (see `world::serve`).
///
/// A move-only owner. A session that was moved from, or whose result was taken, is empty, and its
/// calls that return a result fail (`invalid_input`). Thread rule: as for the world.
class barrier_session {
 public:
  barrier_session(barrier_session&& other) noexcept;
  barrier_session& operator=(barrier_session&& other) noexcept;
  barrier_session(const barrier_session&) = delete;
  barrier_session& operator=(const barrier_session&) = delete;
  ~barrier_session();

  /// Proceeds as far as possible without waiting for other ranks. In a world that was joined
  /// lazily, this function may get the data of ranks from the bootstrap. That takes up to 200 ms in
  /// total for the ranks to which this rank connects, and up to 200 ms for each rank that asks to
  /// be connected. When the limit is reached, this function may close connections, which takes up
  /// to 50 ms for each one.
  /// \returns true when the barrier is over: all ranks have arrived, or it has failed
  /// \errors `invalid_input` if the session is empty
  [[nodiscard]] result<bool> poll() noexcept;
  /// Returns the results of the barrier, once `poll` has returned true.
  /// \errors as `world::barrier`; `busy` if the barrier is not over; `cancelled` if the world was
  /// destroyed before the barrier was over; `invalid_input` if the session is empty
  group_results finish() && noexcept;
  /// Waits until the barrier is over, and then returns its results.
  /// \errors as `finish`, except `busy`
  group_results run() && noexcept;

  /// The descriptor of the timer; -1 if the session is empty.
  [[nodiscard]] int file_descriptor() const noexcept;
  /// Sets the timer, unless it is set already. \returns true if the barrier is over
  /// \errors `invalid_input` if the session is empty
  [[nodiscard]] result<bool> request_notification() noexcept;
  /// Returns the maximum time point, because the descriptor also reports the limit.
  [[nodiscard]] wait_limit::time_point deadline() const noexcept {
    return (wait_limit::time_point::max)();
  }

 private:
  friend world;
  class state;
  explicit barrier_session(detail::owned<state> begun) noexcept;

  detail::owned<state> state_;
};

}  // namespace verbspp
