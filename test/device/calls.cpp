// SPDX-License-Identifier: Apache-2.0
// Calls: blocking calls and calls in flight, refusals, answers in any order, limits, the comparison
// of methods, endings, and statistics.

#include "calls.hpp"

#include "../socket_pair.hpp"
#include "event_loop.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <sstream>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

using namespace verbspp;
using namespace verbspp::test;
using namespace std::chrono_literals;

/// A value whose codec may return a size larger than the space for it.
struct boastful {
  bool boasts = false;
};
template <>
struct verbspp::codec<boastful> {
  static constexpr std::uint32_t size = any_size;
  [[nodiscard]] static result<std::size_t> encode(const boastful& from,
                                                  std::span<std::byte> into) noexcept {
    return from.boasts ? into.size() + 1 : 0;
  }
  [[nodiscard]] static result<boastful> decode(std::span<const std::byte> /*from*/) noexcept {
    return boastful();
  }
};

namespace {

static_assert(FourFunctions<service>);

struct boast_method : echo_method {
  using request = boastful;
};
struct boast_answer : echo_method {
  using answer = boastful;
};

// Methods that differ from those of the service.
struct missing_method : sum_method {
  static constexpr std::uint16_t number = 9;
};
struct renamed_method : sum_method {
  static constexpr const char* name = "total";
};
struct newer_method : note_method {
  static constexpr std::uint16_t version = 8;
};
struct larger_method : sum_method {
  using request = std::array<std::int64_t, 3>;
};
struct bytes_method : sum_method {
  using answer = bytes;
};

}  // namespace

TEST_CASE("a call whose answer's codec returns too large a size is refused") {
  struct boasting_service : service_threads {
    explicit boasting_service(const testbed& bed) : service_threads(bed) {
      serve(service::create(bed.domain, default_options,
                            handles<boast_answer>([](std::span<const std::byte> /*asked*/) {
                              return boastful{true};
                            })),
            1);
    }
    boasting_service(const boasting_service&) = delete;
    boasting_service& operator=(const boasting_service&) = delete;
    ~boasting_service() { close(); }
  };
  const testbed bed;
  boasting_service serving(bed);
  auto [calls, link] = serving.prepare();
  must(calls.start<boast_answer>(std::move(link), patience));
  for (int i = 0; i < 2; ++i)
    CHECK(is_refusal(failure_of(calls.call<boast_answer>(std::span<const std::byte>(), patience))));
}

TEST_CASE("a codec that returns too large a size fails only its call") {
  const testbed bed;
  running_service serving(bed);
  auto [calls, link] = serving.prepare();
  must(calls.start<boast_method>(std::move(link), patience));
  CHECK(failure_of(calls.call<boast_method>(boastful{true}, patience)) ==
        error_kind::invalid_input);
  CHECK(must(calls.call<boast_method>(boastful{false}, patience)).size() == 0);
}

TEST_CASE("calls return the answers of the service") {
  const testbed bed;
  running_service serving(bed);
  caller calls = serving.call();
  for (std::int64_t i = 0; i < 300; ++i)
    CHECK(must(calls.call<sum_method>({.first = i, .second = 1}, patience)) == i + 1);
  for (const std::size_t size : {0U, 1U, 17U, 1023U, 1024U}) {
    const std::vector<std::byte> sent = pattern(size, 3);
    const received_bytes got = must(calls.call<echo_method>(sent, patience));
    CHECK(std::ranges::equal(got.view(), sent));
  }
  must(calls.call<note_method>(5, patience));
  must(calls.call<note_method>(6, patience));
  CHECK(serving.noted() == 11);
  const caller_statistics counted = calls.statistics();
  CHECK(counted.calls == counted.answers);
  CHECK(counted.refusals == 0);
  serving.stop();
  CHECK(serving.failure().empty());
  CHECK(serving.served().statistics().calls == counted.calls);
  CHECK(serving.served().statistics().request_bytes == counted.request_bytes);
}

TEST_CASE("callers and services spin, sleep, or do both") {
  const testbed bed;
  for (const wait_mode mode : all_modes) {
    running_service serving(bed, 2, {.clients = 8, .waiting = mode});
    caller calls = serving.call({}, mode);
    for (std::int64_t i = 0; i < 50; ++i)
      CHECK(must(calls.call<sum_method>({.first = i, .second = 2}, patience)) == i + 2);
  }
}

TEST_CASE("a handler can refuse a call, and the caller gets the kind and the text") {
  const testbed bed;
  running_service serving(bed);
  caller calls = serving.call();
  const error refused = failure_of(calls.call<sum_method>({.first = -1, .second = 0}, patience));
  CHECK(refused == error_kind::not_found);
  CHECK(is_refusal(refused));
  CHECK_THAT(refused.message(), Catch::Contains("there is no such number"));
  CHECK(must(calls.call<sum_method>({.first = 1, .second = 0}, patience)) == 1);
  CHECK(calls.statistics().refusals == 1);

  SECTION("a deferred call") {
    auto waiting = must(calls.post_call<kept_method>(1));
    serving.kept.take(1)[0].refuse(error_kind::busy, "come back\nlater");
    const error busy = failure_of(waiting.wait(patience));
    CHECK(busy == error_kind::busy);
    CHECK_THAT(busy.message(), Catch::Contains("come back?later"));
  }
  SECTION("a call that the handler drops") {
    auto waiting = must(calls.post_call<kept_method>(1));
    serving.kept.take(1).clear();
    const error dropped = failure_of(waiting.wait(patience));
    CHECK(dropped == error_kind::cancelled);
    CHECK(is_refusal(dropped));
    CHECK_THAT(dropped.message(), Catch::Contains("dropped the call"));
  }
}

TEST_CASE("the text of a refusal may be a part of the request") {
  struct quoting_service : service_threads {
    explicit quoting_service(const testbed& bed) : service_threads(bed) {
      serve(service::create(bed.domain, default_options,
                            handles<echo_method>([](received_call<echo_method> call) {
                              const auto words = call.request();
                              call.refuse(
                                  error_kind::busy,
                                  {reinterpret_cast<const char*>(words.data()), words.size()});
                            })),
            1);
    }
  };
  const testbed bed;
  quoting_service serving(bed);
  auto [calls, link] = serving.prepare();
  must(calls.start<echo_method>(std::move(link), patience));
  const error refused =
      failure_of(calls.call<echo_method>(bytes_of("there is no such word"), patience));
  CHECK(refused == error_kind::busy);
  CHECK_THAT(refused.message(), Catch::Contains("there is no such word"));
}

TEST_CASE("answers may come in any order, from another thread") {
  const testbed bed;
  running_service serving(bed);
  caller calls = serving.call();
  std::vector<pending_call<kept_method>> waiting;
  for (std::int32_t i = 0; i < 8; ++i) waiting.push_back(must(calls.post_call<kept_method>(i)));
  CHECK_FALSE(waiting[0].poll());
  // All credits are used.
  CHECK(failure_of(calls.post_call<kept_method>(8)) == error_kind::would_block);
  auto taken = serving.kept.take(8);
  std::ranges::shuffle(taken, std::minstd_rand(7));
  std::thread answering([&] {
    for (auto& each : taken) static_cast<void>(each.answer(each.request() * 10));
  });
  answering.join();
  for (std::int32_t i = 7; i >= 0; --i)
    CHECK(must(waiting[static_cast<std::size_t>(i)].wait(patience)) == i * 10);
  CHECK_FALSE(waiting[0].has_call());
  CHECK(failure_of(waiting[0].wait(patience)) == error_kind::invalid_input);
  CHECK(taken[0].is_open() == false);
  CHECK(failure_of(taken[0].answer(1)) == error_kind::invalid_input);
}

TEST_CASE("the limit of a call ends only this call, and its late answer is dropped") {
  const testbed bed;
  running_service serving(bed);
  caller calls = serving.call();
  CHECK(failure_of(calls.call<kept_method>(1, short_limit)) == error_kind::timed_out);
  CHECK(must(calls.call<sum_method>({.first = 1, .second = 2}, patience)) == 3);
  auto second = must(calls.post_call<kept_method>(2));
  auto taken = serving.kept.take(2);
  must(taken[0].answer(100));
  must(taken[1].answer(200));
  CHECK(must(second.wait(patience)) == 200);
  CHECK(calls.statistics().given_up == 1);
  CHECK(calls.statistics().late_answers == 1);
  SECTION("a stop request ends a call, too") {
    std::stop_source stop;
    std::thread stopping = later([&] { stop.request_stop(); });
    CHECK(failure_of(calls.call<kept_method>(3, stop.get_token())) == error_kind::cancelled);
    stopping.join();
    CHECK(must(calls.call<sum_method>({.first = 1, .second = 2}, patience)) == 3);
  }
  SECTION("destroying or assigning a handle ends its call") {
    auto dropped = must(calls.post_call<kept_method>(4));
    dropped = must(calls.post_call<kept_method>(5));
    dropped.give_up();
    CHECK_FALSE(dropped.has_call());
    CHECK(calls.statistics().given_up == 3);
  }
}

TEST_CASE("destroying the handle of a call in flight drops its answer, and returns its credit") {
  const testbed bed;
  running_service serving(bed);
  caller calls = serving.call();
  const std::uint64_t credits = serving.default_options.in_flight;
  for (std::uint64_t round = 1; round <= 3; ++round) {
    {
      std::vector<pending_call<kept_method>> dropped;
      for (std::uint64_t i = 0; i < credits; ++i)
        dropped.push_back(must(calls.post_call<kept_method>(1)));
    }
    CHECK(calls.statistics().given_up == round * credits);
    // Calls in flight keep their credits until they are answered, even without handles.
    CHECK(failure_of(calls.post_call<note_method>(1)) == error_kind::would_block);
    auto taken = serving.kept.take(credits);
    for (std::size_t i = 0; i < taken.size(); i += 2) must(taken[i].answer(1));
    taken.clear();  // refuses the others
    wait_until(
        [&] {
          must(calls.call<note_method>(1, patience));
          return calls.statistics().late_answers == round * credits;
        },
        "the late answers");
  }
  // Dropping a handle after the answer has arrived also frees the memory of the answer.
  constexpr std::uint64_t answered = 64;
  for (std::uint64_t i = 0; i < answered; ++i) {
    auto dropped = must(calls.post_call<kept_method>(2));
    must(serving.kept.take(1)[0].answer(2));
    must(calls.call<note_method>(1, patience));  // takes the answer to the other call, too
  }
  CHECK(calls.statistics().given_up == 3 * credits + answered);
  CHECK(must(calls.call<sum_method>({.first = 1, .second = 2}, patience)) == 3);
  CHECK(calls.statistics<kept_method>().answers == 0);
  serving.stop();
  CHECK(serving.served().statistics().removed_clients == 0);
}

TEST_CASE("a call waits for a credit until its limit") {
  const testbed bed;
  running_service serving(bed, 1, {.clients = 2, .in_flight = 2, .waiting = wait_mode::sleep()});
  caller calls = serving.call();
  auto first = must(calls.post_call<kept_method>(1));
  auto second = must(calls.post_call<kept_method>(2));
  const error full = failure_of(calls.call<note_method>(1, short_limit));
  CHECK(full == error_kind::timed_out);
  CHECK_THAT(full.message(), Catch::Contains("the call was not sent"));
  auto taken = serving.kept.take(2);
  CHECK(serving.noted() == 0);
  std::thread answering = later([&] { static_cast<void>(taken[0].answer(7)); });
  must(calls.call<note_method>(1, patience));
  answering.join();
  CHECK(serving.noted() == 1);
  must(taken[1].answer(8));
  CHECK(must(first.wait(patience)) == 7);
  CHECK(must(second.wait(patience)) == 8);
  CHECK(calls.statistics().waits >= 2);
}

TEST_CASE("the two ends compare their methods, and the error names the difference") {
  const testbed bed;
  running_service serving(bed);
  auto [calls, link] = serving.prepare();
  const auto difference = [&, &calls = calls, &link = link]<class... Methods>() {
    const error differing = failure_of(calls.start<Methods...>(std::move(link), patience));
    CHECK(is_refusal(differing));
    return differing;
  };
  SECTION("a missing method") {
    const error lacks = difference.operator()<sum_method, missing_method>();
    CHECK(lacks == error_kind::not_found);
    CHECK_THAT(lacks.message(), Catch::Contains("no method with the number 9"));
  }
  SECTION("a different name") {
    const error differs = difference.operator()<renamed_method>();
    CHECK(differs == error_kind::mismatch);
    CHECK_THAT(differs.message(),
               Catch::Contains("the name of method 1") && Catch::Contains("the service has 'sum'"));
  }
  SECTION("a different version") {
    CHECK_THAT(difference.operator()<newer_method>().message(),
               Catch::Contains("the caller has 8, the service has 7"));
  }
  SECTION("a different size of the request") {
    CHECK_THAT(difference.operator()<larger_method>().message(),
               Catch::Contains("the caller has 24 bytes, the service has 16 bytes"));
  }
  SECTION("a different size of the answer") {
    CHECK_THAT(difference.operator()<bytes_method>().message(),
               Catch::Contains("the caller has any number of bytes, the service has 8 bytes"));
  }
}

TEST_CASE("the smaller message size of both ends applies") {
  const testbed bed;
  running_service serving(bed, 1,
                          {.clients = 4, .message_size = 512, .waiting = wait_mode::sleep()});
  SECTION("the request is too large for the service") {
    caller calls = serving.call({.message_size = 1024});
    CHECK(must(calls.call<echo_method>(pattern(512, 1), patience)).size() == 512);
    CHECK(failure_of(calls.call<echo_method>(pattern(513, 1), patience)) ==
          error_kind::invalid_input);
    CHECK(must(calls.call<echo_method>(pattern(512, 1), patience)).size() == 512);
  }
  SECTION("the caller's messages are smaller") {
    caller calls = serving.call({.message_size = 200});
    CHECK(must(calls.call<echo_method>(pattern(200, 1), patience)).size() == 200);
    CHECK(failure_of(calls.call<echo_method>(pattern(201, 1), patience)) ==
          error_kind::invalid_input);
  }
}

TEST_CASE("received bytes keep their place, and too many kept answers delay calls") {
  const testbed bed;
  running_service serving(bed);
  caller calls = serving.call({.in_flight = 2, .kept_answers = 4});
  std::vector<received_bytes> kept;
  for (int i = 0; i < 4; ++i)
    kept.push_back(must(calls.call<echo_method>(bytes_of(std::to_string(i)), patience)));
  for (int i = 0; i < 4; ++i)
    CHECK(text_of(kept[static_cast<std::size_t>(i)].view()) == std::to_string(i));
  // Calls succeed until the kept answers leave no memory for another receive.
  result<void> last = success();
  for (int i = 0; i < 64 && last.has_value(); ++i) {
    auto next = calls.call<echo_method>(bytes_of("more"), short_limit);
    if (next.has_value())
      kept.push_back(std::move(next).value());
    else
      last = next.error();
  }
  REQUIRE(last.has_error());
  CHECK(last.error() == error_kind::timed_out);
  CHECK(calls.link().is_connected());
  kept.clear();
  CHECK(must(calls.call<echo_method>(bytes_of("again"), patience)).size() == 5);
}

TEST_CASE("the end of the connection ends all calls") {
  const testbed bed;
  running_service serving(bed);
  const wait_mode mode = all_modes[GENERATE(0U, 1U, 2U)];
  caller calls = serving.call({}, mode);
  auto waiting = must(calls.post_call<kept_method>(1));
  auto taken = serving.kept.take(1);
  SECTION("the service is closed") {
    serving.close();
    // A queue pair is not notified when its peer is destroyed. So this wait ends at its limit, and
    // the next request fails.
    CHECK(waiting.wait(short_limit).has_error());
    CHECK(calls.call<sum_method>({}, patience).has_error());
    must(taken[0].answer(1));
  }
  SECTION("the caller closes its channel") {
    must(calls.link().close());
    CHECK(failure_of(waiting.wait(patience)) == error_kind::not_connected);
    CHECK(failure_of(calls.call<sum_method>({}, patience)) == error_kind::not_connected);
    must(taken[0].answer(1));
  }
  SECTION("the watched socket is closed, and the limit of the call has passed") {
    socket_pair socket;
    calls.link().watch(socket[0], watch_for::hang_up);
    socket.close(1);
    const error ended = failure_of(waiting.wait(wait_limit(0ms)));
    CHECK(ended == error_kind::not_connected);
    CHECK(failure_of(calls.call<sum_method>({}, patience)) == error_kind::not_connected);
    must(taken[0].answer(1));
  }
  SECTION("the caller is destroyed before its handle") {
    {
      const caller gone = std::move(calls);
    }
    CHECK(failure_of(waiting.wait(patience)) == error_kind::not_connected);
    taken[0].refuse(error_kind::busy, "");
    wait_until([&] { return serving.served().clients() == 0; }, "the end of the client");
    // A new client can use all the memory that the old one used.
    caller next = serving.call();
    for (int i = 0; i < 100; ++i)
      CHECK(must(next.call<sum_method>({.first = i, .second = i}, patience)) == 2 * i);
  }
}

TEST_CASE("several clients and threads call at the same time, and each gets its own answers") {
  const testbed bed;
  running_service serving(bed, 2);
  std::vector<caller> callers;
  for (int i = 0; i < 6; ++i) callers.push_back(serving.call());
  std::vector<std::string> failures(callers.size());
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < callers.size(); ++i)
    threads.emplace_back([&, i] {
      const auto talk = [&]() -> result<void> {
        for (std::uint32_t n = 0; n < repetitions(200); ++n) {
          const auto seed = static_cast<std::int64_t>(i * 1000 + n);
          VERBSPP_TRY(total, callers[i].call<sum_method>({.first = seed, .second = 1}, patience));
          if (total != seed + 1) failures[i] = "wrong sum";
          const std::vector<std::byte> sent = pattern(n % 200, static_cast<unsigned>(seed));
          VERBSPP_TRY(got, callers[i].call<echo_method>(sent, patience));
          if (!std::ranges::equal(got.view(), sent)) failures[i] = "wrong bytes";
        }
        return success();
      };
      if (const auto done = talk(); done.has_error()) failures[i] = done.error().message();
    });
  for (std::thread& each : threads) each.join();
  for (const std::string& each : failures) CHECK(each.empty());
}

TEST_CASE("a client that takes no answers does not delay the others") {
  const testbed bed;
  running_service serving(bed);
  caller idle = serving.call();
  std::vector<pending_call<echo_method>> untaken;
  for (int i = 0; i < 8; ++i)
    untaken.push_back(must(idle.post_call<echo_method>(bytes_of("untaken"))));
  caller busy = serving.call();
  for (std::int64_t i = 0; i < 100; ++i)
    CHECK(must(busy.call<sum_method>({.first = i, .second = 0}, patience)) == i);
  for (auto& each : untaken) CHECK(must(each.wait(patience)).size() == 7);
}

TEST_CASE("invalid options and moved-from objects are refused") {
  const testbed bed;
  const auto handler = [] { return handles<sum_method>([](const two_numbers&) { return 0; }); };
  CHECK_THAT(failure_of(service::create(bed.domain, {.clients = 0}, handler())).message(),
             Catch::Contains("clients"));
  CHECK_THAT(failure_of(service::create(bed.domain, {.in_flight = 70'000}, handler())).message(),
             Catch::Contains("in_flight"));
  CHECK_THAT(failure_of(service::create(bed.domain, {.message_size = 1}, handler())).message(),
             Catch::Contains("message_size"));
  auto small = must(bed.domain.build_channel().max_send_work_requests(4).build());
  const auto sends = small.capacities().max_send_work_requests;
  CHECK_THAT(failure_of(caller::open(small, {.in_flight = sends + 1})).message(),
             Catch::Contains("max_send_work_requests"));
  // The device may grant longer queues, but a channel of a hub uses only what was requested.
  const auto hub = must(channel_hub::create(bed.domain, {.channels = 1, .completions = 64}));
  auto of_hub = must(bed.domain.build_channel()
                         .hub(hub)
                         .max_send_work_requests(5)
                         .max_receive_work_requests(12)
                         .build());
  CHECK_THAT(failure_of(caller::open(of_hub, {.in_flight = 6})).message(),
             Catch::Contains("max_send_work_requests"));
  // The sum of the places would be above 2^32.
  for (const std::uint32_t kept : {UINT32_MAX, UINT32_MAX - 3}) {
    const error refused = failure_of(caller::open(small, {.in_flight = 1, .kept_answers = kept}));
    CHECK(refused == error_kind::invalid_input);
    CHECK_THAT(refused.message(), Catch::Contains("kept_answers"));
  }
  CHECK(failure_of(caller::open(small, {.in_flight = 0})) == error_kind::invalid_input);
  CHECK(failure_of(caller::open(small, {.message_size = 100})) == error_kind::invalid_input);

  running_service serving(bed);
  caller calls = serving.call();
  const caller moved = std::move(calls);
  // NOLINTBEGIN(bugprone-use-after-move)
  CHECK(failure_of(calls.call<sum_method>({}, patience)) == error_kind::invalid_input);
  CHECK(failure_of(calls.post_call<sum_method>({})) == error_kind::invalid_input);
  // NOLINTEND(bugprone-use-after-move)
  auto [unstarted, link] = serving.prepare();
  CHECK(failure_of(unstarted.post_call<sum_method>({})) == error_kind::not_connected);
  auto [other, other_link] = serving.prepare();
  CHECK_THAT(failure_of(unstarted.start<sum_method>(std::move(other_link), patience)).message(),
             Catch::Contains("not the channel for which"));
  must(unstarted.start<sum_method>(std::move(link), patience));
}

TEST_CASE("a service refuses channels that cannot carry its calls") {
  const testbed bed;
  running_service serving(bed, 0, {.clients = 2, .in_flight = 8});
  const auto add = [&](const auto& builder) {
    auto own = must(builder.hub(serving.served().hub()).build());
    auto ends = connect_channels(std::move(own), must(bed.domain.build_channel().build()));
    return serving.served().add(std::move(ends.left));
  };
  CHECK_THAT(failure_of(add(bed.domain.build_channel().max_send_work_requests(7))).message(),
             Catch::Contains("max_send_work_requests"));
  must(add(bed.domain.build_channel().max_send_work_requests(8)));
  channel_pair unreliable = connect_channels(bed.domain.build_channel<transport::uc>());
  CHECK(failure_of(serving.served().add(std::move(unreliable.left))) == error_kind::not_supported);
  const error empty = failure_of(serving.served().add(channel()));
  CHECK(empty == error_kind::invalid_input);
  CHECK_THAT(empty.message(), !Catch::Contains("max_send_work_requests"));
  CHECK(serving.served().clients() == 1);
}

TEST_CASE("a service stops at its limit although more clients have arrivals") {
  const testbed bed;
  constexpr std::uint32_t count = 40;
  running_service serving(bed, 1, {.clients = count, .waiting = wait_mode::sleep()});
  std::vector<caller> callers;
  for (std::uint32_t i = 0; i < count; ++i) callers.push_back(serving.call());
  serving.stop();
  const std::uint64_t before = serving.served().statistics().calls;
  std::vector<pending_call<sum_method>> calls;
  for (caller& each : callers) calls.push_back(must(each.post_call<sum_method>({1, 2})));
  std::stop_source stop;
  stop.request_stop();
  must(serving.served().serve(stop.get_token()));
  CHECK(serving.served().statistics().calls - before < count);
  for (pending_call<sum_method>& each : calls)
    wait_until(
        [&] {
          must(serving.served().poll());
          const auto answer = each.poll();
          return answer && must(*answer) == 3;
        },
        "the answer");
}

TEST_CASE("a caller and a service print their calls and connections") {
  const testbed bed;
  running_service serving(bed);
  caller calls = serving.call();
  must(calls.call<note_method>(1, patience));
  std::ostringstream text;
  text << calls;
  // The comparison of the methods is a call, too.
  CHECK_THAT(text.str(), Catch::StartsWith("caller, calls: 2, answers: 2, ") &&
                             Catch::Contains("channel") && Catch::Contains("connected"));
  text.str("");
  text << serving.served();
  CHECK_THAT(text.str(), Catch::StartsWith("service, calls: 2, answers: 2, hub, 1 of "));
  const caller moved = std::move(calls);
  text.str("");
  text << calls;  // NOLINT(bugprone-use-after-move)
  CHECK(text.str() == "caller that was moved from");
}

TEST_CASE("calls are counted by method, at both ends") {
  const testbed bed;
  running_service serving(bed);
  caller calls = serving.call({.measures_durations = true});
  for (int i = 0; i < 3; ++i) must(calls.call<note_method>(i, patience));
  CHECK(is_refusal(failure_of(calls.call<sum_method>({.first = -1, .second = 0}, patience))));
  CHECK(must(calls.call<echo_method>(bytes_of("four"), patience)).size() == 4);
  CHECK(failure_of(calls.call<kept_method>(1, 1ms)) == error_kind::timed_out);
  serving.kept.take(1).clear();
  must(calls.call<note_method>(1, patience));

  CHECK(calls.statistics<note_method>().calls == 4);
  CHECK(calls.statistics<note_method>().answers == 4);
  CHECK(calls.statistics<note_method>().request_bytes == 16);
  CHECK(calls.statistics<sum_method>().refusals == 1);
  CHECK(calls.statistics<echo_method>().answer_bytes == 4);
  CHECK(calls.statistics<kept_method>().given_up == 1);
  CHECK(calls.statistics<kept_method>().answers == 0);
  wait_until(
      [&] {
        must(calls.call<note_method>(1, patience));
        return calls.statistics<kept_method>().late_answers == 1;
      },
      "the late answer");
  // An answer may arrive before the service has counted it.
  serving.stop();
  const service& served = serving.served();
  CHECK(served.statistics<sum_method>().refusals == 1);
  CHECK(served.statistics<echo_method>().answer_bytes == 4);
  CHECK(served.statistics<kept_method>().refusals == 1);
  CHECK(served.statistics<missing_method>().calls == 0);
  // Three other methods were called once each, and the comparison of the methods is a call, too.
  CHECK(served.statistics().calls > served.statistics<note_method>().calls + 3);
  CHECK(calls.statistics().calls == served.statistics().calls);

  CHECK(calls.durations<note_method>().count() == calls.statistics<note_method>().calls);
  CHECK(calls.durations<note_method>().quantile(0.5) > 0ns);
  CHECK(calls.durations<sum_method>().count() == 1);
  CHECK(calls.durations<kept_method>().count() == 0);
}

TEST_CASE("calls that are in flight when the caller is started again are counted afterwards") {
  const testbed bed;
  running_service serving(bed);
  caller calls = serving.call();
  auto answered = must(calls.post_call<kept_method>(1));
  auto given_up = must(calls.post_call<kept_method>(2));
  auto taken = serving.kept.take(2);
  channel link = std::move(calls.link());
  must(calls.start<sum_method, kept_method>(std::move(link), patience));
  CHECK(calls.statistics<kept_method>().calls == 0);
  must(taken[0].answer(3));
  CHECK(must(answered.wait(patience)) == 3);
  given_up.give_up();
  CHECK(calls.statistics<kept_method>().answers == 1);
  CHECK(calls.statistics<kept_method>().given_up == 1);
}

TEST_CASE("durations are not measured unless an option requests it") {
  const testbed bed;
  running_service serving(bed);
  caller calls = serving.call();
  must(calls.call<note_method>(1, patience));
  CHECK(calls.durations<note_method>().count() == 0);
}

TEST_CASE(
    "a histogram's ranges have no gaps, and from 4 ns on their length is at most a quarter of "
    "their start") {
  for (std::size_t range = 1; range < duration_histogram::ranges; ++range) {
    const auto begin = duration_histogram::end_of(range - 1);
    const auto end = duration_histogram::end_of(range);
    CHECK(duration_histogram::range_of(begin) == range);
    CHECK(duration_histogram::range_of(end - 1ns) == range);
    CHECK((range < 4 || (end - begin) * 4 <= begin));
  }
  CHECK(duration_histogram::range_of(-1ns) == 0);
  CHECK(duration_histogram::range_of((std::chrono::nanoseconds::max)()) ==
        duration_histogram::ranges - 1);
}

TEST_CASE("a histogram returns quantiles and can be added to another one") {
  duration_histogram counted;
  CHECK(counted.quantile(0.5) == 0ns);
  for (int i = 1; i <= 100; ++i) counted.add(std::chrono::microseconds(i));
  CHECK(counted.count() == 100);
  const auto is_about = [](std::chrono::nanoseconds found, std::chrono::nanoseconds wanted) {
    return found > wanted && found <= wanted * 5 / 4 + 1ns;
  };
  CHECK(is_about(counted.quantile(0), 1us));
  CHECK(is_about(counted.quantile(0.5), 50us));
  CHECK(is_about(counted.quantile(0.99), 99us));
  CHECK(is_about(counted.quantile(2), 100us));
  duration_histogram sum;
  sum.add(counted);
  sum.add(1s);
  CHECK(sum.count() == 101);
  CHECK(is_about(sum.quantile(1), 1s));
  std::ostringstream out;
  out << sum;
  CHECK_THAT(out.str(), Catch::StartsWith("durations: 101") && !Catch::Contains("longer"));
  sum.add(24h);
  out << sum;
  CHECK_THAT(out.str(), Catch::EndsWith("except 1, which may be longer"));
}
