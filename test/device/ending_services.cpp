// SPDX-License-Identifier: Apache-2.0
// A service that removes clients, and one that answers its last calls before it ends.

#include "calls.hpp"
#include <verbspp/calls.hpp>

#include <chrono>
#include <cstdint>
#include <optional>
#include <stop_token>
#include <utility>

using namespace verbspp;
using namespace verbspp::test;
using namespace std::chrono_literals;

namespace {

/// A service that removes each client that calls `kept_method`, and refuses the call.
class expelling_service : public service_threads {
 public:
  explicit expelling_service(const testbed& bed) : service_threads(bed) {
    serve(service::create(bed.domain, default_options,
                          handles<kept_method>([this](received_call<kept_method> call) {
                            served().remove(call.client());
                          }),
                          handles<note_method>([](std::int32_t) {})),
          1);
  }
  expelling_service(const expelling_service&) = delete;
  expelling_service& operator=(const expelling_service&) = delete;
  ~expelling_service() { close(); }

  [[nodiscard]] caller call() {
    auto [calls, link] = prepare();
    must(calls.start<kept_method, note_method>(std::move(link), patience));
    return std::move(calls);
  }
};

/// Makes a call that the test answers later. \returns the handle of the call, and the call
[[nodiscard]] std::pair<pending_call<kept_method>, received_call<kept_method>> post_kept(
    running_service& serving, caller& calls) {
  auto posted = must(calls.post_call<kept_method>(1));
  return {std::move(posted), std::move(serving.kept.take(1).front())};
}

}  // namespace

TEST_CASE("a service removes a client by its id, and keeps the others") {
  const testbed bed;
  running_service serving(bed, 1, {.clients = 2, .waiting = wait_mode::sleep()});
  caller other = serving.call();
  caller first = serving.call();
  auto [posted, kept] = post_kept(serving, first);
  const channel_id id = kept.client();
  serving.served().remove(id);
  wait_until([&] { return serving.served().clients() == 1; }, "the removal");
  must(kept.answer(1));
  CHECK(must(other.call<sum_method>({.first = 1, .second = 2}, patience)) == 3);
  CHECK(first.call<sum_method>({}, patience).has_error());

  // The next client has the same index.
  caller second = serving.call();
  auto [posted_later, kept_later] = post_kept(serving, second);
  REQUIRE(kept_later.client().index == id.index);
  serving.served().remove(id);
  serving.served().remove({});
  serving.served().remove({.index = 1000, .generation = 1});
  must(kept_later.answer(5));
  CHECK(must(posted_later.wait(patience)) == 5);
  CHECK(serving.served().clients() == 2);
  CHECK(serving.served().statistics().removed_clients == 0);
}

TEST_CASE("a client can be removed before its first turn") {
  const testbed bed;
  running_service serving(bed, 0);
  auto [calls, link] = serving.prepare();
  CHECK(serving.served().clients() == 1);
  serving.served().remove({.index = 0, .generation = 1});
  must(serving.served().poll());
  CHECK(serving.served().clients() == 0);
}

TEST_CASE("removing a client that has left does not cancel the removal of a later one") {
  const testbed bed;
  running_service serving(bed, 0);
  service& served = serving.served();
  auto [first, first_link] = serving.prepare();
  served.remove({.index = 0, .generation = 1});
  must(served.poll());
  REQUIRE(served.clients() == 0);
  auto [second, second_link] = serving.prepare();
  served.remove({.index = 0, .generation = 2});
  served.remove({.index = 0, .generation = 1});
  must(served.poll());
  CHECK(served.clients() == 0);
}

TEST_CASE("a handler removes the client that has called") {
  const testbed bed;
  expelling_service serving(bed);
  caller honest = serving.call();
  caller expelled = serving.call();
  CHECK(expelled.call<kept_method>(1, patience).has_error());
  wait_until([&] { return serving.served().clients() == 1; }, "the removal");
  must(honest.call<note_method>(1, patience));
}

TEST_CASE("a service that drains refuses new calls, and waits for the answers to earlier ones") {
  const testbed bed;
  const unsigned threads = GENERATE(0U, 1U);
  CAPTURE(threads);
  running_service serving(bed, 1);
  caller calls = serving.call();
  caller idle = serving.call();
  auto [posted, kept] = post_kept(serving, calls);
  if (threads == 0) serving.stop();
  CHECK(failure_of(serving.served().drain(wait_limit(0ms))) == error_kind::timed_out);

  auto refused = must(calls.post_call<sum_method>({.first = 1, .second = 2}));
  std::optional<result<std::int64_t>> ended;
  wait_until(
      [&] {
        CHECK(failure_of(serving.served().drain(wait_limit(0ms))) == error_kind::timed_out);
        ended = refused.poll();
        return ended.has_value();
      },
      "the refusal");
  const error refusal = failure_of(*ended);
  CHECK(is_refusal(refusal));
  CHECK(refusal == error_kind::not_connected);
  CHECK_THAT(refusal.message(), Catch::Contains("accepts no more calls"));

  must(kept.answer(7));
  must(serving.served().drain(patience));
  serving.close();
  CHECK(must(posted.wait(patience)) == 7);
}

TEST_CASE("an event loop that drains a service sleeps until there is work") {
  const testbed bed;
  running_service serving(bed, 1);
  caller calls = serving.call();
  auto [posted, kept] = post_kept(serving, calls);
  serving.stop();
  service& served = serving.served();
  CHECK(failure_of(served.drain(wait_limit(0ms))) == error_kind::timed_out);
  auto refused = must(calls.post_call<sum_method>({.first = 1, .second = 2}));
  wait_until(
      [&] {
        CHECK(failure_of(served.drain(wait_limit(0ms))) == error_kind::timed_out);
        return refused.poll().has_value();
      },
      "the refusal");
  wait_until(
      [&] {
        CHECK(failure_of(served.drain(wait_limit(0ms))) == error_kind::timed_out);
        return !must(served.request_notification());
      },
      "the end of the work");
  must(kept.answer(7));
  must(served.drain(patience));
}

TEST_CASE("a service that drains accepts no new clients") {
  const testbed bed;
  running_service serving(bed);
  must(serving.served().drain(patience));
  auto [calls, link] = serving.prepare();
  const error refusal = failure_of(calls.start<sum_method>(std::move(link), patience));
  CHECK(refusal == error_kind::not_connected);
  CHECK_THAT(refusal.message(), Catch::Contains("accepts no more calls"));
}

TEST_CASE("a stop ends the drain of a service, and a moved-from one drains nothing") {
  const testbed bed;
  running_service serving(bed);
  caller calls = serving.call();
  auto [posted, kept] = post_kept(serving, calls);
  std::stop_source stop;
  stop.request_stop();
  CHECK(failure_of(serving.served().drain(stop.get_token())) == error_kind::cancelled);
  serving.stop();
  const service other = std::move(serving.served());
  serving.served().remove(kept.client());
  CHECK(failure_of(serving.served().drain(patience)) == error_kind::invalid_input);
  CHECK(other.clients() == 1);
}
