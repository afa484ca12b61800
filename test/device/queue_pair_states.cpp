// SPDX-License-Identifier: Apache-2.0
/// \file
/// Runs the typed state machine on a device. docs/queue_pair_states.md has its diagram.

#include "failing_verb.hpp"
#include "transports.hpp"

#include <algorithm>
#include <optional>
#include <sstream>

using namespace verbspp;
using namespace verbspp::test;
using verbspp::queue_pair_state::init;
using verbspp::queue_pair_state::ready_to_receive;
using verbspp::queue_pair_state::ready_to_send;
using verbspp::queue_pair_state::reset;
using verbspp::queue_pair_state::send_queue_drained;
using verbspp::queue_pair_state::send_queue_error;

namespace {

[[nodiscard]] clock::time_point deadline() { return clock::now() + patience; }

/// Checks that the device reports the same state for the queue pair as its type does.
template <class QueuePair>
void check_state(const QueuePair& pair, int line = __builtin_LINE(),
                 const char* file = __builtin_FILE()) {
  const queue_pair_state state = must(pair.query_state(), line, file);
  if (state != QueuePair::state)
    throw failure(file, line,
                  std::string("the device reports ") + to_string(state) + ", but the type is " +
                      to_string(QueuePair::state));
}

/// These functions return the attributes that each step requires, and no others.
template <transport Transport>
auto to_init(const testbed& bed) {
  const auto attributes =
      attributes_for<Transport, reset, init>().pkey_index(0).port(bed.port.number());
  if constexpr (Transport == transport::ud)
    return attributes.qkey(test_key);
  else
    return attributes.access(all_rights);
}

template <transport Transport, queue_pair_state State>
auto to_receive(const queue_pair<Transport, State>& pair, const endpoint& remote) {
  const auto attributes = attributes_for<Transport, init, ready_to_receive>();
  if constexpr (Transport == transport::ud) {
    return attributes;
  } else {
    const auto connection = attributes.path(must(pair.path_to(remote)))
                                .path_mtu(256)
                                .destination(remote.number)
                                .receive_psn(remote.send_psn);
    if constexpr (Transport == transport::rc)
      return connection.max_reads_as_target(1).min_rnr_timer(12);
    else
      return connection;
  }
}

template <transport Transport>
auto to_send(packet_sequence_number psn) {
  const auto attributes =
      attributes_for<Transport, ready_to_receive, ready_to_send>().send_psn(psn);
  if constexpr (Transport == transport::rc)
    return attributes.ack_timeout(14)
        .ack_retry_count(7)
        .rnr_retry_count(rnr_retry_count::unlimited())
        .max_reads_as_initiator(1);
  else
    return attributes;
}

template <transport Transport>
void wait_until_drained(const queue_pair<Transport, send_queue_drained>& pair) {
  wait_until([&] { return !must(pair.query()).is_draining(); }, "the send queue to drain");
}

/// Returns a queue pair that was brought to `State` step by step. From RTR on, RC and UC queue
/// pairs are connected to themselves. ERR is entered from INIT.
template <transport Transport, queue_pair_state State>
queue_pair<Transport, State> bring(const testbed& bed) {
  if constexpr (State == reset) {
    return must(builder_of<Transport>(bed, bed.left_queue).create());
  } else if constexpr (State == init) {
    return must(bring<Transport, reset>(bed).modify(to_init<Transport>(bed)));
  } else if constexpr (State == ready_to_receive) {
    auto pair = bring<Transport, init>(bed);
    const auto attributes = to_receive(pair, pair.endpoint());
    return must(std::move(pair).modify(attributes));
  } else if constexpr (State == ready_to_send) {
    auto pair = bring<Transport, ready_to_receive>(bed);
    const auto attributes = to_send<Transport>(pair.endpoint().send_psn);
    return must(std::move(pair).modify(attributes));
  } else if constexpr (State == send_queue_drained) {
    auto pair = must(bring<Transport, ready_to_send>(bed).modify(
        attributes_for<Transport, ready_to_send, send_queue_drained>()));
    wait_until_drained(pair);
    return pair;
  } else {
    static_assert(State == queue_pair_state::error);
    return must(bring<Transport, init>(bed).to_error());
  }
}

/// Moves a queue pair through RESET -> INIT -> INIT -> RTR -> RTS -> RTS -> SQD -> SQD -> RTS.
template <transport Transport>
void go_the_long_way(const testbed& bed) {
  auto created = must(builder_of<Transport>(bed, bed.left_queue).create());
  const queue_pair_number number = created.number();
  check_state(created);

  auto prepared = must(std::move(created).modify(to_init<Transport>(bed)));
  check_state(prepared);
  const auto again = attributes_for<Transport, init, init>().pkey_index(0).port(bed.port.number());
  if constexpr (Transport == transport::ud) {
    must(prepared.modify(again.qkey(0x22222222)));
    CHECK(prepared.endpoint().qkey == queue_key(0x22222222));
    CHECK(must(prepared.query()).qkey() == queue_key(0x22222222));
  } else {
    must(prepared.modify(again.access(access::local_write)));
    CHECK(must(prepared.query()).access().contains(access::local_write));
    CHECK_FALSE(must(prepared.query()).access().contains(access::remote_write));
  }
  check_state(prepared);

  const endpoint self = prepared.endpoint();
  const auto receiving = to_receive(prepared, self);
  auto receiver = must(std::move(prepared).modify(receiving));
  check_state(receiver);
  if constexpr (Transport != transport::ud) {
    const queue_pair_status status = must(receiver.query());
    CHECK(status.destination() == self.number);
    CHECK(status.mtu() == path_mtu(256));
    CHECK(status.receive_psn() == self.send_psn);
  }

  auto sender = must(std::move(receiver).modify(to_send<Transport>(0x123456).current_state()));
  check_state(sender);
  CHECK(sender.endpoint().send_psn == packet_sequence_number(0x123456));
  CHECK(must(sender.query()).send_psn() == packet_sequence_number(0x123456));
  const auto running = attributes_for<Transport, ready_to_send, ready_to_send>().current_state();
  if constexpr (Transport == transport::ud) {
    must(sender.modify(running.qkey(0x33333333)));
    CHECK(must(sender.query()).qkey() == queue_key(0x33333333));
  } else {
    must(sender.modify(running.access(all_rights)));
    CHECK(must(sender.query()).access().contains(all_rights));
  }
  check_state(sender);

  auto drained = must(
      std::move(sender).modify(attributes_for<Transport, ready_to_send, send_queue_drained>()));
  check_state(drained);
  wait_until_drained(drained);
  const auto still = attributes_for<Transport, send_queue_drained, send_queue_drained>();
  if constexpr (Transport == transport::rc) {
    must(drained.modify(still.ack_timeout(10).ack_retry_count(3)));
    CHECK(query(drained.native_handle()).attributes.timeout == 10);
    CHECK(query(drained.native_handle()).attributes.retry_cnt == 3);
  } else if constexpr (Transport == transport::uc) {
    must(drained.modify(still.access(access::local_write)));
    CHECK_FALSE(must(drained.query()).access().contains(access::remote_write));
  } else {
    must(drained.modify(still.qkey(test_key)));
    CHECK(must(drained.query()).qkey() == test_key);
  }
  check_state(drained);

  auto resumed = must(std::move(drained).modify(
      attributes_for<Transport, send_queue_drained, ready_to_send>().current_state()));
  check_state(resumed);
  CHECK(resumed.number() == number);
  CHECK(resumed.native_handle()->qp_num == number.value());
}

template <transport Transport, queue_pair_state State>
void leave_by_every_exit(const testbed& bed) {
  CAPTURE(to_string(Transport), to_string(State));
  check_state(bring<Transport, State>(bed));
  check_state(must(bring<Transport, State>(bed).to_reset()));
  if constexpr (State != reset) check_state(must(bring<Transport, State>(bed).to_error()));
}

template <transport Transport>
void leave_every_state(const testbed& bed) {
  leave_by_every_exit<Transport, reset>(bed);
  leave_by_every_exit<Transport, init>(bed);
  leave_by_every_exit<Transport, ready_to_receive>(bed);
  leave_by_every_exit<Transport, ready_to_send>(bed);
  leave_by_every_exit<Transport, send_queue_drained>(bed);
  leave_by_every_exit<Transport, queue_pair_state::error>(bed);
}

/// Recovers both ends after one of them has failed, and checks that they can exchange messages
/// again.
template <transport Transport>
void recover(const testbed& bed) {
  auto pair = connect_both<Transport>(bed);
  check_messages(bed, pair);
  const endpoint left_before = pair.left.endpoint();
  const endpoint right_before = pair.right.endpoint();

  // The transition to RESET would discard requests that are in flight, so they must complete first.
  buffer<> memory(bed.domain, 64);
  must(pair.left.post_receive({.elements = memory.scatter()}, {.id = 1}));
  auto failed = must(std::move(pair.left).to_error());
  CHECK(status_of(take_one(bed.left_queue)) == work_status::flushed);

  auto left = must(must(std::move(failed).to_reset()).prepare());
  auto right = must(must(std::move(pair.right).to_reset()).prepare());
  check_state(left);
  check_state(right);
  CHECK(left.number() == left_before.number);
  CHECK(right.number() == right_before.number);
  CHECK(left.endpoint().send_psn != left_before.send_psn);
  CHECK(right.endpoint().send_psn != right_before.send_psn);
  CHECK(left.endpoint().address == left_before.address);

  pair = connect_both<Transport>(std::move(left), std::move(right));
  check_messages(bed, pair);
  CHECK(count_within_a_moment(bed.left_queue) == 0);
  CHECK(count_within_a_moment(bed.right_queue) == 0);
}

/// Drains a queue pair that has requests in flight, and waits for the event. Then posts a send,
/// which must wait until the queue pair is back in RTS.
template <transport Transport>
void drain(const testbed& bed) {
  constexpr std::size_t size = 256;
  constexpr std::size_t header = header_of<Transport>;
  constexpr std::uint64_t before = 4;
  auto [sender, receiver] = connect_both<Transport>(bed);
  buffer<> outbox(bed.domain, pattern(size, 3));
  buffer<> inbox(bed.domain, (before + 2) * (header + size));
  for (std::uint64_t id = 0; id < before + 2; ++id)
    must(receiver.post_receive({.elements = inbox.scatter(id * (header + size), header + size)},
                               {.id = id}));
  const sender_to<Transport> destination(sender, receiver.endpoint());
  const gather_element from = outbox.gather();
  for (std::uint64_t id = 0; id < before; ++id) destination.send(sender, id, from);

  auto drained = must(std::move(sender).modify(
      attributes_for<Transport, ready_to_send, send_queue_drained>().notify_when_drained()));
  for (;;) {
    const auto event = must(bed.context.wait_async_event(deadline()));
    REQUIRE(event);
    if (event->type() != async_event_type::send_queue_drained) continue;
    CHECK(event->concerns(drained));
    break;
  }
  CHECK_FALSE(must(drained.query()).is_draining());
  check_state(drained);

  // The requests that had already started have completed, and the others are waiting.
  std::uint64_t sent = 0;
  for (std::array<work_completion, before> slots;;) {
    const auto arrived = must(bed.left_queue.poll(slots));
    if (arrived.empty()) break;
    for (const work_completion& each : arrived) {
      CHECK(each.is_success());
      CHECK(each.wr_id() == sent++);
    }
  }
  destination.send(drained, before, from);
  CHECK(count_within_a_moment(bed.left_queue) == 0);

  auto resumed = must(
      std::move(drained).modify(attributes_for<Transport, send_queue_drained, ready_to_send>()));
  // rxe resumes sending only when the next request is posted, so no completions are expected yet.
  if (!device_name().starts_with("rxe"))
    for (; sent < before + 1; ++sent) take_success(bed.left_queue, sent);
  destination.send(resumed, before + 1, from);
  for (; sent < before + 2; ++sent) take_success(bed.left_queue, sent);
  for (std::uint64_t id = 0; id < before + 2; ++id)
    CHECK(take_success(bed.right_queue, id).byte_count() == header + size);
}

/// Makes a send fail at the sender, and recovers the sender. On devices that have the state SQE,
/// the failure stops only the send queue.
template <transport Transport>
void recover_from_send_queue_error(const testbed& bed) {
  auto [left, right] = connect_both<Transport>(bed);
  const endpoint right_end = right.endpoint();
  const queue_pair_state state = fail_a_send<Transport>(bed, left, right_end);
  if (state == queue_pair_state::error) {
    // Linux's rxe lacks the state SQE, so the queue pair must go through RESET.
    auto failed = std::move(left).template assume_state<queue_pair_state::error>();
    check_state(failed);
    auto prepared = must(must(std::move(failed).to_reset()).prepare());
    check_state(prepared);
    return;
  }
  CHECK(state == send_queue_error);
  auto stopped = std::move(left).template assume_state<send_queue_error>();
  check_state(stopped);

  // In SQE, the queue pair still receives, but flushes its sends.
  constexpr std::size_t header = header_of<Transport>;
  buffer<> inbox(bed.domain, header + 16);
  buffer<> outbox(bed.domain, pattern(16, 4));
  must(stopped.post_receive({.elements = inbox.scatter()}, {.id = 1}));
  const gather_element from = outbox.gather();
  const sender_to<Transport> back(right, stopped.endpoint());
  back.send(right, 2, from);
  take_success(bed.right_queue, 2);
  CHECK(take_success(bed.left_queue, 1).byte_count() == header + 16);
  const sender_to<Transport> there(stopped, right_end);
  there.send(stopped, 3, from);
  const work_completion flushed = take_one(bed.left_queue);
  CHECK(flushed.wr_id() == 3);
  CHECK(status_of(flushed) == work_status::flushed);

  auto resumed = must(std::move(stopped).modify(
      attributes_for<Transport, send_queue_error, ready_to_send>().current_state()));
  check_state(resumed);
  check_message<Transport>(bed, resumed, right, 5);
  check_message<Transport>(bed, right, resumed, 6);

  // SQE also has transitions to ERR and RESET, which are checked here.
  REQUIRE(fail_a_send<Transport>(bed, resumed, right_end) == send_queue_error);
  auto failed = must(std::move(resumed).template assume_state<send_queue_error>().to_error());
  check_state(failed);
  REQUIRE(fail_a_send<Transport>(bed, right, right_end) == send_queue_error);
  check_state(must(std::move(right).template assume_state<send_queue_error>().to_reset()));
}

/// Checks that a call on a moved-from queue pair was refused.
template <class Outcome>
void check_moved_from(Outcome outcome, int line = __builtin_LINE()) {
  CAPTURE(line);
  const error e = failure_of(std::move(outcome), line);
  CHECK(e == error_kind::invalid_input);
  CHECK(e.native_errno() == 0);
  CHECK_THAT(e.message(), Catch::Contains("moved from"));
}

// Makes a call on a moved-from queue pair, like a program that calls a consuming function twice.
template <class QueuePair, class Call>
void check_second(QueuePair pair, Call call, int line = __builtin_LINE()) {
  const QueuePair taken = std::move(pair);
  check_moved_from(call(pair), line);  // NOLINT(bugprone-use-after-move)
  check_state(taken);                  // the target of the move is not affected
}

template <transport Transport>
void use_after_move(const testbed& bed) {
  const auto exits = [&](auto pair) {
    using queue_pair = decltype(pair);
    check_second(std::move(pair), [](queue_pair& p) { return std::move(p).to_reset(); });
    check_second(bring<Transport, queue_pair::state>(bed),
                 [](queue_pair& p) { return std::move(p).to_error(); });
    check_second(bring<Transport, queue_pair::state>(bed), [](queue_pair& p) { return p.query(); });
    check_second(bring<Transport, queue_pair::state>(bed),
                 [](queue_pair& p) { return p.query_state(); });
    check_second(bring<Transport, queue_pair::state>(bed),
                 [](queue_pair& p) { return p.path_to(p.endpoint()); });
  };
  exits(bring<Transport, init>(bed));
  exits(bring<Transport, ready_to_receive>(bed));
  exits(bring<Transport, ready_to_send>(bed));

  check_second(bring<Transport, reset>(bed), [](auto& p) { return std::move(p).prepare(); });
  check_second(bring<Transport, reset>(bed),
               [&](auto& p) { return std::move(p).modify(to_init<Transport>(bed)); });
  check_second(bring<Transport, init>(bed), [&](auto& p) {
    return p.modify(attributes_for<Transport, init, init>().pkey_index(0));
  });
  check_second(bring<Transport, init>(bed), [&](auto& p) {
    return p.modify(attributes_for<Transport, init, init>().port(bed.port.number()));
  });
  check_second(bring<Transport, ready_to_receive>(bed),
               [&](auto& p) { return std::move(p).modify(to_send<Transport>(0)); });
  check_second(bring<Transport, ready_to_send>(bed), [&](auto& p) {
    return std::move(p).modify(attributes_for<Transport, ready_to_send, send_queue_drained>());
  });
  check_second(bring<Transport, ready_to_send>(bed), [&](auto& p) {
    return std::move(p).template assume_state<queue_pair_state::error>().to_reset();
  });
  if constexpr (Transport == transport::ud) {
    check_second(bring<Transport, init>(bed), [](auto& p) { return std::move(p).activate(); });
    check_second(bring<Transport, ready_to_send>(bed),
                 [](auto& p) { return p.address_of(p.endpoint()); });
    constexpr gid group{{0xff, 0x12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}};
    check_second(bring<Transport, ready_to_send>(bed),
                 [&](auto& p) { return p.address_of_group(group, 0xc001); });
    check_second(bring<Transport, ready_to_send>(bed),
                 [&](auto& p) { return p.join_multicast(group, 0xc001); });
    check_second(bring<Transport, ready_to_send>(bed),
                 [&](auto& p) { return p.leave_multicast(group, 0xc001); });
  } else {
    check_second(bring<Transport, init>(bed), [](auto& p) {
      const endpoint end = p.endpoint();
      return std::move(p).handshake(end);
    });
  }
}

}  // namespace

TEST_CASE("an RC queue pair goes from RESET to RTS and through SQD back to RTS") {
  go_the_long_way<transport::rc>(testbed{});
}
TEST_CASE("a UC queue pair goes from RESET to RTS and through SQD back to RTS") {
  go_the_long_way<transport::uc>(testbed{});
}
TEST_CASE("a UD queue pair goes from RESET to RTS and through SQD back to RTS") {
  go_the_long_way<transport::ud>(testbed{});
}

TEST_CASE("each state that a program can request leads to RESET, and all but RESET to ERR") {
  const testbed bed;
  leave_every_state<transport::rc>(bed);
  leave_every_state<transport::uc>(bed);
  leave_every_state<transport::ud>(bed);
}

TEST_CASE("a failed RC connection can be recovered with the same queue pairs") {
  recover<transport::rc>(testbed{});
}
TEST_CASE("a failed UC connection can be recovered with the same queue pairs") {
  recover<transport::uc>(testbed{});
}
TEST_CASE("failed UD queue pairs can be recovered") { recover<transport::ud>(testbed{}); }

TEST_CASE("a queue pair that was connected can be connected to another peer") {
  const testbed bed;
  auto first = connect_both<transport::rc>(bed);
  check_messages(bed, first);
  auto left = must(must(std::move(first.left).to_reset()).prepare());
  auto second = connect_both<transport::rc>(
      std::move(left), must(builder_of<transport::rc>(bed, bed.right_queue).build()));
  check_messages(bed, second);
}

TEST_CASE("an explicit send PSN is kept for every connection") {
  const testbed bed;
  auto pair = must(builder_of<transport::rc>(bed, bed.left_queue).send_psn(0xabcdef).build());
  CHECK(pair.endpoint().send_psn == packet_sequence_number(0xabcdef));
  auto again = must(must(std::move(pair).to_reset()).prepare());
  CHECK(again.endpoint().send_psn == packet_sequence_number(0xabcdef));
  const auto connected = connect_to_itself(std::move(again));
  CHECK(must(connected.query()).send_psn() == packet_sequence_number(0xabcdef));
}

TEST_CASE("RESET discards posted receives without completions") {
  const testbed bed;
  auto [left, right] = connect_both<transport::rc>(bed);
  buffer<> memory(bed.domain, 64);
  for (std::uint64_t id = 0; id < 4; ++id)
    must(right.post_receive({.elements = memory.scatter()}, {.id = id}));
  const auto idle = must(std::move(right).to_reset());
  CHECK(count_within_a_moment(bed.right_queue) == 0);
  check_state(idle);
}

TEST_CASE("an RC send queue can be drained and then continues where it stopped") {
  drain<transport::rc>(testbed{});
}
TEST_CASE("a UC send queue can be drained and then continues where it stopped") {
  drain<transport::uc>(testbed{});
}
TEST_CASE("a UD send queue can be drained and then continues where it stopped") {
  drain<transport::ud>(testbed{});
}

TEST_CASE("after a failed send, a UC queue pair can be recovered") {
  recover_from_send_queue_error<transport::uc>(testbed{});
}
TEST_CASE("after a failed send, a UD queue pair can be recovered") {
  recover_from_send_queue_error<transport::ud>(testbed{});
}
TEST_CASE("after a failed send, an RC queue pair is in ERR") {
  const testbed bed;
  auto [left, right] = connect_both<transport::rc>(bed);
  CHECK(fail_a_send<transport::rc>(bed, left, right.endpoint()) == queue_pair_state::error);
}

TEST_CASE(
    "if the device refuses a transition, the error says that the state differs from the type") {
  const testbed bed;
  auto pair = bring<transport::rc, ready_to_send>(bed);
  move_to_error(pair.native_handle());
  const error e = failure_of(
      std::move(pair).modify(attributes_for<transport::rc, ready_to_send, send_queue_drained>()));
  INFO(e);
  CHECK(e == error_kind::invalid_input);
  CHECK(e.native_errno() == EINVAL);
  CHECK(std::string(e.operation()) == "modify RTS -> SQD");
  CHECK_THAT(e.message(), Catch::Contains("not in the state in which this transition begins"));
}

TEST_CASE("a failed transition destroys the queue pair and leaves nothing behind") {
  const release_watch watch;
  {
    const testbed bed;
    buffer<> memory(bed.domain, 64);
    const auto fails = [&](auto outcome) {
      const error e = failure_of(std::move(outcome));
      CHECK_FALSE(e.message().empty());
      CHECK(count_within_a_moment(bed.left_queue) == 0);
    };
    // Posts two receives, and moves the queue pair to ERR, which its type does not show.
    const auto broken = [&](auto pair) {
      must(pair.post_receive({.elements = memory.scatter()}, {.id = 1}));
      must(pair.post_receive({.elements = memory.scatter()}, {.id = 2}));
      move_to_error(pair.native_handle());
      for (const work_completion& each : take(bed.left_queue, 2))
        CHECK(status_of(each) == work_status::flushed);
      return pair;
    };
    auto prepared = broken(bring<transport::uc, init>(bed));
    const auto receiving = to_receive(prepared, prepared.endpoint());
    fails(std::move(prepared).modify(receiving));
    fails(broken(bring<transport::rc, ready_to_receive>(bed)).modify(to_send<transport::rc>(0)));
    fails(broken(bring<transport::ud, ready_to_send>(bed))
              .modify(attributes_for<transport::ud, ready_to_send, send_queue_drained>()));
    fails(broken(bring<transport::ud, init>(bed)).activate());
    // The device no longer uses the memory.
    CHECK_NOTHROW(must(std::move(memory.region()).deregister()));
  }
  CHECK(watch.failures() == 0);
}

TEST_CASE("an empty optional leaves an attribute of the queue pair unchanged") {
  const testbed bed;
  auto sender = bring<transport::rc, ready_to_send>(bed);
  const std::optional<access_flags> no_rights;
  must(sender.modify(
      attributes_for<transport::rc, ready_to_send, ready_to_send>().access(no_rights)));
  CHECK(must(sender.query()).access().contains(all_rights));
  const std::optional<access_flags> rights = access::local_write;
  must(sender.modify(attributes_for<transport::rc, ready_to_send, ready_to_send>().access(rights)));
  CHECK_FALSE(must(sender.query()).access().contains(access::remote_write));

  auto drained = must(std::move(sender).modify(
      attributes_for<transport::rc, ready_to_send, send_queue_drained>().notify_when_drained(
          std::optional<bool>(false))));
  wait_until_drained(drained);
  const std::optional<ack_timeout> no_timeout;
  const std::optional<retry_count> retries = must(retry_count::from(3));
  must(drained.modify(attributes_for<transport::rc, send_queue_drained, send_queue_drained>()
                          .ack_timeout(no_timeout)
                          .ack_retry_count(retries)
                          .path(std::optional<path>())
                          .alternate_path(std::nullopt)));
  CHECK(query(drained.native_handle()).attributes.timeout == 14);
  CHECK(query(drained.native_handle()).attributes.retry_cnt == 3);
}

TEST_CASE("a modification that fails leaves the queue pair and its endpoint unchanged") {
  const testbed bed;
  auto pair = bring<transport::rc, init>(bed);
  const endpoint before = pair.endpoint();
  const error no_such_port =
      failure_of(pair.modify(attributes_for<transport::rc, init, init>().port(
          must(port_number::from(must(bed.context.query_device()).phys_port_cnt + 1)))));
  CHECK(no_such_port == error_kind::invalid_input);
  CHECK(pair.endpoint() == before);
  check_state(pair);
  auto connected = must(std::move(pair).handshake(before));

  // Requests more reads than this device supports. In SQD, the device may also refuse this for a
  // different reason.
  if (bed.limits.max_qp_init_rd_atom < 255) {
    auto drained = must(std::move(connected).modify(
        attributes_for<transport::rc, ready_to_send, send_queue_drained>()));
    wait_until_drained(drained);
    const error too_many = failure_of(
        drained.modify(attributes_for<transport::rc, send_queue_drained, send_queue_drained>()
                           .max_reads_as_initiator(255)));
    INFO(too_many);
    CHECK(too_many == error_kind::invalid_input);
    CHECK(std::string(too_many.operation()) == "modify SQD -> SQD");
    check_state(drained);
    connected = must(std::move(drained).modify(
        attributes_for<transport::rc, send_queue_drained, ready_to_send>()));
  }
  buffer<> memory(bed.domain, pattern(64, 8));
  must(connected.post_receive({.elements = memory.scatter(0, 32)}, {.id = 1}));
  must(connected.post_send({.elements = memory.gather(32, 32)}, {.id = 2}));
  for (const work_completion& each : take(bed.left_queue, 2)) CHECK(each.is_success());
}

TEST_CASE("a modification in ERR fails but the queue pair can still be recovered") {
  const testbed bed;
  auto pair = bring<transport::rc, init>(bed);
  move_to_error(pair.native_handle());
  const error e =
      failure_of(pair.modify(attributes_for<transport::rc, init, init>().access(all_rights)));
  CHECK(std::string(e.operation()) == "modify INIT -> INIT");
  CHECK_THAT(e.message(), Catch::Contains("not in the state in which this transition begins"));
  auto again =
      must(must(std::move(pair).assume_state<queue_pair_state::error>().to_reset()).prepare());
  check_state(connect_to_itself(std::move(again)));
}

TEST_CASE("an incorrectly assumed state makes the next transition fail") {
  const testbed bed;
  auto pair = bring<transport::uc, init>(bed).assume_state_unchecked<ready_to_send>();
  const error e = failure_of(
      std::move(pair).modify(attributes_for<transport::uc, ready_to_send, send_queue_drained>()));
  CHECK(e == error_kind::invalid_input);
  CHECK(std::string(e.operation()) == "modify RTS -> SQD");
}

TEST_CASE("the type can be set to the state into which C code has moved a queue pair") {
  const testbed bed;
  auto pair = bring<transport::rc, ready_to_send>(bed);
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_RESET;
  REQUIRE(ibv_modify_qp(pair.native_handle(), &attributes, IBV_QP_STATE) == 0);
  auto idle = std::move(pair).assume_state_unchecked<reset>();
  check_state(idle);
  auto again = must(std::move(idle).prepare());
  check_state(connect_to_itself(std::move(again)));
}

TEST_CASE("calls on a moved-from RC queue pair fail") { use_after_move<transport::rc>(testbed{}); }
TEST_CASE("calls on a moved-from UC queue pair fail") { use_after_move<transport::uc>(testbed{}); }
TEST_CASE("calls on a moved-from UD queue pair fail") { use_after_move<transport::ud>(testbed{}); }

TEST_CASE("the endpoint reflects a change of the port") {
  const testbed bed;
  auto pair = bring<transport::rc, init>(bed);
  const endpoint before = pair.endpoint();
  must(pair.modify(attributes_for<transport::rc, init, init>().port(bed.port.number())));
  CHECK(pair.endpoint() == before);
  // Most devices have only one port. If there is a second active port, it has addresses of its own.
  for (std::uint8_t number = 1; number <= bed.limits.phys_port_cnt; ++number) {
    const port_attributes port = must(bed.context.query_port(must(port_number::from(number))));
    if (port.number() == bed.port.number() || port.state() != port_state::active) continue;
    must(pair.modify(attributes_for<transport::rc, init, init>().port(port.number())));
    CHECK(query(pair.native_handle()).attributes.port_num == number);
    CHECK(pair.endpoint().link_layer == port.link_layer());
    CHECK(pair.endpoint().lid == port.lid());
    CHECK(pair.endpoint().address != before.address);
  }
}

TEST_CASE("the endpoint has the LID and the link layer of the port to which the queue pair moves") {
  const testbed bed;
  if (bed.limits.phys_port_cnt > 1) SKIP("the stand-in is for devices with one port");
  const second_port_stand_in second(bed.context.native_handle(), 0x1234);
  auto pair = bring<transport::rc, init>(bed);
  CHECK(pair.endpoint().lid == bed.port.lid());
  must(pair.modify(attributes_for<transport::rc, init, init>().port(2)));
  CHECK(pair.endpoint().lid == lid(0x1234));
  CHECK(pair.endpoint().link_layer == link_layer::infiniband);
  must(pair.modify(attributes_for<transport::rc, init, init>().port(1)));
  CHECK(pair.endpoint().lid == bed.port.lid());
  CHECK(pair.endpoint().link_layer == bed.port.link_layer());
}

TEST_CASE("a path of the wrong link layer is refused before the device is called") {
  const testbed bed;
  auto pair = bring<transport::uc, init>(bed);
  const endpoint self = pair.endpoint();
  const path wrong = bed.is_ethernet() ? path(infiniband_path{.destination = 1})
                                       : path(roce_path{.route = {.destination = self.address}});
  const error e =
      failure_of(std::move(pair).modify(attributes_for<transport::uc, init, ready_to_receive>()
                                            .path(wrong)
                                            .path_mtu(256)
                                            .destination(self.number)
                                            .receive_psn(0)));
  INFO(e);
  CHECK(e == error_kind::mismatch);
  CHECK(e.native_errno() == 0);
  CHECK(std::string(e.operation()) == "modify INIT -> RTR");
}

TEST_CASE("a queue pair prints the state of its type") {
  const testbed bed;
  std::ostringstream text;
  text << bring<transport::ud, send_queue_drained>(bed) << '\n'
       << must(bring<transport::uc, ready_to_send>(bed).query());
  CHECK_THAT(text.str(), Catch::Contains("UD queue pair 0x") && Catch::Contains(", SQD, device ") &&
                             Catch::Contains("RTS, destination 0x"));
}
