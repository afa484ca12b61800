// SPDX-License-Identifier: Apache-2.0
#include "channels.hpp"

#include <map>
#include <optional>
#include <stdexcept>
#include <stop_token>
#include <thread>
#include <utility>
#include <vector>

using namespace verbspp;
using namespace verbspp::test;
using namespace std::chrono_literals;

TEST_CASE("a channel needs only a protection domain to send and receive") {
  const testbed bed;
  auto left = must(bed.domain.build_channel().build());
  auto right = must(bed.domain.build_channel().build());
  buffer<> from(bed.domain, pattern(100, 1));
  buffer<> to(bed.domain, 200);

  // The receive is posted before the handshake, so that it is ready for the first message.
  auto received = must(right.post_receive({.elements = to.scatter()}));
  auto [here, there] = connect_channels(std::move(left), std::move(right));
  CHECK(here.is_connected());

  CHECK(must(here.send({.elements = from.gather(), .immediate = immediate_data(7)})).operation() ==
        work_operation::send);
  const completed_work message = must(received.wait());
  CHECK(message.byte_count() == 100);
  CHECK(message.immediate() == immediate_data(7));
  CHECK(to.front(100) == from.bytes());
  CHECK(there.outstanding() == 0);
}

TEST_CASE_METHOD(two_channels, "a channel's blocking calls perform the operations in their names") {
  buffer<all_rights | access::remote_atomic> theirs(bed.domain, pattern(64, 2));
  buffer<> mine(bed.domain, pattern(64, 3));
  must(left.write({.elements = mine.gather(0, 32), .remote = must(theirs.remote().slice(0, 32))}));
  CHECK(theirs.front(32) == mine.front(32));
  CHECK(must(left.read({.elements = mine.scatter(), .remote = theirs.remote()})).byte_count() ==
        64);
  CHECK(mine.bytes() == theirs.bytes());

  const remote_word word = must(remote_word::at(theirs.remote(), 8));
  auto result =
      must(registered_buffer<access::local_write, std::uint64_t>::allocate(bed.domain, 1));
  const auto into = must(result.scatter());
  must(left.fetch_and_add({.result = into, .remote = word, .addend = 1}));
  const std::uint64_t before = result[0];
  must(left.compare_and_swap(
      {.result = into, .remote = word, .expected = before + 1, .desired = 99}));
  CHECK(result[0] == before + 1);
  must(left.fetch_and_add({.result = into, .remote = word, .addend = 0}));
  CHECK(result[0] == 99);

  auto waiting = must(right.post_receive({.elements = mine.scatter()}));
  must(left.send({.elements = theirs.region().gather(0, 10).value()}));
  CHECK(must(waiting.wait(patience)).byte_count() == 10);
}

TEST_CASE_METHOD(two_channels,
                 "a channel's blocking calls borrow memory that is passed without an operation") {
  buffer<> theirs(bed.domain, pattern(64, 2));
  auto mine = must(registered_buffer<>::allocate(bed.domain, 64));
  auto pool = must(message_pool::create(bed.domain, 2, 64));
  const auto shared = must(must(registered_buffer<>::allocate(bed.domain, 64)).share());

  must(left.read(mine, {.remote = theirs.remote()}));
  CHECK(mine[63] == theirs.bytes()[63]);
  mine[0] = std::byte{77};
  must(left.write(mine, {.remote = theirs.remote()}, patience));
  CHECK(theirs.bytes()[0] == std::byte{77});
  must(left.write(must(shared.part(0, 8)), {.remote = theirs.remote()}));
  CHECK(theirs.bytes()[0] == std::byte{0});
  CHECK(shared.is_only());
  must(left.read(shared, {.remote = theirs.remote()}));
  CHECK(shared[8] == theirs.bytes()[8]);

  auto message = must(pool.take());
  must(message.resize(5));
  auto arriving = must(ends.right.post_receive({.elements = theirs.scatter()}));
  must(left.send(message, {.immediate = immediate_data(3)}));
  CHECK(must(arriving.wait(patience)).byte_count() == 5);
  CHECK(message.size() == 5);  // the caller still owns the message
  arriving = must(ends.right.post_receive({.elements = theirs.scatter()}));
  must(left.send(mine, patience));
  CHECK(must(arriving.wait(patience)).byte_count() == 64);
  auto sending = must(ends.right.post_send({.elements = theirs.gather()}));
  CHECK(must(left.receive(mine)).byte_count() == 64);
  must(sending.wait(patience));

  SECTION("a moved-from message is refused") {
    const auto taken = std::move(message);
    CHECK(error(failure_of(left.send(message))) == error_kind::invalid_input);
  }
  SECTION("a call with an expired limit posts nothing") {
    CHECK(error(failure_of(left.receive(shared, 0s))) == error_kind::timed_out);
    CHECK(left.is_connected());
    CHECK(shared.is_only());
  }
  SECTION("the caller may reuse the memory after a timeout") {
    CHECK(error(failure_of(left.receive(shared, short_limit))) == error_kind::timed_out);
    CHECK(left.outstanding() == 0);
    CHECK(shared.is_only());
    CHECK(error(failure_of(left.receive(mine, short_limit))) == error_kind::not_connected);
  }
}

TEST_CASE_METHOD(two_channels,
                 "a handle of shared memory that is moved into a request is taken only if the "
                 "request is posted") {
  const buffer<> theirs(bed.domain, pattern(64, 2));
  const auto shared = must(must(registered_buffer<>::allocate(bed.domain, 64)).share());
  auto handle = shared;
  const auto too_short = must(theirs.remote().slice(0, 8));
  CHECK(failure_of(left.post_write(std::move(handle), {.remote = too_short})) ==
        error_kind::invalid_input);
  CHECK(handle == shared);  // NOLINT(bugprone-use-after-move): as documented
  const auto far = theirs.remote();
  const auto post = [&](auto& memory) {
    static_cast<void>(must(left.post_write(std::move(memory), {.remote = far})));
    CHECK(memory.native_handle() == nullptr);
    CHECK_FALSE(shared.is_only());
    const auto until = std::chrono::steady_clock::now() + patience;
    while (left.outstanding() != 0 && std::chrono::steady_clock::now() < until) left.poll();
    CHECK(shared.is_only());
  };
  post(handle);
  auto part = must(shared.part(8, 8));
  post(part);
}

TEST_CASE("a full send queue refuses requests and accepts them again later") {
  const testbed bed;
  channel_pair ends = connect_channels(bed.domain.build_channel().max_send_work_requests(4));
  channel& left = ends.left;
  [[maybe_unused]] channel& right = ends.right;
  buffer<> mine(bed.domain, 8);
  std::vector<pending<>> sends;
  std::optional<error> full;
  // The peer has posted no receives, so none of the sends completes.
  for (int i = 0; i < 100000 && !full; ++i) {
    auto posted = left.post_send({.elements = mine.gather()});
    if (posted.has_value())
      sends.push_back(std::move(posted).value());
    else
      full = posted.error();
  }
  REQUIRE(full);
  CHECK(*full == error_kind::would_block);
  CHECK(sends.size() == left.outstanding());
  buffer<> sink(bed.domain, 8);
  std::vector<pending<>> receives;
  for (std::size_t i = 0; i < sends.size(); ++i) {
    receives.push_back(must(right.post_receive({.elements = sink.scatter()})));
    must(sends[i].wait(patience));
  }
  receives.push_back(must(right.post_receive({.elements = sink.scatter()})));
  must(must(left.post_send({.elements = mine.gather()})).wait(patience));
}

TEST_CASE("a batch with a refused request does not wait for room") {
  const testbed bed;
  channel_pair ends = connect_channels(bed.domain.build_channel().max_send_work_requests(4));
  channel& left = ends.left;
  buffer<> mine(bed.domain, 8);
  // The peer has posted no receives, so the send queue stays full.
  std::vector<pending<>> sends;
  for (;;) {
    auto posted = left.post_send({.elements = mine.gather()});
    if (!posted.has_value()) break;
    sends.push_back(std::move(posted).value());
  }
  const auto post = [&](channel_scope& s) -> result<void> {
    const batch_error refused = failure_of(s.post_batch<1>([&](auto& batch) {
      for (int i = 0; i < 2; ++i) batch.post_send({.elements = mine.gather()});
    }));
    CHECK(refused.accepted() == 0);
    return error(refused);
  };
  CHECK(error(failure_of(left.scope(post, short_limit))) == error_kind::invalid_input);
  CHECK(left.is_connected());
  must(left.close());  // otherwise, the handles would wait for the sends
}

TEST_CASE_METHOD(two_channels, "a scope returns when all of its requests have finished") {
  buffer<> mine(bed.domain, pattern(64, 6));
  buffer<> theirs(bed.domain, 64);
  must(left.scope([&](channel_scope& s) -> result<void> {
    // The queue was created for fewer requests, so posting may have to wait for room.
    for (int i = 0; i < 100; ++i) {
      const auto at = static_cast<std::size_t>(i % 64);
      VERBSPP_TRYV(s.post_write(
          {.elements = mine.gather(at, 1), .remote = must(theirs.remote().slice(at, 1))}));
    }
    return success();
  }));
  CHECK(left.outstanding() == 0);
  CHECK(theirs.bytes() == mine.bytes());

  SECTION("the scope returns the result of its function") {
    CHECK(must(left.scope([](channel_scope&) { return 5; })) == 5);
    CHECK(must(left.scope([](channel_scope&) -> result<int> { return 6; })) == 6);
  }
  SECTION("results can be awaited in a scope") {
    const auto bytes = must(left.scope([&](channel_scope& s) -> transport_result<std::uint32_t> {
      VERBSPP_TRY(read, s.post_read({.elements = mine.scatter(0, 10), .remote = theirs.remote()}));
      VERBSPP_TRY(done, read.wait());
      return *done.byte_count();
    }));
    CHECK(bytes == 10);
  }
  SECTION("scopes nest") {
    must(left.scope([&](channel_scope& outer) -> result<void> {
      VERBSPP_TRYV(outer.post_write({.elements = mine.gather(), .remote = theirs.remote()}));
      VERBSPP_TRYV(left.scope([&](channel_scope& inner) -> result<void> {
        VERBSPP_TRYV(inner.post_read({.elements = mine.scatter(), .remote = theirs.remote()}));
        return success();
      }));
      return success();
    }));
  }
  SECTION("requests can share a doorbell") {
    must(left.scope([&](channel_scope& s) -> result<void> {
      for (int round = 0; round < 10; ++round)
        VERBSPP_TRYV(s.post_batch<8>([&](auto& batch) {
          for (std::size_t i = 0; i < 8; ++i)
            batch.post_write(
                {.elements = mine.gather(i, 1), .remote = must(theirs.remote().slice(i, 1))});
        }));
      return success();
    }));
  }
  SECTION("the error of a scope's function is returned after its requests have finished") {
    const scope_error failed = failure_of(left.scope([&](channel_scope& s) -> result<void> {
      VERBSPP_TRYV(s.post_write({.elements = mine.gather(), .remote = theirs.remote()}));
      return error(error_kind::busy, "test", "own");
    }));
    CHECK(failed.own() == error_kind::busy);
    CHECK_FALSE(failed.work());
    CHECK(left.outstanding() == 0);
  }
  SECTION("an exception propagates after the requests have finished") {
    CHECK_THROWS_AS(left.scope([&](channel_scope& s) {
      must(s.post_write({.elements = mine.gather(), .remote = theirs.remote()}));
      throw std::runtime_error("own");
    }),
                    std::runtime_error);
    CHECK(left.outstanding() == 0);
    CHECK(left.is_connected());
  }
}

TEST_CASE_METHOD(two_channels,
                 "a manual scope reports the number of requests that were not waited for") {
  buffer<> mine(bed.domain, 64);
  buffer<> theirs(bed.domain, 64);
  must(left.manual_scope([&](channel_scope& s) -> transport_result<void> {
    VERBSPP_TRY(work, s.post_write({.elements = mine.gather(), .remote = theirs.remote()}));
    VERBSPP_TRYV(work.wait());
    return success();
  }));
  const scope_error left_over = failure_of(left.manual_scope([&](channel_scope& s) {
    auto taken = must(s.post_write({.elements = mine.gather(), .remote = theirs.remote()}));
    auto never = must(s.post_write({.elements = mine.gather(), .remote = theirs.remote()}));
    must(s.post_write({.elements = mine.gather(), .remote = theirs.remote()}));
    must(taken.wait());
  }));
  CHECK(left_over.left() == 2);
  CHECK(left.outstanding() == 0);
}

TEST_CASE_METHOD(
    two_channels,
    "a stream returns when all of its requests have finished, however few of them are signaled") {
  buffer<> mine(bed.domain, pattern(256, 7));
  buffer<> theirs(bed.domain, 256);
  for (const std::uint32_t every : {1U, 3U, 16U, 1000U}) {
    INFO("signal every " << every);
    std::fill(theirs.content().begin(), theirs.content().end(), std::byte{0});
    must(left.stream(
        [&](channel_stream& s) -> result<void> {
          for (std::size_t i = 0; i < 256; ++i)
            VERBSPP_TRYV(s.post_write(
                {.elements = mine.gather(i, 1), .remote = must(theirs.remote().slice(i, 1))}));
          return success();
        },
        {.signal_every = every}));
    CHECK(left.outstanding() == 0);
    CHECK(theirs.bytes() == mine.bytes());
  }
}

TEST_CASE("a stream ends without an error whichever accesses its peer allows") {
  const testbed bed;
  buffer<> mine(bed.domain, pattern(64, 7));
  buffer<> theirs(bed.domain, 64);
  const auto connect = [&](access_flags rights) {
    return connect_channels(bed.domain.build_channel().access(access::local_write | rights));
  };
  const auto run = [](channel& link, auto post) {
    // The stream is shorter than the number of requests after which one is signaled.
    must(link.stream([&](channel_stream& s) -> result<void> {
      for (unsigned i = 0; i < 3; ++i) VERBSPP_TRYV(post(s));
      return success();
    }));
    CHECK(link.outstanding() == 0);
    CHECK(link.is_connected());
  };
  SECTION("sends to a peer that allows none") {
    channel_pair ends = connect({});
    std::vector<pending<>> receives;
    for (unsigned i = 0; i < 3; ++i)
      receives.push_back(must(ends.right.post_receive({.elements = theirs.scatter()})));
    run(ends.left, [&](channel_stream& s) { return s.post_send({.elements = mine.gather()}); });
    for (pending<>& each : receives) must(each.wait());
  }
  SECTION("reads from a peer that allows only reads") {
    channel_pair ends = connect(access::remote_read);
    run(ends.left, [&](channel_stream& s) {
      return s.post_read({.elements = theirs.scatter(), .remote = mine.remote()});
    });
    CHECK(theirs.bytes() == mine.bytes());
  }
  SECTION("writes to a peer that allows only writes") {
    channel_pair ends = connect(access::remote_write);
    run(ends.left, [&](channel_stream& s) {
      return s.post_write({.elements = mine.gather(), .remote = theirs.remote()});
    });
    CHECK(theirs.bytes() == mine.bytes());
  }
  SECTION("atomic operations at a peer that allows only those") {
    channel_pair ends = connect(access::remote_atomic);
    buffer<all_rights | access::remote_atomic> words(bed.domain, 64);
    const remote_word word = must(remote_word::at(words.remote(), 0));
    run(ends.left, [&](channel_stream& s) {
      return s.post_fetch_and_add({.result = mine.scatter(0, 8), .remote = word, .addend = 1});
    });
  }
}

TEST_CASE_METHOD(two_channels, "a timeout ends a wait and returns all memory to the program") {
  buffer<> to(bed.domain, 64);
  auto other = must(left.post_receive({.elements = to.scatter()}));
  const auto start = clock::now();
  const auto failed = failure_of(left.receive({.elements = to.scatter()}, short_limit));
  CHECK(clock::now() - start < short_limit + soon);
  REQUIRE(failed.call() != nullptr);
  CHECK(*failed.call() == error_kind::timed_out);
  CHECK_THAT(failed.message(), Catch::Contains("2 receives"));
  CHECK(left.outstanding() == 0);
  CHECK(left.state() == channel_state::broken);
  CHECK(left.failure()->flushed() == 2);

  // The other receive has been flushed, and later calls report the timeout.
  const auto flushed = failure_of(other.wait());
  REQUIRE(flushed.work() != nullptr);
  CHECK(flushed.work()->status() == work_status::flushed);
  const error refused = failure_of(left.post_receive({.elements = to.scatter()}));
  CHECK(refused == error_kind::not_connected);
  CHECK_THAT(refused.message(), Catch::Contains("timeout expired"));

  // If its limit has already expired, a call has no effect.
  CHECK(error(failure_of(right.receive({.elements = to.scatter()}, std::chrono::seconds(-1)))) ==
        error_kind::timed_out);
  CHECK(right.is_connected());
}

TEST_CASE_METHOD(
    two_channels,
    "a failed request is the root cause and the requests flushed after it are counted") {
  buffer<> mine(bed.domain, 64);
  buffer<> theirs(bed.domain, 64);
  remote_memory<access::remote_write> gone = [&] {
    const buffer<> temporary(bed.domain, 64);
    return remote_memory<access::remote_write>(temporary.remote());
  }();
  const scope_error failed = failure_of(left.scope([&](channel_scope& s) -> result<void> {
    VERBSPP_TRYV(s.post_receive({.elements = mine.scatter()}));
    VERBSPP_TRYV(s.post_write({.elements = mine.gather(), .remote = gone}));
    for (int i = 0; i < 3; ++i) {
      auto posted = s.post_write({.elements = mine.gather(), .remote = theirs.remote()});
      if (!posted.has_value()) break;
    }
    return success();
  }));
  REQUIRE(failed.work());
  const auto root = work_error::from(*failed.work());
  REQUIRE(root);
  CHECK(root->status() == work_status::remote_access_error);
  CHECK(root->operation() == work_operation::rdma_write);
  CHECK(root->queue_pair_number() == left.endpoint().number);
  CHECK(root->peer() == right.endpoint().number);
  CHECK(failed.failed() == 1);
  CHECK(failed.flushed() >= 1);
  CHECK_FALSE(failed.own());
  CHECK(left.state() == channel_state::broken);
  const gid address = right.endpoint().address;
  CHECK(left.failure()->peer() == address);
  CHECK_THAT(left.failure()->message(), Catch::Contains("(peer: " + to_string(address) + ", "));
}

TEST_CASE_METHOD(two_channels,
                 "a failed handle names the peer unless the channel is not connected") {
  buffer<> mine(bed.domain, 64);
  auto posted = must(left.post_receive({.elements = mine.scatter()}));
  must(right.close());
  static_cast<void>(failure_of(left.receive({.elements = mine.scatter()}, short_limit)));
  CHECK(work_error::from(error(failure_of(std::move(posted).wait())))->peer() ==
        right.endpoint().number);
  must(left.renew());
  auto early = must(left.post_receive({.elements = mine.scatter()}));
  must(left.close());
  const auto failed = work_error::from(error(failure_of(std::move(early).wait())));
  REQUIRE(failed);
  CHECK_FALSE(failed->peer());
}

TEST_CASE_METHOD(two_channels, "a failed handle names the queue pair of its own connection") {
  const queue_pair_number before = left.endpoint().number;
  buffer<> mine(bed.domain, 64);
  auto received = must(left.post_receive({.elements = mine.scatter()}));
  auto sent = must(left.post_send({.elements = mine.gather()}));  // the peer has posted no receive
  must(left.renew());
  for (pending<>* const each : {&received, &sent}) {
    const auto failed = work_error::from(error(failure_of(each->wait())));
    REQUIRE(failed);
    CHECK(failed->queue_pair_number() == before);
  }
}

TEST_CASE_METHOD(two_channels, "a failure is reported although the channel was destroyed since") {
  buffer<> mine(bed.domain, 64);
  buffer<access::local_write | access::remote_write> theirs(bed.domain, 64);
  const remote_memory<access::remote_write> outside(theirs.remote().address() + 64, 64,
                                                    theirs.remote().rkey());
  auto wrong = must(left.post_write({.elements = mine.gather(), .remote = outside}));
  auto flushed = must(left.post_receive({.elements = mine.scatter()}));
  wait_until(
      [&] {
        left.poll();
        return !left.is_connected();
      },
      "the failure");
  left = channel();
  const auto failed = work_error::from(error(failure_of(wrong.wait())));
  REQUIRE(failed);
  CHECK(failed->status() == work_status::remote_access_error);
  const error gone(failure_of(flushed.wait()));
  CHECK(gone == error_kind::not_connected);
  CHECK_THAT(gone.message(), Catch::Contains("when its channel was destroyed"));
}

TEST_CASE_METHOD(two_channels, "a stopped channel flushes its requests and then breaks") {
  buffer<> mine(bed.domain, 64);
  auto posted = must(left.post_receive({.elements = mine.scatter()}));
  left.stop();
  CHECK(left.is_connected());  // nothing has been collected yet
  const auto failed = work_error::from(error(failure_of(std::move(posted).wait())));
  REQUIRE(failed);
  CHECK(failed->status() == work_status::flushed);
  CHECK(left.state() == channel_state::broken);
  const auto later = left.send({.elements = mine.gather()});
  CHECK(error(failure_of(later)) == error_kind::not_connected);
  channel().stop();  // an empty channel: a no-op
}

TEST_CASE_METHOD(two_channels,
                 "a scope reports only its own requests even if others are posted between them") {
  buffer<> mine(bed.domain, 64);
  std::optional<pending<>> between;
  // The peer has posted no receives.
  const scope_error failed = failure_of(left.scope(
      [&](channel_scope& s) -> result<void> {
        VERBSPP_TRYV(s.post_send({.elements = mine.gather()}));
        VERBSPP_TRYV(s.post_send({.elements = mine.gather()}));
        between.emplace(must(left.post_send({.elements = mine.gather()})));
        VERBSPP_TRYV(s.post_send({.elements = mine.gather()}));
        return success();
      },
      short_limit));
  REQUIRE(failed.work());
  CHECK(failed.failed() + failed.flushed() == 3);
  CHECK_FALSE(between->wait().has_value());
  CHECK(left.failure()->flushed() + failed.failed() == 4);
}

TEST_CASE_METHOD(two_channels, "a broken channel can be renewed and connects to a renewed peer") {
  buffer<> mine(bed.domain, pattern(64, 8));
  buffer<> theirs(bed.domain, 64);
  const endpoint before = left.endpoint();
  for (int round = 0; round < 3; ++round) {
    static_cast<void>(failure_of(left.receive({.elements = mine.scatter()}, short_limit)));
    const endpoint left_end = must(left.renew());
    const endpoint right_end = must(right.renew());
    CHECK(left_end != before);
    CHECK(error(failure_of(left.post_send({.elements = mine.gather()}))) ==
          error_kind::not_connected);
    auto received = must(left.post_receive({.elements = theirs.scatter()}));
    must(left.handshake(right_end));
    must(right.handshake(left_end));
    must(right.send({.elements = mine.gather()}));
    must(received.wait());
    CHECK(theirs.bytes() == mine.bytes());
  }
}

TEST_CASE_METHOD(two_channels,
                 "a scope reports failures after which its function has renewed the channel") {
  buffer<> mine(bed.domain, 64);
  const scope_error failed = failure_of(left.scope([&](channel_scope& s) -> result<void> {
    for (int i = 0; i < 2; ++i) VERBSPP_TRYV(s.post_receive({.elements = mine.scatter()}));
    VERBSPP_TRYV(left.renew());
    return success();
  }));
  REQUIRE(failed.work());
  CHECK(*failed.work() == error_kind::not_connected);
  CHECK(failed.flushed() == 2);
  CHECK_THAT(failed.message(), Catch::Contains("has been renewed"));
}

TEST_CASE("a prepared channel can be moved into a channel and do its first handshake there") {
  const testbed bed;
  auto prepared = must(bed.domain.build_channel().build());
  const endpoint end = prepared.endpoint();
  channel left(std::move(prepared));
  channel right(must(bed.domain.build_channel().build()));
  CHECK(left.state() == channel_state::prepared);
  CHECK(left.endpoint() == end);
  CHECK(prepared.native_handle() == nullptr);
  buffer<> mine(bed.domain, pattern(64, 8));
  buffer<> theirs(bed.domain, 64);
  auto received = must(right.post_receive({.elements = theirs.scatter()}));
  must(left.handshake(right.endpoint()));
  must(right.handshake(end));
  must(left.send({.elements = mine.gather()}));
  must(received.wait(patience));
  CHECK(theirs.bytes() == mine.bytes());

  channel nothing(std::move(prepared));
  CHECK(nothing.state() == channel_state::empty);
  CHECK(error(failure_of(nothing.handshake(end))) == error_kind::not_connected);
}

TEST_CASE("all channels have one type, whose objects can be stored") {
  const testbed bed;
  channel empty;
  CHECK(empty.state() == channel_state::empty);
  buffer<> mine(bed.domain, 64);
  buffer<> theirs(bed.domain, 64);
  CHECK(error(failure_of(empty.send({.elements = mine.gather()}))) == error_kind::not_connected);
  CHECK(failure_of(empty.post_receive({.elements = mine.scatter()})) == error_kind::not_connected);
  CHECK(failure_of(empty.renew()) == error_kind::not_connected);
  const scope_error refused = failure_of(empty.scope([&](channel_scope& s) -> result<void> {
    VERBSPP_TRYV(s.post_write({.elements = mine.gather(), .remote = theirs.remote()}));
    return success();
  }));
  CHECK(refused.own() == error_kind::not_connected);
  // A scope over an empty channel returns an error even though its function posts nothing.
  const auto check_explained = [](const scope_error& told) {
    CHECK(told.work() == error_kind::not_connected);
    CHECK(told.message().find("it was moved from, or never built") != std::string::npos);
    CHECK(told.message().find("failed (") == std::string::npos);  // no request has failed
  };
  check_explained(failure_of(empty.scope([](channel_scope& /*scope*/) {})));
  check_explained(failure_of(empty.manual_scope([](channel_scope& /*scope*/) { return 3; })));
  check_explained(failure_of(empty.stream([](channel_stream& /*stream*/) {})));
  must(empty.close());
  empty.poll();

  std::map<int, channel> peers;
  for (int i = 0; i < 3; ++i) {
    channel_pair ends = connect_channels(bed);
    channel& left = ends.left;
    [[maybe_unused]] channel& right = ends.right;
    peers[2 * i] = std::move(left);
    peers[2 * i + 1] = std::move(right);
  }
  for (auto& peer : peers)
    must(peer.second.write({.elements = mine.gather(), .remote = theirs.remote()}));
  // Assignment ends the previous connection.
  peers[0] = channel();
  CHECK(peers[0].state() == channel_state::empty);
  must(peers[2].close());
  CHECK(peers[2].state() == channel_state::closed);
  CHECK(error(failure_of(peers[2].send({.elements = mine.gather()}))) == error_kind::not_connected);
}

TEST_CASE("a UC channel carries sends and writes and refuses reads and fences") {
  const testbed bed;
  channel_pair ends = connect_channels(bed.domain.build_channel<transport::uc>());
  channel& left = ends.left;
  [[maybe_unused]] channel& right = ends.right;
  buffer<> mine(bed.domain, pattern(64, 4));
  buffer<> theirs(bed.domain, 64);
  auto received = must(right.post_receive({.elements = theirs.scatter()}));
  must(left.send({.elements = mine.gather()}));
  CHECK(must(received.wait(patience)).byte_count() == 64);
  must(left.write({.elements = mine.gather(), .remote = theirs.remote()}));
  CHECK(error(failure_of(left.read({.elements = mine.scatter(), .remote = theirs.remote()}))) ==
        error_kind::not_supported);
  CHECK(error(failure_of(left.send({.elements = mine.gather(), .fenced = true}))) ==
        error_kind::invalid_input);
}

TEST_CASE_METHOD(two_channels, "an endpoint of an earlier connection is refused") {
  const endpoint yesterday = ends.right.endpoint();
  CHECK(yesterday.generation == 1);
  static_cast<void>(must(ends.left.renew()));
  CHECK(ends.left.endpoint().generation == 2);
  CHECK(ends.left.endpoint().owner != 0);
  CHECK(failure_of(ends.left.handshake(yesterday)) == error_kind::mismatch);
  // The refused handshake has changed nothing, so a current endpoint is accepted.
  const endpoint today = must(ends.right.renew());
  must(ends.left.handshake(today));
  must(ends.right.handshake(ends.left.endpoint()));
}

TEST_CASE_METHOD(two_channels, "a stop request ends the wait of a channel") {
  buffer<> to(bed.domain, 64);
  std::stop_source source;
  auto receive = must(ends.left.post_receive({.elements = to.scatter()}));
  std::thread other = later([&] { source.request_stop(); }, short_limit);
  const error stopped = failure_of(receive.wait(source.get_token()));
  other.join();
  CHECK(stopped == error_kind::cancelled);
  // The message doesn't recommend a longer limit, because a longer one wouldn't have helped.
  CHECK_THAT(stopped.message(), Catch::EndsWith("renew it"));
  CHECK(ends.left.outstanding() == 0);
  // Later calls report the stop request, too.
  const error broken = failure_of(ends.left.post_receive({.elements = to.scatter()}));
  CHECK(broken == error_kind::not_connected);
  CHECK_THAT(broken.message(),
             Catch::Contains("a stop was requested") && Catch::EndsWith("renew it"));
  // The stop was requested before this call, so the call posts nothing.
  const error refused =
      failure_of(ends.right.receive({.elements = to.scatter()}, source.get_token()));
  CHECK(refused == error_kind::cancelled);
  CHECK_THAT(refused.message(), Catch::Contains("a stop was requested before the operation began"));
  CHECK(ends.right.is_connected());
}
