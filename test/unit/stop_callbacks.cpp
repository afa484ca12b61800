// SPDX-License-Identifier: Apache-2.0
/// \file
/// Stop requests that wake a sleeping thread through a callback, and tokens without
/// callbacks, which are polled instead.

#include "../catch.hpp"
#include "../eager.hpp"
#include "../sanitized.hpp"
#include "../stopping.hpp"
#include <verbspp/base/event_loop.hpp>
#include <verbspp/exchange/tcp.hpp>

#include <base/wait_notified.hpp>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

using namespace verbspp;
using namespace verbspp::test;
using namespace std::chrono_literals;
using std::chrono::steady_clock;

namespace {

/// A stop token that has no callbacks and can only be polled.
struct polled_token {
  const std::atomic<int>* polls_until_stop;
  std::atomic<int>* polls;
  [[nodiscard]] bool stop_requested() const noexcept { return ++*polls > *polls_until_stop; }
};

/// A stop token whose callbacks may throw an exception while they are being registered.
struct allocating_token {
  template <class Function>
  struct callback_type {
    callback_type(const allocating_token& /*of*/, Function /*function*/) {}
  };
  [[nodiscard]] bool stop_requested() const noexcept { return false; }
};

[[nodiscard]] tcp_listener silent_listener() {
  return tcp_listener::open("0", "127.0.0.1").value();
}
/// Waits for a client, although none connects. \returns true if the wait was cancelled
[[nodiscard]] bool is_cancelled(const tcp_listener& listener, const wait_limit& until) {
  return listener.accept(until).error() == error_kind::cancelled;
}

/// An event source that never has work.
struct silent_source {
  [[nodiscard]] static int file_descriptor() noexcept { return -1; }
  [[nodiscard]] static result<bool> request_notification() noexcept { return false; }
  [[nodiscard]] static wait_limit::time_point deadline() noexcept {
    return (wait_limit::time_point::max)();
  }
};
using routine = eager<result<void>>;
[[nodiscard]] routine never_ready(event_loop& loop, silent_source& source, wait_limit limit) {
  co_return co_await loop.async_until(
      source, [](silent_source&) { return std::optional<result<void>>(); }, limit);
}

/// Calls `wait` many times, and requests a stop at various times during these calls. `wait` must
/// return true if it ended as expected. \returns true if every wait ended as expected
template <class Wait>
[[nodiscard]] bool is_always_stopped(Wait wait) {
  constexpr int rounds = 2000;
  std::atomic<std::stop_source*> current{nullptr};
  std::atomic<int> requested{0};
  std::atomic<bool> is_over{false};
  std::thread requester([&] {
    auto delay = 0us;
    while (!is_over) {
      std::stop_source* const source = current.exchange(nullptr);
      if (source == nullptr) {
        std::this_thread::yield();
        continue;
      }
      for (const auto at = steady_clock::now() + delay; steady_clock::now() < at;) continue;
      delay = (delay + 1us) % 30;
      source->request_stop();
      ++requested;
    }
  });
  int lost = 0;
  for (int round = 0; round < rounds && lost == 0; ++round) {
    std::stop_source source;
    const wait_limit until(20s, source.get_token());
    current = &source;
    if (!wait(until) || steady_clock::now() >= until.deadline()) ++lost;
    while (requested != round + 1) std::this_thread::yield();
  }
  is_over = true;
  requester.join();
  return lost == 0;
}

}  // namespace

TEST_CASE("a limit detects whether its stop token supports callbacks") {
  std::stop_source source;
  counting_source counted;
  std::atomic<int> number{0};
  CHECK(wait_limit(source.get_token()).has_callbacks());
  CHECK(wait_limit(1s, counted.get_token()).has_callbacks());
  CHECK_FALSE(wait_limit(polled_token{&number, &number}).has_callbacks());
  CHECK_FALSE(wait_limit(allocating_token()).has_callbacks());
  CHECK_FALSE(wait_limit(1s).has_callbacks());
  CHECK_FALSE(wait_limit::forever().has_callbacks());
}

TEST_CASE("a limit that is shortened keeps its token") {
  const auto at = steady_clock::now() + 1h;
  std::stop_source source;
  const wait_limit limit(at, source.get_token());
  CHECK(limit.no_later_than(at + 1s).deadline() == at);
  const wait_limit part = limit.no_later_than(at - 1s);
  CHECK(part.deadline() == at - 1s);
  CHECK(wait_limit::forever().no_later_than(at).deadline() == at);
  CHECK_FALSE(part.stop_requested());
  source.request_stop();
  CHECK(part.stop_requested());
}

TEST_CASE("a stop request wakes a thread that waits for a client") {
  const tcp_listener listener = silent_listener();
  CHECK(stop_a_sleep([&](const wait_limit& until) {
          return is_cancelled(listener, until);
        }).is_as_promised());
}

TEST_CASE("a stop request wakes a thread that connects") {
  // A listener whose queue is full does not answer, so an attempt to connect to it waits.
  const tcp_listener full = silent_listener();
  const std::string port = std::to_string(full.port());
  std::vector<tcp_socket> waiting;
  REQUIRE(::listen(full.descriptor(), 0) == 0);
  for (bool is_full = false; !is_full;) {
    auto one = tcp_socket::connect("127.0.0.1", port, 50ms);
    is_full = one.has_error();
    if (!is_full) waiting.push_back(std::move(one).value());
  }
  CHECK(stop_a_sleep([&](const wait_limit& until) {
          return tcp_socket::connect("127.0.0.1", port, until).error() == error_kind::cancelled;
        }).is_as_promised());
}

TEST_CASE("a wait whose stop was requested before it began registers no callback") {
  const tcp_listener listener = silent_listener();
  counting_source source;
  source.request_stop();
  CHECK(is_cancelled(listener, source.get_token()));
  CHECK(source.begun() == 0);
}

TEST_CASE("a wait with an expired limit registers no callback") {
  const tcp_listener listener = silent_listener();
  counting_source source;
  const auto before = steady_clock::now() - 1s;
  CHECK(listener.accept(wait_limit(before, source.get_token())).error() == error_kind::timed_out);
  CHECK(source.begun() == 0);
}

TEST_CASE("a wait that finds its event registers no callback") {
  const tcp_listener listener = silent_listener();
  const tcp_socket client =
      tcp_socket::connect("127.0.0.1", std::to_string(listener.port()), 20s).value();
  pollfd there{.fd = listener.descriptor(), .events = POLLIN, .revents = 0};
  REQUIRE(::poll(&there, 1, 20'000) == 1);
  counting_source source;
  CHECK(listener.accept(wait_limit(20s, source.get_token())).has_value());
  CHECK(source.begun() == 0);
}

TEST_CASE("a stop token that does not support callbacks is polled") {
  const tcp_listener listener = silent_listener();
  std::atomic<int> most{5};
  std::atomic<int> polls{0};
  // The token has no callback, so the wait can only end because it polls the token.
  CHECK(is_cancelled(listener, polled_token{&most, &polls}));
}

TEST_CASE("a stop request does not wake later waits of the thread") {
  const tcp_listener listener = silent_listener();
  for (int round = 0; round < 20; ++round) {
    std::stop_source first;
    std::thread requester([&] { first.request_stop(); });
    CHECK(is_cancelled(listener, wait_limit(20s, first.get_token())));
    requester.join();
    const std::stop_source second;
    const auto until = steady_clock::now() + 5ms;
    CHECK(listener.accept(wait_limit(until, second.get_token())).error() == error_kind::timed_out);
    CHECK(steady_clock::now() >= until);
  }
}

TEST_CASE("a stop request during a wait is never lost") {
  const tcp_listener listener = silent_listener();
  CHECK(is_always_stopped([&](const wait_limit& until) { return is_cancelled(listener, until); }));
}

TEST_CASE("a stop request during a wait on a condition variable is never lost") {
  std::mutex lock;
  std::condition_variable changed;
  CHECK(is_always_stopped([&](const wait_limit& until) {
    std::unique_lock held(lock);
    return !detail::wait_notified(changed, held, until, []() noexcept { return false; }) &&
           held.owns_lock();
  }));
}

TEST_CASE("a stop request of a coroutine in an event loop is never lost") {
  event_loop loop;
  silent_source source;
  CHECK(is_always_stopped([&](const wait_limit& until) {
    routine waiting = never_ready(loop, source, until);
    while (!waiting.is_done()) static_cast<void>(loop.run_once(until.deadline()));
    return waiting.get().error() == error_kind::cancelled;
  }));
}

TEST_CASE("a stop may be requested while a waiting coroutine or its event loop is destroyed") {
  silent_source source;
  bool is_loop_first = false;
  CHECK(is_always_stopped([&](const wait_limit& until) {
    std::optional<event_loop> loop(std::in_place);
    const routine waiting = never_ready(*loop, source, until);
    is_loop_first = !is_loop_first;
    if (is_loop_first) loop.reset();
    return true;
  }));
}

TEST_CASE("a notification ends a wait on a condition variable with a token") {
  std::mutex lock;
  std::condition_variable changed;
  bool is_there = false;
  counting_source source;
  std::thread notifier([&] {
    while (source.callbacks() == 0) std::this_thread::yield();
    const std::lock_guard guard(lock);
    is_there = true;
    changed.notify_all();
  });
  bool holds = false;
  {
    std::unique_lock held(lock);
    holds = detail::wait_notified(changed, held, wait_limit(20s, source.get_token()),
                                  [&]() noexcept { return is_there; });
  }
  notifier.join();
  CHECK(holds);
  CHECK(source.callbacks() == 0);
  std::unique_lock held(lock);
  const auto until = steady_clock::now() + 5ms;
  CHECK_FALSE(detail::wait_notified(changed, held, wait_limit(until, source.get_token()),
                                    []() noexcept { return false; }));
  CHECK(steady_clock::now() >= until);
}

#ifndef VERBSPP_TEST_THREAD_SANITIZED
TEST_CASE("a stop request in a child process does not wake its parent") {
  const tcp_listener listener = silent_listener();
  const std::stop_source never;
  const auto waits_for = [&](std::chrono::milliseconds length) {
    const auto until = steady_clock::now() + length;
    static_cast<void>(listener.accept(wait_limit(until, never.get_token())));
    return steady_clock::now() >= until;
  };
  // Creates the objects that wake this thread, so that they exist when the fork copies them to the
  // child.
  CHECK(waits_for(1ms));
  const pid_t child = ::fork();
  REQUIRE(child != -1);
  if (child == 0) {
    bool is_right = true;
    for (int round = 0; round < 20; ++round) {
      std::stop_source source;
      std::thread requester([&] {
        // steady: after this pause, the wait has likely begun; if not, it ends in the same way
        std::this_thread::sleep_for(5ms);
        source.request_stop();
      });
      is_right = is_cancelled(listener, wait_limit(20s, source.get_token())) && is_right;
      requester.join();
    }
    ::_exit(is_right ? 0 : 1);
  }
  CHECK(waits_for(300ms));
  int status = -1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
}
#endif
