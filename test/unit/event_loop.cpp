// SPDX-License-Identifier: Apache-2.0
// The event loop for coroutines, with sources that the test controls.

#include "../catch.hpp"
#include "../eager.hpp"
#include "../stopping.hpp"
#include "outcomes.hpp"
#include <verbspp/base/event_loop.hpp>

#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <optional>
#include <stop_token>
#include <utility>
#include <vector>

using namespace verbspp;
using namespace std::chrono_literals;
using verbspp::test::counting_source;
using verbspp::test::eager;
using verbspp::test::refused;
using verbspp::test::stop_a_sleep;

namespace {

using routine = eager<result<int>>;
using clock = std::chrono::steady_clock;

/// An event source that delivers numbers.
class numbers {
 public:
  numbers() = default;
  numbers(const numbers&) = delete;
  numbers& operator=(const numbers&) = delete;
  ~numbers() { ::close(signal_); }

  void put(int number) {
    number_ = number;
    ::eventfd_write(signal_, 1);
  }
  [[nodiscard]] std::optional<int> take() {
    eventfd_t ignored = 0;
    ::eventfd_read(signal_, &ignored);
    return std::exchange(number_, std::nullopt);
  }

  [[nodiscard]] int file_descriptor() const noexcept { return signal_; }
  [[nodiscard]] result<bool> request_notification() noexcept {
    ++asked;
    if (fails) return refused;
    return has_hidden_work;
  }
  [[nodiscard]] wait_limit::time_point deadline() const noexcept { return due; }

  int asked = 0;
  bool fails = false;
  bool has_hidden_work = false;  ///< true if there is work that the descriptor doesn't report
  wait_limit::time_point due = (wait_limit::time_point::max)();

 private:
  int signal_ = ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  std::optional<int> number_{};
};
static_assert(EventSource<numbers>);

routine next_of(event_loop& loop, numbers& source, wait_limit limit = wait_limit::forever()) {
  co_return co_await loop.async_until(
      source,
      [](numbers& from) -> std::optional<result<int>> {
        if (const auto number = from.take()) return result<int>(*number);
        return std::nullopt;
      },
      limit);
}

routine ready(event_loop& loop, numbers& source) {
  VERBSPP_CO_TRYV(co_await loop.async_ready(source));
  co_return 1;
}

/// A stop token with a large callback.
struct large_token : counting_source::token {
  template <class Function>
  struct callback_type : counting_source::token::callback_type<Function> {
    using counting_source::token::callback_type<Function>::callback_type;
    std::array<char, 1000> filling{};
  };
};

/// Runs one round, which sleeps no longer than `limit`. \returns the value of `run_once`
bool run(event_loop& loop, wait_limit limit = 10s) { return loop.run_once(limit).value(); }

}  // namespace

TEST_CASE("an event loop resumes the coroutines whose sources have work") {
  event_loop loop;
  numbers first, second;
  routine one = next_of(loop, first);
  routine two = next_of(loop, second);
  routine three = next_of(loop, second);
  CHECK_FALSE(run(loop, 0s));
  second.put(2);
  CHECK(run(loop));
  CHECK_FALSE(one.is_done());
  CHECK(two.get().value() == 2);
  CHECK_FALSE(three.is_done());
  first.put(1);
  second.put(3);
  CHECK(run(loop));
  CHECK(one.get().value() == 1);
  CHECK(three.get().value() == 3);
  CHECK_FALSE(run(loop, 0s));
}

TEST_CASE("an event loop does not wake up to poll a stop token") {
  event_loop loop;
  numbers source;
  const std::stop_source stop;
  routine waiting = next_of(loop, source, stop.get_token());
  const auto start = clock::now();
  CHECK_FALSE(run(loop, 50ms));
  CHECK(clock::now() - start >= 50ms);
  CHECK(source.asked == 1);
  source.put(1);
  CHECK(run(loop));
  CHECK(waiting.get().value() == 1);
}

TEST_CASE("a stop request of a waiting coroutine wakes an event loop") {
  CHECK(stop_a_sleep([](const wait_limit& until) {
          event_loop loop;
          numbers source;
          routine waiting = next_of(loop, source, until);
          return run(loop, wait_limit::forever()) && source.asked == 1 &&
                 waiting.get().error() == error_kind::cancelled;
        }).is_as_promised());
}

TEST_CASE("a stop request for a round wakes an event loop with many sources") {
  CHECK(stop_a_sleep([](const wait_limit& until) {
          event_loop loop;
          numbers source;
          std::vector<routine> all;
          for (int i = 0; i < 20; ++i) all.push_back(ready(loop, source));
          return !run(loop, until) && source.asked == 20;
        }).is_as_promised());
}

TEST_CASE("a stop request of a coroutine that no longer waits does not end a round") {
  event_loop loop;
  numbers source;
  std::stop_source stop;
  const routine other = ready(loop, source);
  std::optional<routine> destroyed(next_of(loop, source, stop.get_token()));
  stop.request_stop();
  destroyed.reset();
  const auto end = clock::now() + 20ms;
  CHECK_FALSE(run(loop, end));
  CHECK(clock::now() >= end);
  CHECK_FALSE(other.is_done());
}

TEST_CASE("a coroutine keeps a callback registered only while it waits in an event loop") {
  std::optional<event_loop> loop(std::in_place);
  numbers source;
  counting_source stop;
  const wait_limit until(stop.get_token());
  {
    const routine destroyed = next_of(*loop, source, until);
    CHECK(stop.callbacks() == 1);
  }
  CHECK(stop.callbacks() == 0);
  bool was_registered = true;
  const routine resumed = [](event_loop& in, numbers& from, const counting_source& registered,
                             wait_limit limit, bool& is_registered) -> routine {
    auto awaited = in.async_until(
        from, [](numbers& of) { return of.take() ? std::optional(result<int>(1)) : std::nullopt; },
        limit);
    VERBSPP_CO_TRYV(co_await awaited);
    is_registered = registered.callbacks() != 0;
    co_return 1;
  }(*loop, source, stop, until, was_registered);
  CHECK(stop.callbacks() == 1);
  source.put(1);
  CHECK(run(*loop));
  CHECK(resumed.is_done());
  CHECK_FALSE(was_registered);
  const routine outlives = next_of(*loop, source, until);
  CHECK(stop.callbacks() == 1);
  loop.reset();
  CHECK(stop.callbacks() == 0);
  stop.request_stop();
  CHECK_FALSE(outlives.is_done());
}

TEST_CASE("an event loop polls a stop token whose callback is too large to be stored") {
  event_loop loop;
  numbers source;
  counting_source stop;
  routine waiting = next_of(loop, source, wait_limit(large_token{stop.get_token()}));
  CHECK(stop.begun() == 0);
  stop.request_stop();
  CHECK(run(loop, wait_limit::forever()));
  CHECK(waiting.get().error() == error_kind::cancelled);
  CHECK_FALSE(run(loop, wait_limit(large_token{stop.get_token()})));
}

TEST_CASE("a coroutine that waits for work is not suspended if work is available") {
  event_loop loop;
  numbers source;
  source.put(7);
  const routine one = next_of(loop, source);
  CHECK(one.is_done());
  CHECK(source.asked == 0);
}

TEST_CASE("an event loop does not sleep while a source has work that its descriptor hides") {
  event_loop loop;
  numbers source;
  source.has_hidden_work = true;
  routine one = ready(loop, source);
  CHECK_FALSE(one.is_done());
  CHECK(run(loop));
  CHECK(one.get().value() == 1);
}

TEST_CASE("an event loop polls a source again at the source's deadline") {
  event_loop loop;
  numbers source;
  source.due = clock::now() + 20ms;
  routine one = ready(loop, source);
  CHECK(run(loop));
  CHECK(clock::now() >= source.due);
  CHECK(one.is_done());
}

TEST_CASE("the limit of a round ends its sleep") {
  event_loop loop;
  numbers source;
  const routine one = ready(loop, source);
  const auto end = clock::now() + 20ms;
  CHECK_FALSE(run(loop, end));
  CHECK(clock::now() >= end);
  std::stop_source stop;
  stop.request_stop();
  CHECK_FALSE(run(loop, stop.get_token()));
  CHECK_FALSE(one.is_done());
}

TEST_CASE("the limit of a coroutine ends its wait only") {
  event_loop loop;
  numbers source;
  std::stop_source stop;
  routine limited = next_of(loop, source, clock::now() + 20ms);
  routine stopped = next_of(loop, source, stop.get_token());
  routine patient = next_of(loop, source);
  while (!limited.is_done()) run(loop);
  CHECK(limited.get().error() == error_kind::timed_out);
  CHECK_FALSE(stopped.is_done());
  stop.request_stop();
  while (!stopped.is_done()) run(loop);
  CHECK(stopped.get().error() == error_kind::cancelled);
  CHECK_FALSE(patient.is_done());
  routine late = next_of(loop, source, wait_limit(0s));
  CHECK(late.get().error() == error_kind::timed_out);
}

TEST_CASE("a source that fails ends the wait with its error") {
  event_loop loop;
  numbers source;
  source.fails = true;
  routine one = next_of(loop, source);
  routine two = ready(loop, source);
  CHECK(run(loop));
  CHECK(one.get().error().message() == refused.message());
  CHECK(two.get().has_error());
}

TEST_CASE("a coroutine may destroy others that are due, and may wait again") {
  event_loop loop;
  numbers source;
  std::vector<std::optional<routine>> all(3);
  int sum = 0;
  const auto wait_twice = [&](std::size_t other) -> routine {
    VERBSPP_CO_TRYV(co_await loop.async_ready(source));
    all[other].reset();
    ++sum;
    VERBSPP_CO_TRYV(co_await loop.async_ready(source));
    co_return ++sum;
  };
  all[0].emplace(wait_twice(1));
  all[1].emplace(wait_twice(0));
  all[2].emplace(wait_twice(0));
  source.put(1);
  CHECK(run(loop));
  // The first coroutine destroyed the second one, and the third one destroyed the first.
  CHECK(sum == 2);
  CHECK_FALSE(all[0]);
  CHECK_FALSE(all[1]);
  CHECK(run(loop));
  CHECK(all[2]->get().value() == 3);
}

TEST_CASE("an event loop that is destroyed ends all waits without resuming a coroutine") {
  numbers source;
  std::optional<event_loop> loop(std::in_place);
  {
    const routine destroyed = ready(*loop, source);
  }
  const routine one = ready(*loop, source);
  loop.reset();
  source.put(1);
  CHECK_FALSE(one.is_done());
}

TEST_CASE("an event loop makes room for more sources when it has none left") {
  event_loop loop;
  numbers source;
  std::vector<routine> all;
  for (int i = 0; i < 100; ++i) {
    all.push_back(ready(loop, source));
    if (i % 30 == 0) CHECK_FALSE(run(loop, 0s));
  }
  source.put(1);
  CHECK(run(loop));
  for (routine& each : all) CHECK(each.is_done());
}
