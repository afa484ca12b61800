// SPDX-License-Identifier: Apache-2.0
// Functions that are called with the results of requests: `callback` and `then`.

#include "channels.hpp"
#include <verbspp/channel.hpp>

#include <array>
#include <chrono>
#include <memory>
#include <optional>
#include <stop_token>
#include <utility>
#include <vector>

using namespace verbspp;
using namespace verbspp::test;

namespace {

using done = transport_result<completed_work>;

/// Polls the channel until the condition holds.
template <class Condition>
void poll_until(channel& link, Condition condition) {
  wait_until(
      [&] {
        link.poll();
        return condition();
      },
      "the callback");
}

}  // namespace

TEST_CASE_METHOD(two_channels, "a callback gets the result of its request when the channel polls") {
  const auto mine = share_bytes(bed, 64, 1);
  const auto theirs = share_bytes(bed, 64);
  std::vector<done> results;
  auto work = must(left.post_write(mine, {.remote = must(theirs.remote())}));
  callback next(std::move(work), [&](const done& result) { results.push_back(result); });
  CHECK(next.is_waiting());
  CHECK(results.empty());
  poll_until(left, [&] { return !results.empty(); });
  CHECK_FALSE(next.is_waiting());
  left.poll();
  REQUIRE(results.size() == 1);
  CHECK(must(std::move(results[0])).operation() == work_operation::rdma_write);
  CHECK(holds(theirs, 1));
}

TEST_CASE_METHOD(two_channels, "a callback gets the memory that its request owns") {
  auto mine = must(registered_buffer<>::allocate(bed.domain, 64));
  const auto* const address = mine.data();
  const auto theirs = share_bytes(bed, 64, 2);
  auto work = must(left.post_read(std::move(mine), {.remote = must(theirs.remote())}));
  std::optional<registered_buffer<>> returned;
  callback next(std::move(work), [&](finished<registered_buffer<>> read) {
    if (read.result.has_value()) returned = std::move(read.memory);
  });
  poll_until(left, [&] { return returned.has_value(); });
  CHECK(returned->data() == address);
  CHECK(holds(*returned, 2));
}

TEST_CASE_METHOD(two_channels,
                 "the library keeps a request and its callback until the callback is called") {
  const auto mine = share_bytes(bed, 64, 3);
  const auto theirs = share_bytes(bed, 64);
  const auto remote = must(theirs.remote());
  int calls = 0;
  const auto count = [&](const done& result) { calls += result.has_value() ? 1 : 100; };
  const auto kept = std::make_shared<int>(0);
  must(then(left.post_write(mine, {.remote = remote}), count));
  must(then(left.post_write({.elements = must(mine.gather()), .remote = remote}), count));
  must(then(left.post_read(must(registered_buffer<>::allocate(bed.domain, 64)), {.remote = remote}),
            [&calls, kept](const finished<registered_buffer<>>& read) {
              calls += read.result.has_value() ? 1 : 100;
            }));
  CHECK(calls == 0);
  CHECK(kept.use_count() == 2);
  poll_until(left, [&] { return calls >= 3; });
  CHECK(calls == 3);
  CHECK(kept.use_count() == 1);
  CHECK(mine.is_only());
}

TEST_CASE_METHOD(two_channels, "the callback of a request that cannot be posted is not called") {
  channel none;
  int calls = 0;
  const auto refused = then(none.post_write({.remote = must(share_bytes(bed, 8).remote())}),
                            [&](const done&) { ++calls; });
  CHECK(failure_of(refused) == error_kind::not_connected);
  CHECK(calls == 0);
}

TEST_CASE_METHOD(two_channels, "a callback is called at once if the result is already available") {
  const auto remote = must(share_bytes(bed, 8).remote());
  auto first = must(left.post_write({.remote = remote}));
  auto second = must(left.post_write({.remote = remote}));
  must(must(left.post_write({.remote = remote})).wait());
  int calls = 0;
  const auto count = [&](const done& result) { calls += result.has_value() ? 1 : 100; };
  const callback next(std::move(first), count);
  CHECK(calls == 1);
  CHECK_FALSE(next.is_waiting());
  must(then(std::move(second), count));
  CHECK(calls == 2);
  left.poll();
  CHECK(calls == 2);
}

TEST_CASE_METHOD(two_channels, "a callback that is destroyed early is not called") {
  const auto mine = share_bytes(bed, 8, 4);
  int calls = 0;
  {
    // The peer has posted no receive, so the send cannot finish.
    const callback never(must(left.post_send(mine)), [&](const done&) { ++calls; });
    left.poll();
  }
  CHECK(left.outstanding() == 1);
  CHECK_FALSE(mine.is_only());
  const auto place = share_bytes(bed, 8);
  must(right.receive({.elements = must(place.scatter())}, patience));
  poll_until(left, [&] { return left.outstanding() == 0; });
  CHECK(calls == 0);
  CHECK(mine.is_only());
  CHECK(holds(place, 4));
}

TEST_CASE_METHOD(two_channels, "destroying a channel calls all of its callbacks with an error") {
  const auto mine = share_bytes(bed, 8);
  std::vector<done> results;
  const auto note = [&](const done& result) { results.push_back(result); };
  const callback next(must(left.post_send(mine)), note);
  must(then(left.post_send(mine), note));
  left = channel();
  REQUIRE(results.size() == 2);
  CHECK_FALSE(results[0].has_value());
  CHECK_FALSE(results[1].has_value());
  CHECK(mine.is_only());
}

TEST_CASE_METHOD(two_channels, "a callback may post again and may destroy its channel") {
  const auto remote = must(share_bytes(bed, 8).remote());
  int steps = 0;
  struct chain {
    channel& link;
    remote_destination to;
    int& steps;
    void operator()(const done& result) const {
      REQUIRE(result.has_value());
      if (++steps == 5)
        link = channel();
      else
        must(then(link.post_write({.remote = to}), *this));
    }
  };
  must(then(left.post_write({.remote = remote}), chain{left, remote, steps}));
  poll_until(left, [&] { return steps == 5; });
  CHECK(left.state() == channel_state::empty);
}

TEST_CASE_METHOD(two_channels, "a function may destroy the callback object that called it") {
  const auto remote = must(share_bytes(bed, 8).remote());
  int calls = 0;
  struct last {
    void (*end)(void* what);
    void* what;
    int* calls;
    void operator()(const done& /*result*/) const {
      ++*calls;
      end(what);
    }
  };
  using ending = callback<pending<>, last>;
  auto place = std::make_unique<std::optional<ending>>();
  place->emplace(must(left.post_write({.remote = remote})),
                 last{[](void* what) { static_cast<std::optional<ending>*>(what)->reset(); },
                      place.get(), &calls});
  poll_until(left, [&] { return calls == 1; });
  CHECK_FALSE(place->has_value());
}

TEST_CASE("limits that are reached after the requests have finished do not break the channel") {
  struct counted : continuation {
    explicit counted(int& calls, const wait_limit& until = wait_limit::forever())
        : continuation([](continuation& self) noexcept { ++static_cast<counted&>(self).total; },
                       until),
          total(calls) {}
    int& total;
  };
  const testbed bed;
  constexpr int many = 1'100;  // more callbacks than one poll calls
  auto ends = connect_channels(
      bed.domain.build_channel().access(all_rights).max_send_work_requests(many + 1));
  const auto theirs = share_bytes(bed, 8);
  const write_operation nothing{.remote = must(theirs.remote())};
  const auto finish_all = [&] { must(must(ends.left.post_write(nothing)).wait()); };
  int calls = 0;
  // A poll that has continuations to call checks limits only every 16th time.
  for (int i = 0; i < 15; ++i) {
    counted one(calls);
    auto work = must(ends.left.post_write(nothing));
    REQUIRE(work.then(one));
    finish_all();
    ends.left.poll();
  }
  REQUIRE(calls == 15);
  std::stop_source stop;
  std::vector<pending<void>> works;
  std::vector<std::unique_ptr<counted>> continuations;
  for (int i = 0; i < many; ++i) {
    works.push_back(must(ends.left.post_write(nothing)));
    continuations.push_back(std::make_unique<counted>(calls, stop.get_token()));
    REQUIRE(works.back().then(*continuations.back()));
  }
  finish_all();
  stop.request_stop();
  ends.left.poll();
  ends.left.poll();
  CHECK(calls == 15 + many);
  CHECK(ends.left.is_connected());
}

TEST_CASE("a busy channel checks its limits even if its continuations have polled") {
  struct polling : continuation {
    polling(channel& polled, const write_operation& written, int levels)
        : continuation(
              [](continuation& self) noexcept { static_cast<polling&>(self).go_deeper(); }),
          link(polled),
          operation(written),
          left(levels) {}
    /// Writes, and calls this continuation within a poll.
    void write_and_poll() {
      auto work = must(link.post_write(operation));
      REQUIRE(work.then(*this));
      must(must(link.post_write(operation)).wait());
      link.poll();
    }
    void go_deeper() noexcept {
      if (--left > 0) write_and_poll();
    }
    channel& link;
    const write_operation& operation;
    int left;
  };
  const testbed bed;
  auto ends = connect_channels(bed.domain.build_channel().access(all_rights));
  const auto theirs = share_bytes(bed, 8);
  const write_operation nothing{.remote = must(theirs.remote())};
  polling nested(ends.left, nothing, 20);  // more polls than those without a look at the limits
  nested.write_and_poll();
  REQUIRE(nested.left == 0);

  continuation late([](continuation&) noexcept {}, std::chrono::steady_clock::time_point());
  auto silent = must(ends.left.post_receive({}));
  REQUIRE(silent.then(late));
  for (int i = 0; i < 16 && ends.left.is_connected(); ++i) {
    nested.left = 1;
    nested.write_and_poll();
  }
  CHECK_FALSE(ends.left.is_connected());
  CHECK(ends.left.failure()->root() == error_kind::timed_out);
}
