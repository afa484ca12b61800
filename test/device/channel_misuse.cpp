// SPDX-License-Identifier: Apache-2.0
/// \file
/// Misuse of channels, and uses that are unusual but correct.
#include "../assertions.hpp"
#include "channels.hpp"

#include <atomic>
#include <optional>
#include <stdexcept>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

using namespace verbspp;
using namespace verbspp::test;

TEST_CASE_METHOD(two_channels,
                 "the device detects a buffer that is destroyed before the end of its scope") {
  buffer<> message(bed.domain, pattern(64, 1));
  std::atomic<bool> has_ended{false};
  std::thread peer([&] {
    while (!has_ended) std::this_thread::yield();
    static_cast<void>(ends.right.send({.elements = message.gather()}, patience));
  });
  const scope_error failed = failure_of(ends.left.scope([&](channel_scope& s) {
    {
      auto local = must(registered_buffer<>::allocate(bed.domain, 64));
      must(s.post_receive({.elements = must(local.scatter())}));
    }
    has_ended = true;
  }));
  peer.join();
  REQUIRE(failed.work());
  const auto work = work_error::from(*failed.work());
  REQUIRE(work);
  CHECK(work->operation() == work_operation::receive);
  CHECK(work->status() != work_status::flushed);
}

TEST_CASE_METHOD(two_channels,
                 "a channel that is destroyed in its scope leaves no requests behind") {
  buffer<> to(bed.domain, 64);
  std::optional<scoped_pending> kept;
  const scope_error failed = failure_of(ends.left.scope([&](channel_scope& s) -> result<void> {
    must(s.post_receive({.elements = to.scatter()}));
    kept = must(s.post_receive({.elements = to.scatter()}));
    ends.left = channel();
    VERBSPP_TRYV(s.post_receive({.elements = to.scatter()}));
    return success();
  }));
  CHECK(failed.own() == error_kind::not_connected);
  CHECK(failed.work());
  CHECK(failed.flushed() == 2);
  CHECK(error(failure_of(kept->wait())) == error_kind::invalid_input);
}

TEST_CASE_METHOD(
    two_channels,
    "a scope whose function throws reports no error of its requests but waits for them") {
  buffer<> to(bed.domain, 64);
  const auto start = clock::now();
  CHECK_THROWS_AS(ends.left.scope(
                      [&](channel_scope& s) {
                        must(s.post_receive({.elements = to.scatter()}));
                        throw std::runtime_error("own");
                      },
                      short_limit),
                  std::runtime_error);
  CHECK(clock::now() - start < short_limit + soon);
  CHECK(ends.left.outstanding() == 0);
  // The exception took precedence over the failure of the scope, so the channel has to report that
  // failure.
  CHECK(ends.left.failure()->root() == error_kind::timed_out);
}

TEST_CASE_METHOD(two_channels, "posting stops after the tenth of a thousand requests has failed") {
  buffer<> from(bed.domain, 64);
  buffer<> to(bed.domain, 64);
  remote_memory<access::remote_write> gone = [&] {
    const buffer<> temporary(bed.domain, 64);
    return remote_memory<access::remote_write>(temporary.remote());
  }();
  const auto post_all = [&](auto& s) -> result<void> {
    for (int i = 0; i < 1000; ++i)
      VERBSPP_TRYV(s.post_write(
          {.elements = from.gather(),
           .remote = i == 9 ? gone : remote_memory<access::remote_write>(to.remote())}));
    return success();
  };
  std::optional<scope_error> failed;
  SECTION("in a scope") { failed = failure_of(ends.left.scope(post_all)); }
  SECTION("in a stream") { failed = failure_of(ends.left.stream(post_all)); }
  // This is the error that the function itself returned: posting was refused as soon as the channel
  // had detected its failure.
  REQUIRE(failed->own());
  CHECK(*failed->own() == error_kind::not_connected);
  REQUIRE(failed->work());
  CHECK(work_error::from(*failed->work())->status() == work_status::remote_access_error);
  CHECK(failed->failed() == 1);
  CHECK(ends.left.outstanding() == 0);
}

TEST_CASE_METHOD(two_channels, "a lost peer is detected by the timeout or by the device") {
  buffer<> from(bed.domain, 64);
  const auto there = buffer<>(bed.domain, 64).remote();
  must(ends.right.close());
  const auto start = clock::now();
  const auto failed =
      failure_of(ends.left.write({.elements = from.gather(), .remote = there}, short_limit));
  CHECK(clock::now() - start < short_limit + soon);
  CHECK(ends.left.state() == channel_state::broken);
  CHECK(ends.left.outstanding() == 0);
  CHECK_FALSE(failed.message().empty());
}

TEST_CASE_METHOD(two_channels, "assigning to a handle releases its previous request") {
  buffer<> from(bed.domain, 64);
  buffer<> to(bed.domain, 64);
  auto work = must(ends.left.post_write({.elements = from.gather(), .remote = to.remote()}));
  for (int i = 0; i < 100; ++i) {
    work = must(ends.left.post_write({.elements = from.gather(), .remote = to.remote()}));
    CHECK(ends.left.outstanding() <= 2);
  }
  must(work.wait());
  auto owned = must(ends.left.post_send(must(registered_buffer<>::allocate(bed.domain, 8))));
  auto receive = must(ends.right.post_receive(must(registered_buffer<>::allocate(bed.domain, 8))));
  owned = must(ends.left.post_send(must(registered_buffer<>::allocate(bed.domain, 8))));
  must(receive.wait(patience).result);
  receive = must(ends.right.post_receive(must(registered_buffer<>::allocate(bed.domain, 8))));
  must(receive.wait(patience).result);
  must(owned.wait().result);
}

TEST_CASE("a receive is refused while too many results are unread") {
  const testbed bed;
  channel_pair ends = connect_channels(
      bed.domain.build_channel().max_send_work_requests(2).max_receive_work_requests(1));
  buffer<> from(bed.domain, 64);
  buffer<> to(bed.domain, 64);
  std::vector<pending<>> kept;
  std::optional<error> refused;
  for (int i = 0; i < 10000 && !refused; ++i) {
    auto posted = ends.right.post_receive({.elements = to.scatter()});
    if (posted.has_value()) {
      kept.push_back(std::move(posted).value());
      must(ends.left.send({.elements = from.gather()}));
    } else if (posted.error() == error_kind::would_block) {
      ends.right.poll();
    } else {
      refused = posted.error();
    }
  }
  REQUIRE(refused);
  CHECK(*refused == error_kind::resource_exhausted);
  kept.pop_back();
  kept.push_back(must(ends.right.post_receive({.elements = to.scatter()})));
  must(ends.left.send({.elements = from.gather()}));
}

TEST_CASE("unread results of sends are not limited") {
  const testbed bed;
  channel_pair ends = connect_channels(bed.domain.build_channel().max_send_work_requests(2));
  buffer<> from(bed.domain, 64);
  buffer<> to(bed.domain, 64);
  std::vector<pending<>> kept;
  while (kept.size() < 1000) {
    auto posted = ends.left.post_write({.elements = from.gather(), .remote = to.remote()});
    if (posted.has_value()) kept.push_back(std::move(posted).value());
  }
  for (pending<>& each : kept) must(each.wait());
}

#if defined(__SANITIZE_THREAD__)
#define VERBSPP_TEST_FOR_RACES
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define VERBSPP_TEST_FOR_RACES
#endif
#endif

// ThreadSanitizer would also detect this, but it doesn't support threads in a forked process.
#if !defined(VERBSPP_TEST_FOR_RACES)
TEST_CASE_METHOD(two_channels, "using a channel in two threads at once fails an assertion") {
  const std::string told = assertion_in([&] {
    std::atomic<bool> stop{false};
    const auto poll = [&] {
      while (!stop) ends.left.poll();
    };
    std::thread other(poll);
    std::thread end([&] {
      // steady: if no assertion has failed by the end of this pause, the test ends and fails
      std::this_thread::sleep_for(patience);
      stop = true;
    });
    poll();
    other.join();
    end.join();
  });
  CHECK_THAT(told, Catch::Contains("two threads use a channel"));
}
#endif

TEST_CASE("an empty channel names the call that it refuses") {
  channel empty;
  const auto check = [](const error& refused, const char* operation) {
    CHECK(refused == error_kind::not_connected);
    CHECK(refused.operation() == std::string_view(operation));
    CHECK_THAT(refused.message(), Catch::Contains("this channel is empty"));
  };
  check(error(failure_of(empty.send(send_operation(), patience))), "ibv_post_send (send)");
  check(error(failure_of(empty.receive(receive_operation(), patience))), "ibv_post_recv");
  check(failure_of(empty.post_send(send_operation())), "ibv_post_send (send)");
  check(failure_of(empty.wait(patience)), "wait on a channel");
}

TEST_CASE("a request to a queue of length 0 is refused at once and leaves the channel connected") {
  const testbed bed;
  // A device may grant longer queues, but the channels of a hub have the requested lengths.
  const auto hub = must(channel_hub::create(bed.domain, {.channels = 2, .completions = 64}));
  channel_pair ends = connect_channels(
      bed.domain.build_channel().hub(hub).max_send_work_requests(0).max_receive_work_requests(0));
  const auto check = [&](const error& refused, const char* advice) {
    INFO(refused);
    CHECK(refused == error_kind::invalid_input);
    CHECK_THAT(refused.message(), Catch::EndsWith(advice));
    CHECK(ends.left.is_connected());
  };
  constexpr const char* more_sends = "build the channel with a larger max_send_work_requests";
  constexpr const char* more_receives = "build the channel with a larger max_receive_work_requests";
  check(error(failure_of(ends.left.send(send_operation(), short_limit))), more_sends);
  check(error(failure_of(ends.left.receive(receive_operation(), short_limit))), more_receives);
  check(failure_of(ends.left.post_send(send_operation())), more_sends);
  check(failure_of(ends.left.post_receive(receive_operation())), more_receives);
  const scope_error of_scope = failure_of(
      ends.left.scope([](channel_scope& s) { return s.post_send(send_operation()); }, short_limit));
  REQUIRE(of_scope.own());
  check(*of_scope.own(), more_sends);
}
