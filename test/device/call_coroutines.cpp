// SPDX-License-Identifier: Apache-2.0
// Calls in coroutines, and services in event loops.

#include "../eager.hpp"
#include "calls.hpp"
#include "event_loop.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <stop_token>
#include <string>
#include <vector>

using namespace verbspp;
using namespace verbspp::test;

namespace {

using routine = eager<result<void>>;

/// Polls the channel of the caller until the coroutine has finished.
void finish(caller& calls, routine& running) {
  wait_until(
      [&] {
        calls.link().poll();
        return running.is_done();
      },
      "the coroutine");
}

}  // namespace

TEST_CASE("a coroutine awaits calls") {
  const testbed bed;
  running_service serving(bed);
  caller calls = serving.call();
  const auto talk = [&]() -> routine {
    for (std::int64_t i = 0; i < 50; ++i) {
      VERBSPP_CO_TRY(total, co_await calls.async_call<sum_method>({.first = i, .second = 3}));
      if (total != i + 3) co_return error(error_kind::mismatch, "test", "wrong sum");
    }
    const std::string text = "text";
    VERBSPP_CO_TRY(got, co_await calls.async_call<echo_method>(bytes_of(text), patience));
    if (text_of(got.view()) != text) co_return error(error_kind::mismatch, "test", "wrong text");
    VERBSPP_CO_TRYV(co_await calls.async_call<note_method>(9, patience));
    co_return success();
  };
  routine talking = talk();
  finish(calls, talking);
  must(talking.get());
  CHECK(serving.noted() == 9);
}

TEST_CASE("an awaited call gets the refusal of the service, and errors before it was sent") {
  const testbed bed;
  running_service serving(bed);
  caller calls = serving.call();
  const auto ask = [&](two_numbers numbers) -> routine {
    VERBSPP_CO_TRYV(co_await calls.async_call<sum_method>(numbers, patience));
    co_return success();
  };
  routine refused = ask({.first = -1, .second = 0});
  finish(calls, refused);
  CHECK(is_refusal(failure_of(refused.get())));
  const auto too_large = [&]() -> routine {
    const std::vector<std::byte> sent = pattern(2000, 1);
    VERBSPP_CO_TRYV(co_await calls.async_call<echo_method>(sent, patience));
    co_return success();
  };
  routine large = too_large();
  REQUIRE(large.is_done());
  CHECK(failure_of(large.get()) == error_kind::invalid_input);
  caller moved = std::move(calls);
  routine empty = ask({});
  REQUIRE(empty.is_done());
  CHECK(failure_of(empty.get()) == error_kind::invalid_input);
}

TEST_CASE("coroutines that outnumber the credits make their calls in order") {
  const testbed bed;
  running_service serving(bed, 1, {.clients = 2, .in_flight = 3, .waiting = wait_mode::sleep()});
  caller calls = serving.call();
  std::vector<int> order;
  const auto ask = [&](int number) -> routine {
    VERBSPP_CO_TRYV(
        co_await calls.async_call<sum_method>({.first = number, .second = 0}, patience));
    order.push_back(number);
    co_return success();
  };
  std::vector<routine> asking;
  for (int i = 0; i < 40; ++i) asking.push_back(ask(i));
  for (routine& each : asking) finish(calls, each);
  for (routine& each : asking) must(each.get());
  CHECK(std::ranges::is_sorted(order));
  CHECK(calls.statistics().waits > 0);
}

TEST_CASE("the limit of an awaited call ends only this call") {
  const testbed bed;
  running_service serving(bed);
  caller calls = serving.call();
  const auto ask = [&](wait_limit limit) -> routine {
    VERBSPP_CO_TRYV(co_await calls.async_call<kept_method>(1, limit));
    co_return success();
  };
  SECTION("a time") {
    routine asking = ask(short_limit);
    finish(calls, asking);
    CHECK(failure_of(asking.get()) == error_kind::timed_out);
  }
  SECTION("a stop request") {
    std::stop_source stop;
    routine asking = ask(stop.get_token());
    static_cast<void>(serving.kept.take(1));
    stop.request_stop();
    finish(calls, asking);
    CHECK(asking.get().has_error());
  }
  SECTION("the coroutine is destroyed") {
    {
      const routine asking = ask(patience);
    }
    must(serving.kept.take(1)[0].answer(1));
    wait_until(
        [&] {
          must(calls.call<note_method>(1, patience));
          return calls.statistics().late_answers == 1;
        },
        "the late answer");
  }
  CHECK(must(calls.call<sum_method>({.first = 1, .second = 2}, patience)) == 3);
  CHECK(calls.link().is_connected());
}

TEST_CASE("a call that is never awaited is not sent") {
  const testbed bed;
  running_service serving(bed);
  caller calls = serving.call();
  const std::uint64_t before = calls.statistics().calls;
  const std::int32_t asked = 1;
  {
    [[maybe_unused]] auto unused = calls.async_call<note_method>(asked, patience);
  }
  must(calls.call<note_method>(10, patience));
  CHECK(serving.noted() == 10);
  CHECK(calls.statistics().calls == before + 1);
  CHECK(calls.statistics().given_up == 0);
}

TEST_CASE("the end of the connection ends awaited calls") {
  const testbed bed;
  running_service serving(bed);
  std::optional<caller> calls = serving.call();
  const auto ask = [&](std::int32_t value) -> routine {
    VERBSPP_CO_TRYV(co_await calls->async_call<kept_method>(value, patience));
    co_return success();
  };
  std::vector<routine> asking;
  // The last two calls wait for a credit.
  for (std::int32_t i = 0; i < 10; ++i) asking.push_back(ask(i));
  SECTION("the caller is destroyed") { calls.reset(); }
  SECTION("its channel is closed") { must(calls->link().close()); }
  for (routine& each : asking) {
    REQUIRE(each.is_done());
    CHECK(failure_of(each.get()) == error_kind::not_connected);
  }
}

TEST_CASE("coroutines may be destroyed at any moment of a call") {
  const testbed bed;
  running_service serving(bed);
  caller calls = serving.call();
  std::minstd_rand random(11);
  const auto ask = [&](std::uint32_t seed) -> routine {
    for (;;) {
      const std::vector<std::byte> sent = pattern(seed % 300, seed);
      VERBSPP_CO_TRY(got, co_await calls.async_call<echo_method>(sent, patience));
      if (!std::ranges::equal(got.view(), sent))
        co_return error(error_kind::mismatch, "test", "the answer of another call");
      ++seed;
    }
  };
  std::vector<std::unique_ptr<routine>> asking(16);
  for (std::uint32_t i = 0; i < 5 * repetitions(2000); ++i) {
    auto& chosen = asking[random() % asking.size()];
    chosen = std::make_unique<routine>(ask(static_cast<std::uint32_t>(random())));
    if (random() % 4 == 0) calls.link().poll();
    if (chosen->is_done()) must(chosen->get());
  }
  asking.clear();
  CHECK(must(calls.call<sum_method>({.first = 1, .second = 2}, patience)) == 3);
  const caller_statistics counted = calls.statistics();
  CHECK(counted.given_up > 0);
  CHECK(counted.answers > 0);
}

TEST_CASE("an event loop serves calls") {
  const testbed bed;
  running_service serving(bed, 0, {.clients = 4, .waiting = wait_mode::sleep()});
  // The caller starts on a thread of its own, because `start` waits for the service.
  auto [calls, link] = serving.prepare({}, wait_mode::sleep());
  std::string failed;
  std::atomic<bool> is_done{false};
  std::thread calling([&, &calls = calls, &link = link] {
    const auto talk = [&]() -> result<void> {
      VERBSPP_TRYV((calls.start<sum_method>(std::move(link), patience)));
      for (std::int64_t i = 0; i < 30; ++i) {
        VERBSPP_TRY(total, calls.call<sum_method>({.first = i, .second = 1}, patience));
        if (total != i + 1) failed = "wrong sum";
      }
      return success();
    };
    if (const auto done = talk(); done.has_error()) failed = done.error().message();
    is_done = true;
    serving.served().hub().wake({.index = 0, .generation = 1});
  });
  serve(serving.served(), [&] {
    must(serving.served().poll());
    return is_done.load();
  });
  calling.join();
  CHECK(failed.empty());
}
