// SPDX-License-Identifier: Apache-2.0
#include "../catch.hpp"
#include "../stopping.hpp"
#include <verbspp/core/detail/channel_polls.hpp>

#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

using namespace verbspp;
using namespace verbspp::detail;
using std::chrono::hours;
using clock_type = std::chrono::steady_clock;

namespace {

constexpr std::chrono::nanoseconds default_limit = hours(1);

/// A condition whose state the test sets.
struct probe : condition {
  probe() : condition([](continuation& self) noexcept { ++static_cast<probe&>(self).calls; }, is) {}
  static state is(condition& self) noexcept { return static_cast<probe&>(self).seen; }

  state seen = state::unmet;
  int calls = 0;
};

int wakes = 0;
/// A sleep that counts in `wakes` how often it was woken.
stoppable_sleep counted_wakes() {
  wakes = 0;
  return {.wake = [](stoppable_sleep& /*self*/) noexcept { ++wakes; }};
}

}  // namespace

TEST_CASE("continuations of requests are due in the order of their requests") {
  stoppable_sleep asleep = counted_wakes();
  channel_polls waiting(asleep, default_limit);
  probe first;
  probe second;
  probe third;
  CHECK(waiting.is_empty());
  waiting.add_send(third, 9);
  waiting.add_send(first, 2);
  waiting.add_send(second, 5);
  CHECK(waiting.take_finished(2, 100) == nullptr);
  CHECK(waiting.take_finished(6, 0) == &first);
  CHECK_FALSE(first.is_waiting());
  CHECK(waiting.take_finished(6, 0) == &second);
  CHECK(waiting.take_finished(9, 0) == nullptr);
  CHECK(third.is_waiting());
  CHECK(waiting.take_finished(10, 0) == &third);
  CHECK(waiting.is_empty());
}

TEST_CASE("continuations of sends and those of receives are independent of each other") {
  stoppable_sleep asleep = counted_wakes();
  channel_polls waiting(asleep, default_limit);
  probe send;
  probe receive;
  waiting.add_send(send, 3);
  waiting.add_receive(receive, 1);
  CHECK(waiting.take_finished(3, 2) == &receive);
  CHECK(waiting.take_finished(3, 9) == nullptr);
  CHECK(waiting.take_finished(4, 0) == &send);
}

TEST_CASE("a continuation that is cancelled, destroyed or added again waits at most once") {
  stoppable_sleep asleep = counted_wakes();
  channel_polls waiting(asleep, default_limit);
  probe moved;
  auto gone = std::make_unique<probe>();
  waiting.add_send(moved, 1);
  waiting.add_send(*gone, 1);
  gone.reset();
  waiting.add_receive(moved, 4);
  CHECK(waiting.take_finished(9, 4) == nullptr);
  moved.cancel();
  CHECK(waiting.is_empty());
  moved.cancel();
  CHECK(waiting.take_any() == nullptr);
}

TEST_CASE("the continuation of a condition is taken once its condition is met") {
  stoppable_sleep asleep = counted_wakes();
  channel_polls waiting(asleep, default_limit);
  probe request;
  probe met;
  probe unmet;
  waiting.add_send(request, 1);
  waiting.add_condition(unmet);
  waiting.add_condition(met);
  met.seen = condition::state::met;
  CHECK(waiting.may_have_due(1));
  CHECK(waiting.take_met() == &met);
  CHECK(waiting.take_met() == nullptr);
  CHECK(waiting.take_finished(2, 0) == &request);
  CHECK(waiting.take_finished(2, 0) == nullptr);
  CHECK(waiting.take_any() == &unmet);
}

TEST_CASE("a condition that may be met without a wakeup is checked again within a millisecond") {
  stoppable_sleep asleep = counted_wakes();
  channel_polls waiting(asleep, default_limit);
  probe unmet;
  waiting.add_condition(unmet);
  CHECK(waiting.take_met() == nullptr);
  CHECK(waiting.alarm() > clock_type::now() + std::chrono::minutes(1));
  unmet.seen = condition::state::unmet_so_far;
  CHECK(waiting.take_met() == nullptr);
  CHECK(waiting.alarm() <= clock_type::now() + std::chrono::milliseconds(1));
  unmet.cancel();
  CHECK(waiting.alarm() == clock_type::time_point::max());
}

TEST_CASE("a continuation expires at its own limit or at the default limit") {
  stoppable_sleep asleep = counted_wakes();
  channel_polls waiting(asleep, default_limit);
  probe own;
  probe usual;
  const auto now = clock_type::now();
  own.set_limit(now + hours(2));
  waiting.add_send(own, 1);
  CHECK(waiting.alarm() == now + hours(2));
  waiting.add_send(usual, 2);
  // The default limit of `usual` does not start before the next call to `take_expired`, which is
  // the one that follows here.
  CHECK(waiting.take_expired(now, 0, 0) == nullptr);
  CHECK_FALSE(own.has_expired());
  CHECK(usual.is_default());
  CHECK(waiting.alarm() < now + hours(2));
  CHECK(waiting.take_expired(now + hours(1) + std::chrono::minutes(1), 0, 0) == &usual);
  CHECK(usual.has_expired());
  CHECK(usual.is_waiting());
  usual.cancel();
  CHECK(waiting.take_expired(now + hours(2), 0, 0) == &own);
  CHECK_FALSE(own.is_default());
  // The continuation can be added once more. It has no limit until its default limit is started
  // again.
  waiting.add_send(usual, 3);
  CHECK_FALSE(usual.has_expired());
  CHECK_FALSE(usual.has_limit());
  usual.cancel();
  own.cancel();
}

TEST_CASE("the default limit begins in time while another continuation has a later limit") {
  stoppable_sleep asleep = counted_wakes();
  channel_polls waiting(asleep, default_limit);
  probe first;
  probe second;
  SECTION("of its own") {
    first.set_limit(clock_type::now() + hours(100));
    waiting.add_receive(first, 1);
  }
  SECTION("which was the default one") {
    waiting.add_send(first, 1);
    CHECK(waiting.take_expired(waiting.alarm(), 0, 0) == nullptr);
    REQUIRE(first.is_default());
  }
  const auto later = waiting.alarm();
  waiting.add_send(second, 2);
  CHECK(waiting.alarm() < later);
  CHECK(waiting.alarm() <= clock_type::now() + default_limit / 4 + std::chrono::nanoseconds(1));
  first.cancel();
  second.cancel();
}

TEST_CASE("all continuations whose limits have expired are returned") {
  stoppable_sleep asleep = counted_wakes();
  channel_polls waiting(asleep, default_limit);
  std::vector<std::unique_ptr<probe>> all;
  const auto now = clock_type::now();
  for (int i = 0; i < 4; ++i) {
    all.push_back(std::make_unique<probe>());
    all.back()->set_limit(now);
    waiting.add_condition(*all.back());
  }
  for (const auto& each : all) {
    CHECK(waiting.alarm() <= now);
    // The call also removes the condition from the list.
    CHECK(waiting.take_expired(now, 0, 0) == each.get());
    CHECK_FALSE(each->is_waiting());
  }
  CHECK(waiting.take_expired(now, 0, 0) == nullptr);
  CHECK(waiting.is_empty());
}

TEST_CASE("continuations of requests that have finished do not expire") {
  stoppable_sleep asleep = counted_wakes();
  channel_polls waiting(asleep, default_limit);
  probe send;
  probe receive;
  probe unfinished;
  const auto now = clock_type::now();
  for (probe* each : {&send, &receive, &unfinished}) each->set_limit(now);
  waiting.add_send(send, 1);
  waiting.add_receive(receive, 4);
  waiting.add_receive(unfinished, 5);
  CHECK(waiting.take_expired(now, 2, 5) == &unfinished);
  CHECK(waiting.take_finished(2, 5) == &send);
  CHECK(waiting.take_finished(2, 5) == &receive);
  CHECK(waiting.take_any() == &unfinished);
}

TEST_CASE("conditions of an object that is destroyed lose their reference to it") {
  stoppable_sleep asleep = counted_wakes();
  channel_polls waiting(asleep, default_limit);
  int subject = 0;
  int other = 0;
  const auto never = [](condition&) noexcept { return condition::state::unmet; };
  const auto nothing = [](continuation&) noexcept {};
  condition of_subject(nothing, never, &subject);
  condition of_other(nothing, never, &other);
  waiting.add_condition(of_subject);
  waiting.add_condition(of_other);
  CHECK(waiting.alarm() > clock_type::now() + std::chrono::minutes(1));
  waiting.end_subject(&subject);
  // The alarm is due immediately, so that an event loop polls.
  CHECK(waiting.alarm() <= clock_type::now());
  CHECK(of_subject.subject() == nullptr);
  CHECK(of_other.subject() == &other);
  of_subject.cancel();
  of_other.cancel();
}

TEST_CASE("a continuation keeps a callback registered only while it waits") {
  stoppable_sleep asleep = counted_wakes();
  channel_polls waiting(asleep, default_limit);
  verbspp::test::counting_source stop;
  const auto wait = [&](probe& one, std::uint64_t number) {
    one.set_limit(stop.get_token());
    waiting.add_send(one, number);
  };
  {
    probe taken;
    probe cancelled;
    probe destroyed;
    wait(taken, 1);
    wait(cancelled, 2);
    wait(destroyed, 3);
    CHECK(stop.callbacks() == 3);
    CHECK(waiting.alarm() == clock_type::time_point::max());
    CHECK(waiting.take_finished(2, 0) == &taken);
    CHECK(stop.callbacks() == 2);
    cancelled.cancel();
    CHECK(stop.callbacks() == 1);
    // Another wait of the same continuation has a callback of its own.
    waiting.add_receive(destroyed, 1);
    CHECK(stop.callbacks() == 1);
  }
  CHECK(stop.callbacks() == 0);
  CHECK(stop.begun() == 4);
  stop.request_stop();
  CHECK(wakes == 0);
}

TEST_CASE("a stop request wakes the thread that polls and makes a continuation expire") {
  stoppable_sleep asleep = counted_wakes();
  channel_polls waiting(asleep, default_limit);
  verbspp::test::counting_source stop;
  probe stopped;
  probe other;
  stopped.set_limit(stop.get_token());
  other.set_limit(wait_limit::forever());
  waiting.add_send(other, 1);
  waiting.add_send(stopped, 2);
  stop.request_stop();
  CHECK(wakes == 1);
  CHECK(waiting.has_stop());
  CHECK(waiting.alarm() == clock_type::time_point());
  const auto now = clock_type::now();
  CHECK(waiting.take_expired(now, 0, 0) == &stopped);
  CHECK_FALSE(waiting.has_stop());
  CHECK(waiting.alarm() == clock_type::time_point::max());
  static_cast<void>(waiting.take_any());
  static_cast<void>(waiting.take_any());
}

TEST_CASE("a limit that is set after a wait with the default limit applies to the next wait") {
  stoppable_sleep asleep = counted_wakes();
  channel_polls waiting(asleep, default_limit);
  probe one;
  waiting.add_send(one, 1);
  // This call starts the default limit.
  CHECK(waiting.take_expired(waiting.alarm(), 0, 0) == nullptr);
  REQUIRE(one.is_default());
  one.cancel();
  const auto end = clock_type::now() + std::chrono::hours(1);
  one.set_limit(end);
  waiting.add_send(one, 2);
  REQUIRE(one.has_limit());
  CHECK(one.limit().deadline() == end);
  one.cancel();
}

TEST_CASE("a call that is handed over is made by a poll while an operation expects one") {
  stoppable_sleep asleep = counted_wakes();
  channel_polls waiting(asleep, default_limit);
  probe call;
  probe withdrawn;
  const auto poll = [&] {
    continuation* const met = waiting.take_met();
    if (met != nullptr) met->call();
    return met != nullptr;
  };
  waiting.expect_call();
  waiting.expect_call();
  CHECK_FALSE(waiting.is_empty());
  CHECK_FALSE(poll());
  waiting.hand_over(call);
  waiting.hand_over(withdrawn);
  CHECK(wakes == 2);
  CHECK(waiting.has_handed());
  waiting.withdraw(withdrawn);
  CHECK(poll());
  CHECK_FALSE(poll());
  CHECK(call.calls == 1);
  CHECK(withdrawn.calls == 0);
  waiting.stop_expecting();
  waiting.hand_over(call);
  CHECK(poll());
  CHECK(call.calls == 2);
  waiting.stop_expecting();
  CHECK(waiting.is_empty());
}

TEST_CASE("a poller that is woken finds the call or the stop request") {
  struct observing_sleep : stoppable_sleep {
    observing_sleep()
        : stoppable_sleep{.wake = [](stoppable_sleep& self) noexcept {
            auto& woken = static_cast<observing_sleep&>(self);
            woken.found_call = woken.polls->has_handed();
            woken.found_stop = woken.polls->has_stop();
          }} {}
    channel_polls* polls = nullptr;
    bool found_call = false;
    bool found_stop = false;
  };
  observing_sleep asleep;
  channel_polls waiting(asleep, default_limit);
  asleep.polls = &waiting;
  probe call;
  waiting.expect_call();
  waiting.hand_over(call);
  CHECK(asleep.found_call);
  CHECK_FALSE(asleep.found_stop);
  waiting.withdraw(call);
  waiting.stop_expecting();
  verbspp::test::counting_source stop;
  probe stopped;
  stopped.set_limit(stop.get_token());
  waiting.add_send(stopped, 1);
  stop.request_stop();
  CHECK(asleep.found_stop);
  stopped.cancel();
}

TEST_CASE("an operation that expects a call has no limit") {
  stoppable_sleep asleep = counted_wakes();
  channel_polls waiting(asleep, default_limit);
  waiting.expect_call();
  CHECK(waiting.alarm() == clock_type::time_point::max());
  CHECK(waiting.take_expired(clock_type::now() + 2 * default_limit, 0, 0) == nullptr);
  waiting.stop_expecting();
}

TEST_CASE("every 32nd poll with calls checks the alarm, counted from the last check") {
  stoppable_sleep asleep = counted_wakes();
  channel_polls waiting(asleep, default_limit);
  const auto polls_until_check = [&] {
    int polls = 1;
    while (!waiting.must_check_alarm()) ++polls;
    waiting.note_check();
    return polls;
  };
  CHECK(polls_until_check() == 32);
  CHECK_FALSE(waiting.must_check_alarm());
  waiting.note_check();
  CHECK(polls_until_check() == 32);
}

TEST_CASE("a poll needs care while a condition or the continuation of a receive waits") {
  stoppable_sleep asleep = counted_wakes();
  channel_polls waiting(asleep, default_limit);
  probe one;
  waiting.add_send(one, 3);
  CHECK_FALSE(waiting.needs_care());
  CHECK_FALSE(waiting.may_have_due(3));
  CHECK(waiting.may_have_due(4));
  CHECK(waiting.take_sent(3) == nullptr);
  CHECK(waiting.take_sent(4) == &one);
  SECTION("a condition") { waiting.add_condition(one); }
  SECTION("a receive") { waiting.add_receive(one, 7); }
  SECTION("an operation that expects a call") {
    waiting.expect_call();
    CHECK(waiting.needs_care());
    waiting.stop_expecting();
    waiting.add_condition(one);
  }
  CHECK(waiting.needs_care());
  waiting.end_care();
  CHECK(waiting.needs_care());
  CHECK(waiting.may_have_due(0));
  one.cancel();
  CHECK(waiting.needs_care());
  waiting.end_care();
  CHECK_FALSE(waiting.needs_care());
  waiting.need_care();
  CHECK(waiting.needs_care());
}

TEST_CASE("an appended continuation needs care until an alarm is set, and in a hub always") {
  stoppable_sleep asleep = counted_wakes();
  channel_polls waiting(asleep, default_limit);
  probe one;
  probe other;
  CHECK(waiting.needs_care_to_add());
  waiting.append_send(one, 1);
  waiting.begin_limit(one);
  CHECK_FALSE(waiting.needs_care_to_add());
  const auto alarm = waiting.alarm();
  CHECK(alarm <= clock_type::now() + default_limit / 4 + std::chrono::nanoseconds(1));
  waiting.append_send(other, 2);
  CHECK(waiting.take_expired(alarm, 0, 0) == nullptr);
  CHECK(waiting.needs_care_to_add());
  waiting.note_hub();
  one.cancel();
  waiting.add_send(one, 3);
  CHECK(waiting.needs_care_to_add());
  one.cancel();
  other.cancel();
}

TEST_CASE("awaiting needs care while requests are delayed") {
  stoppable_sleep asleep = counted_wakes();
  channel_polls waiting(asleep, default_limit);
  CHECK_FALSE(waiting.needs_care_to_await());
  waiting.note_delayed(1);
  CHECK(waiting.has_delayed());
  CHECK(waiting.needs_care_to_await());
  waiting.note_delayed(-1);
  CHECK_FALSE(waiting.needs_care_to_await());
  waiting.need_care_to_await();
  CHECK_FALSE(waiting.has_delayed());
  CHECK(waiting.needs_care_to_await());
}
