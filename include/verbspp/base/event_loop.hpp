// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/detail/because.hpp>
#include <verbspp/base/detail/list_links.hpp>
#include <verbspp/base/detail/owned.hpp>
#include <verbspp/base/detail/stoppable_limit.hpp>
#include <verbspp/base/error.hpp>
#include <verbspp/base/event_source.hpp>
#include <verbspp/base/result.hpp>
#include <verbspp/base/wait_limit.hpp>

#include <poll.h>

#include <coroutine>
#include <cstddef>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>

namespace verbspp {

class event_loop;

namespace detail {

/// The functions of an `EventSource` whose type was erased.
struct source_operations {
  result<bool> (*request_notification)(void* source) noexcept;
  int (*file_descriptor)(const void* source) noexcept;
  short (*events)(const void* source) noexcept;
  wait_limit::time_point (*deadline)(const void* source) noexcept;
};
template <EventSource Source>
inline constexpr source_operations operations_of_source = {
    .request_notification = [](void* source) noexcept -> result<bool> {
      return static_cast<Source*>(source)->request_notification();
    },
    .file_descriptor = [](const void* source) noexcept -> int {
      return static_cast<const Source*>(source)->file_descriptor();
    },
    .events = [](const void* source) noexcept -> short {
      // Only an `exchange_session` has `events()`, because it may have to wait until its socket is
      // writable. Other sources wait until their descriptor is readable.
      if constexpr (requires(const Source& each) { each.events(); })
        return static_cast<const Source*>(source)->events();
      else
        return POLLIN;
    },
    .deadline = [](const void* source) noexcept -> wait_limit::time_point {
      return static_cast<const Source*>(source)->deadline();
    },
};

/// A coroutine that waits for an event source, as an element of one of the loop's lists.
class waiting_source : list_links {
 public:
  waiting_source(const waiting_source&) = delete;
  waiting_source& operator=(const waiting_source&) = delete;

 protected:
  /// The loop calls this function when the source may have work, when `request_notification` has
  /// failed, or when the limit has been reached.
  /// \returns true if the loop should resume the coroutine
  using look_function = bool (*)(waiting_source& self) noexcept;

  waiting_source(look_function look, const source_operations& operations,
                 const wait_limit& limit) noexcept
      : look_(look), operations_(operations), limit_(limit) {}
  ~waiting_source() { unlink(); }

  /// \param source must not be moved or destroyed during the wait
  void start(event_loop& loop, void* source, std::coroutine_handle<> waiting) noexcept;
  [[nodiscard]] const std::optional<error>& failure() const noexcept { return failure_; }
  [[nodiscard]] const wait_limit& limit() const noexcept { return limit_.until(); }

 private:
  friend event_loop;

  /// Returns the time until which the loop may sleep if no stop request wakes it earlier.
  [[nodiscard]] wait_limit::time_point deadline() const noexcept;

  look_function look_;
  const source_operations& operations_;
  stoppable_limit limit_;  ///< with a stop callback, if possible, until the wait ends
  void* source_ = nullptr;
  std::coroutine_handle<> waiting_{};
  std::optional<error> failure_{};  ///< the error that `request_notification` returned
  bool is_due_ = false;
};

/// The awaitable of `event_loop::async_until` and `async_run`. `Source` is a reference type, or the
/// type of an object that is moved into the awaitable.
template <class Source, class Result, class Look>
class [[nodiscard]] awaited_source : waiting_source {
 public:
  awaited_source(event_loop& loop, Source&& source, Look look, const wait_limit& limit) noexcept
      : waiting_source(again, operations_of_source<std::remove_reference_t<Source>>, limit),
        loop_(loop),
        source_(std::forward<Source>(source)),
        find_(std::move(look)) {}

  [[nodiscard]] bool await_ready() noexcept { return look(); }
  void await_suspend(std::coroutine_handle<> waiting) noexcept {
    const void* const source = std::addressof(source_);
    start(loop_, const_cast<void*>(source), waiting);  // a source may be const
  }
  [[nodiscard]] Result await_resume() noexcept { return *std::move(found_); }

 private:
  static bool again(waiting_source& self) noexcept {
    return static_cast<awaited_source&>(self).look();
  }
  [[nodiscard]] bool look() noexcept {
    if (failure())
      found_.emplace(*failure());
    else if (std::optional<Result> found = find_(source_))
      found_.emplace(std::move(*found));
    else if (limit().has_passed())
      found_.emplace(limit().failure("wait in an event loop"));
    return found_.has_value();
  }

  event_loop& loop_;
  Source source_;
  Look find_;
  std::optional<Result> found_{};
};

}  // namespace detail

/// An event loop for programs that use coroutines and have no other loop. It resumes a coroutine
/// when the object for which the coroutine waits may have work. That object can be any
/// `EventSource`, such as a hub with all its channels, an acceptor, a session of an exchange, or a
/// listener.
///
///     event_loop loop;
///     routine serving = serve(loop, hub), accepting = accept(loop, acceptor);
///     while (!serving.is_done()) VERBSPP_TRYV(loop.run_once(1s));
///
/// Here `serve` is a coroutine of any type:
///
///     for (;;) {
///       VERBSPP_CO_TRYV(co_await loop.async_ready(hub));
///       VERBSPP_CO_TRYV(hub.poll());
///     }
///
/// A coroutine may be destroyed while it waits; this ends the wait. A source must exist and must
/// not be moved while a coroutine waits for it. Destroying the loop ends all waits; coroutines that
/// wait are not resumed. The loop passes the descriptors of all waiting coroutines to ppoll(), so a
/// round takes longer when more coroutines wait. For many channels, use a hub.
///
/// The loop can be neither copied nor moved. Thread rule: only one thread at a time may use the
/// loop, its sources and its coroutines.
class event_loop {
 public:
  event_loop() noexcept = default;
  event_loop(const event_loop&) = delete;
  event_loop& operator=(const event_loop&) = delete;
  ~event_loop();

  /// Waits until at least one source may have work, and resumes the coroutines whose waits have
  /// ended.
  /// \returns true if a source may have had work, or the limit of a waiting coroutine was reached,
  /// even if no coroutine was resumed; false if `limit` was reached first
  /// \errors `resource_exhausted`; those of the operating system
  result<bool> run_once(const wait_limit& limit) noexcept;

  /// Suspends the coroutine until the source may have work. The coroutine then calls the source's
  /// `poll`. The coroutine may be resumed even though there is no work.
  /// \errors those of `request_notification`
  template <EventSource Source>
  [[nodiscard]] auto async_ready(Source& source) noexcept {
    return async_until(source, [is_asked = false](Source&) mutable noexcept {
      return std::exchange(is_asked, true) ? std::optional<result<void>>(success()) : std::nullopt;
    });
  }

  /// When awaited, calls `look(source)` immediately, and again whenever the source may have work,
  /// until the call returns a value. `look` returns a std::optional of a `result`, which becomes
  /// the value of the await expression.
  /// \errors those of `look`, and of `request_notification`; `timed_out`, `cancelled` when the
  /// limit is reached
  template <EventSource Source, class Look>
  [[nodiscard]] auto async_until(Source& source, Look look,
                                 const wait_limit& limit = wait_limit::forever()) noexcept {
    using found = typename std::invoke_result_t<Look&, Source&>::value_type;
    return detail::awaited_source<Source&, found, Look>(*this, source, std::move(look), limit);
  }

  /// Awaits the end of a session: an exchange, a meeting, a route or connection of the connection
  /// manager, or a barrier of a world. Returns the result of the session's `finish`. The session is
  /// moved into the awaitable. Destroying the coroutine destroys the session, which notifies the
  /// peer of an exchange or a connection, or the other ranks of a barrier.
  /// \errors those of the session's `poll` and `finish`, and of `request_notification`. The wait
  /// has the limit that the session was created with
  template <EventSource Session>
    requires(!std::is_reference_v<Session>)
  [[nodiscard]] auto async_run(Session&& session) noexcept {
    using outcome = decltype(std::forward<Session>(session).finish());
    const auto look = [](Session& running) noexcept -> std::optional<outcome> {
      const result<bool> is_done = running.poll();
      if (!is_done.has_value()) return outcome(is_done.assume_error());
      if (!is_done.assume_value()) return std::nullopt;
      return std::move(running).finish();
    };
    return detail::awaited_source<Session, outcome, decltype(look)>(
        *this, std::forward<Session>(session), look, wait_limit::forever());
  }

  template <EventSource Session>
  void async_run(Session&) VERBSPP_DETAIL_REFUSED(!std::is_void_v<Session>,
                                                  "the session is moved into the awaitable: write "
                                                  "loop.async_run(std::move(session))");

  /// Awaits the next client that an `exchange_acceptor` has connected, and returns the result of
  /// the acceptor's `next`.
  /// \errors those of `next`, and of `request_notification`
  template <EventSource Acceptor>
  [[nodiscard]] auto async_next(Acceptor& acceptor,
                                const wait_limit& limit = wait_limit::forever()) noexcept {
    using outcome = result<typename Acceptor::accepted>;
    return async_until(
        acceptor,
        [](Acceptor& from) noexcept -> std::optional<outcome> {
          outcome next = from.next((wait_limit::time_point::min)());
          if (next.has_error() && next.assume_error() == error_kind::timed_out)
            return std::nullopt;  // nothing yet
          return next;
        },
        limit);
  }

  /// Awaits the next request that arrives at a listener of the connection manager, and returns the
  /// result of the listener's `accept`.
  /// \errors those of `accept`, and of `request_notification`
  template <EventSource Listener>
  [[nodiscard]] auto async_accept(Listener& listener,
                                  const wait_limit& limit = wait_limit::forever()) noexcept {
    using request = typename decltype(listener.poll())::value_type::value_type;
    return async_until(
        listener,
        [](Listener& from) noexcept -> std::optional<result<request>> {
          auto taken = from.poll();
          if (!taken.has_value()) return result<request>(taken.assume_error());
          if (!taken.assume_value()) return std::nullopt;
          return result<request>(std::move(*taken.assume_value()));
        },
        limit);
  }

 private:
  friend detail::waiting_source;

  [[nodiscard]] static detail::waiting_source& of(detail::list_links* links) noexcept {
    return static_cast<detail::waiting_source&>(*links);
  }
  [[nodiscard]] result<bool> run_until(const wait_limit& limit) noexcept;
  [[nodiscard]] result<void> sleep(std::size_t count, const wait_limit& limit) noexcept;
  [[nodiscard]] result<void> make_room() noexcept;
  void take_due() noexcept;
  bool resume_due() noexcept;

  detail::stop_signal signal_{};  ///< stop requests wake the loop through it
  detail::list_links waiting_{&waiting_, &waiting_};
  detail::list_links due_{&due_, &due_};  ///< empty outside `run_once`
  detail::owned<pollfd[]>
      entries_{};  ///< an entry for each element of `waiting_`, in order, and one for `signal_`
  std::size_t room_ = 0;
  unsigned busy_rounds_ = 0;
};

}  // namespace verbspp
