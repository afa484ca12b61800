// SPDX-License-Identifier: Apache-2.0
// Senders of requests and messages, and how they complete.

#include "senders.hpp"

#include <memory>
#include <stop_token>
#include <utility>

namespace verbspp::test::senders {

TEST_CASE_METHOD(two_channels, "a sender completes with the value of its request") {
  const auto mine = share_bytes(bed, 64, 1);
  const auto theirs = share_bytes(bed, 64);
  running write(
      as_sender([&] { return left.async_write(mine, {.remote = must(theirs.remote())}); }));
  CHECK(left.outstanding() == 0);
  write.start();
  CHECK(left.outstanding() == 1);
  complete(write, left);
  CHECK(write.seen.values == 1);
  CHECK(holds(theirs, 1));
  CHECK(mine.is_only());
  auto buffer = must(registered_buffer<>::allocate(bed.domain, 64));
  const auto* const address = buffer.data();
  running read(as_sender([&, buffer = std::move(buffer)]() mutable {
    return left.async_read(std::move(buffer), {.remote = must(theirs.remote())});
  }));
  complete(read.start(), left);
  REQUIRE(read.seen.memory);
  CHECK(read.seen.memory->data() == address);
  CHECK(holds(*read.seen.memory, 1));
}

TEST_CASE("a sender completes with the message of an inbox") {
  const testbed bed;
  channel_pair ends = connect_short(bed);
  const message_pool pool = must(message_pool::create(bed.domain, 8, 64));
  inbox messages = must(inbox::open(ends.right, pool));
  running receive(as_sender([&] { return messages.async_wait(); }));
  receive.start();
  running send(send_text(ends.left, "text"));
  complete(send.start(), ends.left);
  complete(receive, ends.right);
  REQUIRE(receive.seen.arrived);
  CHECK(receive.seen.arrived->size() == 4);
  // If a message has already arrived, the operation completes in `start`.
  running again(send_text(ends.left, "again"));
  complete(again.start(), ends.left);
  wait_until([&] { return must(ends.right.wait(patience)) == wait_end::completions; }, "a message");
  running next(as_sender([&] { return messages.async_wait(); }));
  next.start();
  CHECK(next.seen.values == 1);
}

TEST_CASE_METHOD(two_channels, "a sender completes with the error of its request") {
  const auto mine = share_bytes(bed, 8);
  auto revoked = share_bytes(bed, 8);
  const auto remote = must(revoked.remote());
  revoked = mine;  // destroys the buffer
  running write(as_sender([&] { return left.async_write({.elements = mine, .remote = remote}); }));
  auto buffer = must(registered_buffer<>::allocate(bed.domain, 8));
  running flushed(as_sender([&, buffer = std::move(buffer)]() mutable {
    return left.async_write(std::move(buffer), {.remote = remote});
  }));
  write.start();
  flushed.start();
  complete(write, left);
  complete(flushed, left);
  REQUIRE(write.seen.failed);
  const auto why = work_error::from(*write.seen.failed);
  REQUIRE(why);
  CHECK(why->status() == work_status::remote_access_error);
  CHECK(flushed.seen.errors == 1);
  REQUIRE(flushed.seen.memory);
  CHECK(flushed.seen.memory->size() == 8);
  // The channel is broken, so the next sender completes in `start`.
  running refused(
      as_sender([&] { return left.async_write({.elements = mine, .remote = remote}); }));
  refused.start();
  CHECK(refused.seen.errors == 1);
}

TEST_CASE_METHOD(two_channels, "an operation state that is not started posts nothing") {
  const auto mine = share_bytes(bed, 8);
  auto sender = as_sender([&left = left, mine] { return left.async_send({.elements = mine}); });
  {
    const running copied(sender);
    const running moved(std::move(sender));
    CHECK(copied.seen.completions() == 0);
  }
  CHECK(left.outstanding() == 0);
}

TEST_CASE_METHOD(two_channels, "one sender can be connected several times") {
  const auto mine = share_bytes(bed, 8, 5);
  const auto theirs = share_bytes(bed, 8);
  const auto sender =
      as_sender([&] { return left.async_write(mine, {.remote = must(theirs.remote())}); });
  running first(sender);
  running second(sender);
  complete(first.start(), left);
  complete(second.start(), left);
  CHECK(first.seen.values + second.seen.values == 2);
}

TEST_CASE_METHOD(two_channels, "a sender accepts a receiver without an environment") {
  record seen;
  auto operation = as_sender([&] {
                     return left.async_write({.remote = must(share_bytes(bed, 8).remote())});
                   }).connect(plain_receiver{&seen});
  operation.start();
  wait_until(
      [&] {
        left.poll();
        return seen.is_done();
      },
      "the write");
  CHECK(seen.completions() == 1);
}

TEST_CASE("destroying an operation that waits ends the wait") {
  const testbed bed;
  channel_pair ends = connect_short(bed);
  const auto mine = share_bytes(bed, 8);
  std::stop_source stop;
  const bool is_stopped = GENERATE(false, true);
  {
    running send(as_sender([&] { return ends.left.async_send({.elements = mine}); }),
                 stop.get_token());
    send.start();
    if (is_stopped) stop.request_stop();
  }
  ends.left.poll();
  CHECK(ends.left.deadline() == wait_limit::time_point::max());
  CHECK(ends.left.outstanding() == 1);
}

TEST_CASE("a receiver may destroy its operation and its channel") {
  const testbed bed;
  channel_pair ends = connect_short(bed);
  struct any {
    any() = default;
    any(const any&) = delete;
    any& operator=(const any&) = delete;
    virtual ~any() = default;
  };
  struct ending {
    std::unique_ptr<any>* operation;
    channel* link;
    int* completions;
    std::stop_token token;
    void set_value(const completed_work& /*work*/) && noexcept { end(); }
    void set_error(const transport_error& /*failed*/) && noexcept { end(); }
    void set_stopped() && noexcept { end(); }
    [[nodiscard]] environment<std::stop_token> get_env() const noexcept { return {token}; }
    void end() const {
      channel* const last = link;
      ++*completions;
      operation->reset();
      *last = channel();
    }
  };
  const bool is_stopped = GENERATE(false, true);
  std::stop_source stop;
  const auto sender = as_sender([&] { return ends.left.async_send({}); });
  struct owned_operation : any {
    owned_operation(const decltype(sender)& of, ending last)
        : operation(of.connect(std::move(last))) {}
    decltype(sender.connect(std::declval<ending>())) operation;
  };
  int completions = 0;
  std::unique_ptr<any> place;
  auto made = std::make_unique<owned_operation>(
      sender, ending{&place, &ends.left, &completions, stop.get_token()});
  auto& started = made->operation;
  place = std::move(made);
  started.start();
  auto receive = must(ends.right.post_receive({}));
  if (is_stopped) stop.request_stop();
  wait_until(
      [&] {
        ends.left.poll();
        return completions != 0;
      },
      "the completion");
  CHECK(completions == 1);
  CHECK(ends.left.state() == channel_state::empty);
  ends.right = channel();
}

}  // namespace verbspp::test::senders
