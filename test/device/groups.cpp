// SPDX-License-Identifier: Apache-2.0
#include "groups.hpp"

#include "channels.hpp"
#include "event_loop.hpp"
#include "failing_verb.hpp"

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

using namespace verbspp;
using namespace verbspp::test;

namespace {

constexpr std::uint32_t count = 4;
constexpr std::size_t block = 64;

/// Returns the bytes of one part of the buffer.
[[nodiscard]] std::vector<std::byte> part_of(const buffer<>& of, std::size_t place) {
  const auto first = of.bytes().begin() + static_cast<std::ptrdiff_t>(place * block);
  return {first, first + static_cast<std::ptrdiff_t>(block)};
}

/// Posts a receive at each member for a message from member `from`. Returns a handle for each
/// receive, indexed by the member that receives.
[[nodiscard]] std::vector<pending<>> receive_from(std::vector<group>& all, std::uint32_t from,
                                                  std::vector<buffer<>>& into) {
  std::vector<pending<>> receives;
  for (std::uint32_t i = 0; i < all.size(); ++i)
    receives.push_back(must(all[i][from].post_receive({.elements = into[i].scatter(0, block)})));
  return receives;
}

[[nodiscard]] std::vector<buffer<>> buffers(const testbed& bed) {
  std::vector<buffer<>> made;
  for (std::uint32_t i = 0; i < count; ++i) made.emplace_back(bed.domain, count * block);
  return made;
}

/// A fixture with the members of a group.
struct four_members {
  const testbed bed{};
  std::vector<group> all = connect_groups(bed, count);
};
/// A fixture with the members of a group, and memory for each of them.
struct members_with_memory : four_members {
  std::vector<buffer<>> memory = buffers(bed);
};

/// Breaks the connection between two members at both ends.
void break_link(std::vector<group>& all, std::uint32_t one, std::uint32_t other) {
  move_to_error(all[one][other].native_handle());
  static_cast<void>(all[other][one].close());
}

void mend(std::vector<group>& all, std::uint32_t one, std::uint32_t other) {
  const endpoint here = must(all[one][other].renew());
  const endpoint there = must(all[other][one].renew());
  must(all[one][other].handshake(there));
  must(all[other][one].handshake(here));
}

}  // namespace

TEST_CASE_METHOD(four_members, "a group's channels have numbers and share one completion queue") {
  for (group& each : all) {
    REQUIRE(each.size() == count);
    CHECK(each.all().size() == count);
    CHECK(each.connected().size() == count);
    for (const std::uint32_t peer : each.all()) {
      CHECK(each[peer].native_completion_queue() == each.hub().native_handle());
      CHECK(each.peer_of(each[peer].id()) == peer);
    }
    CHECK_FALSE(each.peer_of(channel_id()));
    CHECK_FALSE(each.peer_of({.index = 0, .generation = 1000}));
  }
  // A member can also use its channels directly, even the one that connects it to itself.
  std::vector<buffer<>> memory = buffers(bed);
  buffer<> from(bed.domain, pattern(block, 1));
  for (std::uint32_t peer = 0; peer < count; ++peer)
    must(all[0][peer].write({.elements = from.gather(), .remote = memory[peer].remote()}));
  for (const buffer<>& each : memory) CHECK(part_of(each, 0) == from.bytes());

  std::ostringstream text;
  text << all[0];
  CHECK(text.str() == "group, numbers: 4, connected: 4, broken: 0");
}

TEST_CASE_METHOD(members_with_memory, "scatter sends a different part to each peer") {
  buffer<> from(bed.domain, pattern(count * block, 2));
  const auto sent = [&](std::uint32_t peer) -> result<send_operation> {
    VERBSPP_TRY(part, from.region().gather(peer * block, block));
    return send_operation{.elements = part, .immediate = immediate_data(peer)};
  };
  const auto written = [&](std::uint32_t peer) {
    return write_operation{.elements = from.gather(peer * block, block),
                           .remote = memory[peer].remote()};
  };

  SECTION("by blocking sends") {
    auto receives = receive_from(all, 1, memory);
    const group_results done = all[1].scatter(all[1].all(), sent, patience);
    REQUIRE(done);
    CHECK(done.size() == count);
    for (std::uint32_t i = 0; i < count; ++i) {
      CHECK(done[i].peer == i);
      CHECK(must(receives[i].wait(patience)).immediate()->value() == i);
    }
  }
  SECTION("by sends without polling") {
    auto receives = receive_from(all, 1, memory);
    auto work = must(all[1].post_scatter({3, 2, 1, 0}, sent));
    CHECK(work.size() == count);
    std::optional<group_results> done;
    wait_until([&] { return (done = work.poll()).has_value(); }, "the parts to be sent");
    REQUIRE(*done);
    CHECK((*done)[0].peer == 3);
    for (pending<>& each : receives) must(each.wait(patience));
    // The results can be taken only once.
    CHECK(work.wait().error().cause().call()->kind() == error_kind::invalid_input);
  }
  SECTION("by sends in a scope") {
    auto receives = receive_from(all, 1, memory);
    const auto done = all[1].scope(
        [&](group_scope& scope) -> group_result<int> {
          VERBSPP_TRYV(scope.post_scatter({0, 1}, sent));
          VERBSPP_TRYV(scope.post_scatter({2, 3}, sent));
          return 7;
        },
        patience);
    CHECK(must(done) == 7);
    for (const std::uint32_t peer : all[1].all()) CHECK(all[1][peer].outstanding() == 0);
    for (pending<>& each : receives) must(each.wait(patience));
  }
  SECTION("by blocking writes, posted writes, and writes in a scope") {
    REQUIRE(all[1].scatter({0, 1}, written));
    REQUIRE(must(all[1].post_scatter({2}, written)).wait());
    must(all[1].scope([&](group_scope& scope) { return scope.post_scatter({3}, written); }));
  }
  for (std::uint32_t i = 0; i < count; ++i) CHECK(part_of(memory[i], 0) == part_of(from, i));
}

TEST_CASE_METHOD(four_members, "gather reads or receives a part from each peer") {
  buffer<> into(bed.domain, count * block);
  std::vector<buffer<>> theirs;
  for (std::uint32_t i = 0; i < count; ++i) theirs.emplace_back(bed.domain, pattern(block, i));

  const auto read = [&](std::uint32_t peer) {
    return read_operation{.elements = into.scatter(peer * block, block),
                          .remote = theirs[peer].remote()};
  };
  const auto received = [&](std::uint32_t peer) {
    return receive_operation{.elements = into.scatter(peer * block, block)};
  };

  SECTION("by blocking reads, posted reads, and reads in a scope") {
    REQUIRE(all[2].gather({0, 1}, read));
    REQUIRE(must(all[2].post_gather({2}, read)).wait(patience));
    must(all[2].scope([&](group_scope& scope) { return scope.post_gather({3}, read); }));
  }
  SECTION("by receives") {
    auto work = must(all[2].post_gather(all[2].all(), received));
    CHECK_FALSE(work.poll());
    for (std::uint32_t i = 0; i < count; ++i)
      must(all[i][2].send({.elements = theirs[i].gather(), .immediate = immediate_data(i)}));
    const group_results done = work.wait(patience);
    REQUIRE(done);
    for (const peer_result& each : done) {
      CHECK(must(each.result).byte_count() == block);
      CHECK(must(each.result).immediate()->value() == each.peer);
    }
  }
  for (std::uint32_t i = 0; i < count; ++i) CHECK(part_of(into, i) == theirs[i].bytes());
}

TEST_CASE_METHOD(members_with_memory, "multicast sends the same bytes to each given peer") {
  buffer<> from(bed.domain, pattern(block, 3));
  const auto place = [&](std::uint32_t peer) { return memory[peer].remote(); };
  const std::vector<std::uint32_t> some{0, 3};

  SECTION("by blocking sends, posted sends, and sends in a scope") {
    std::vector<pending<>> receives;
    for (const std::uint32_t peer : some)
      for (int i = 0; i < 3; ++i)
        receives.push_back(must(all[peer][1].post_receive({.elements = memory[peer].scatter()})));
    REQUIRE(all[1].multicast(some, {.elements = from.gather()}));
    REQUIRE(must(all[1].post_multicast(some, {.elements = from.gather()})).wait());
    must(all[1].scope([&](group_scope& scope) {
      return scope.post_multicast(some, {.elements = from.gather()});
    }));
    for (pending<>& each : receives) CHECK(must(each.wait(patience)).byte_count() == block);
  }
  SECTION("by blocking writes") { REQUIRE(all[1].multicast(some, from.gather(), place)); }
  SECTION("by writes without polling") {
    REQUIRE(must(all[1].post_multicast(some, from.gather(), place)).wait());
  }
  SECTION("by writes in a scope") {
    must(all[1].scope(
        [&](group_scope& scope) { return scope.post_multicast(some, from.gather(), place); }));
  }
  for (std::uint32_t i = 0; i < count; ++i)
    CHECK((part_of(memory[i], 0) == from.bytes()) == (i == 0 || i == 3));
}

TEST_CASE_METHOD(members_with_memory,
                 "a peer that fails is reported by number while the others continue") {
  buffer<> from(bed.domain, pattern(block, 4));
  const auto place = [&](std::uint32_t peer) { return memory[peer].remote(); };
  break_link(all, 0, 2);

  SECTION("in a blocking call") {
    const group_results done = all[0].multicast(all[0].all(), from.gather(), place, patience);
    REQUIRE_FALSE(done);
    CHECK(done.failed() == 1);
    CHECK(done.error().peer() == 2U);
    CHECK(done.error().failed() == 1);
    CHECK(done.error().message().starts_with("peer 2: "));
    CHECK(done.message().starts_with("peer 2: "));
    for (const peer_result& each : done) CHECK(each.result.has_value() == (each.peer != 2));
  }
  SECTION("in a scope whose function's own error is reported separately") {
    const error own(error_kind::busy, "test", "the function failed");
    const auto failed = failure_of(all[0].scope(
        [&](group_scope& scope) -> result<void> {
          // The queue pair that leads to peer 2 is in ERR, so posting to it succeeds, but the
          // request completes as flushed.
          static_cast<void>(scope.post_multicast(all[0].all(), from.gather(), place));
          return own;
        },
        patience));
    REQUIRE(failed.own());
    CHECK(failed.own()->kind() == error_kind::busy);
    CHECK(failed.peer() == 2U);
    CHECK(static_cast<error>(failed).kind() == error_kind::busy);
    CHECK(failed.message().find("; and peer 2: ") != std::string::npos);
  }
  SECTION("in a scope whose function throws") {
    CHECK_THROWS_AS(static_cast<void>(all[0].scope([&](group_scope& scope) {
                      static_cast<void>(scope.post_multicast({0, 1, 3}, from.gather(), place));
                      throw std::runtime_error("thrown by the function");
                    })),
                    std::runtime_error);
    static_cast<void>(all[0][2].write({.elements = from.gather(), .remote = place(2)}));
    for (const std::uint32_t peer : all[0].all()) CHECK(all[0][peer].outstanding() == 0);
  }

  CHECK(all[0][2].state() == channel_state::broken);
  CHECK(all[0].connected().size() == count - 1);
  for (const std::uint32_t peer : {0U, 1U, 3U}) CHECK(part_of(memory[peer], 0) == from.bytes());
  CHECK(part_of(memory[2], 0) != from.bytes());

  // The channel to one peer is broken and refuses the request. The requests to the other peers are
  // not affected.
  auto work = must(all[0].post_multicast(all[0].all(), from.gather(), place));
  const group_results done = work.wait(patience);
  CHECK(done.failed() == 1);
  CHECK(done.error().peer() == 2U);

  mend(all, 0, 2);
  REQUIRE(all[0].multicast(all[0].all(), from.gather(), place));
  CHECK(part_of(memory[2], 0) == from.bytes());
}

TEST_CASE_METHOD(members_with_memory,
                 "peers whose parts cannot be made are reported and the others get theirs") {
  buffer<> from(bed.domain, 2 * block);
  const auto part = [&](std::uint32_t peer) -> result<write_operation> {
    VERBSPP_TRY(source, from.region().gather(peer * block, block));
    return write_operation{.elements = source, .remote = memory[peer].remote()};
  };
  const group_results done = all[0].scatter({0, 1, 2, 3}, part);
  CHECK(done.failed() == 2);
  CHECK(done.error().peer() == 2U);
  CHECK(done[0].result);
  CHECK(done[1].result);
  CHECK(all[0].connected().size() == count);
  const auto failed = failure_of(
      all[0].scope([&](group_scope& scope) { return scope.post_scatter({3, 1}, part); }));
  REQUIRE(failed.own());
  CHECK(failed.own()->kind() == error_kind::invalid_input);
}

TEST_CASE("numbers beyond a group's size are refused before anything is posted") {
  const testbed bed;
  std::vector<group> all = connect_groups(bed, 2);
  buffer<> from(bed.domain, block);
  const group_results refused = all[0].multicast({0, 2}, {.elements = from.gather()});
  CHECK_FALSE(refused);
  CHECK(refused.size() == 0);
  CHECK_FALSE(refused.error().peer());
  CHECK(static_cast<error>(refused.error()).kind() == error_kind::invalid_input);
  CHECK(all[0][0].outstanding() == 0);
  CHECK(failure_of(all[0].post_multicast({7}, {.elements = from.gather()})) ==
        error_kind::invalid_input);
  const auto failed = failure_of(all[0].scope(
      [&](group_scope& scope) { return scope.post_multicast({2}, {.elements = from.gather()}); }));
  CHECK(failed.own()->kind() == error_kind::invalid_input);
  CHECK(all[0].multicast({}, {.elements = from.gather()}));

  group none;
  CHECK(none.all().empty());
  CHECK_FALSE(none.multicast({0}, {.elements = from.gather()}));
  std::array<arrival, 1> slot;
  CHECK(failure_of(none.poll(slot)) == error_kind::invalid_input);
  CHECK(failure_of(none.wait(slot, short_limit)) == error_kind::invalid_input);
  CHECK(failure_of(none.add(channel())) == error_kind::invalid_input);
}

static_assert(FourFunctions<group>);

TEST_CASE("an event loop waits for the channels of a group") {
  const testbed bed;
  std::vector<group> all = connect_groups(
      2, [&] { return prepare_group(bed.domain.build_channel().waiting(wait_mode::sleep()), 2); });
  buffer<> into(bed.domain, block);
  buffer<> from(bed.domain, pattern(block, 3));
  auto received = must(all[0][1].post_receive({.elements = into.scatter()}));
  CHECK_FALSE(must(all[0].request_notification()));
  must(all[1][0].send({.elements = from.gather()}));
  serve(all[0], [&] { return must(all[0].poll()), received.poll().has_value(); });
  CHECK(part_of(into, 0) == part_of(from, 0));
  CHECK(all[0].deadline() == (clock::time_point::max)());
}

TEST_CASE_METHOD(four_members,
                 "a wait for several peers that times out breaks only the late connections") {
  buffer<> into(bed.domain, count * block);
  buffer<> from(bed.domain, pattern(block, 5));
  const auto received = [&](std::uint32_t peer) {
    return receive_operation{.elements = into.scatter(peer * block, block)};
  };
  auto work = must(all[0].post_gather({1, 2, 3}, received));
  must(all[1][0].send({.elements = from.gather()}));
  must(all[3][0].send({.elements = from.gather()}));
  const group_results done = work.wait(short_limit);
  CHECK(done.failed() == 1);
  CHECK(done.error().peer() == 2U);
  CHECK(done.error().cause().call()->kind() == error_kind::timed_out);
  CHECK(all[0][2].state() == channel_state::broken);
  CHECK(all[0][1].is_connected());
  CHECK(all[0][3].is_connected());

  // If the limit has already expired, nothing is posted.
  const group_results nothing = all[0].gather({1, 3}, received, std::chrono::seconds(0));
  CHECK(static_cast<error>(nothing.error()).kind() == error_kind::timed_out);
  CHECK(all[0][1].outstanding() == 0);
  CHECK(all[0][1].is_connected());
}

TEST_CASE("blocking calls for several peers wait for room in their queues") {
  const testbed bed;
  std::vector<group> all = connect_groups(bed, 2);
  std::vector<buffer<>> memory = buffers(bed);
  buffer<> from(bed.domain, pattern(block, 6));
  const auto place = [&](std::uint32_t peer) { return memory[peer].remote(); };
  const std::vector<std::uint32_t> often(100, 1);
  REQUIRE(all[0].multicast(often, from.gather(), place, patience));
  must(all[0].scope(
      [&](group_scope& scope) { return scope.post_multicast(often, from.gather(), place); },
      patience));
}

TEST_CASE("posting to several peers does not wait for room in their queues") {
  const testbed bed;
  std::vector<group> all = connect_groups(bed, 2);
  std::vector<buffer<>> memory = buffers(bed);
  buffer<> from(bed.domain, pattern(block, 6));
  const auto place = [&](std::uint32_t peer) { return memory[peer].remote(); };
  // Without the delay, the queue might be emptied as fast as it is filled.
  const failing_device late("send-completion:*=50ms");
  auto posted =
      must(all[0].post_multicast(std::vector<std::uint32_t>(100, 1), from.gather(), place));
  const group_results done = posted.wait(patience);
  CHECK(done.failed() > 0);
  CHECK(done.error().cause().call()->kind() == error_kind::would_block);
}

TEST_CASE("the waits of a group return the messages of all peers") {
  const testbed bed;
  const auto pool = must(message_pool::create(bed.domain, 64, 64));
  {
    const auto made = prepare_group(bed.domain.build_channel(), 1, pool, {.receives = 8});
    if (!made.has_value() && made.error() == error_kind::not_supported) {
      SKIP("the device has no shared receive queues");
    }
  }
  std::vector<group> all = connect_groups(count, [&] {
    return prepare_group(bed.domain.build_channel(), count, pool, {.receives = 8});
  });
  buffer<> from(bed.domain, pattern(block, 7));
  for (std::uint32_t i = 1; i < count; ++i)
    must(all[i][0].send({.elements = from.gather(), .immediate = immediate_data(i)}));
  std::vector<bool> seen(count);
  for (std::uint32_t i = 1; i < count;) {
    std::array<arrival, 2> slots;
    for (arrival& each : must(all[0].wait(slots, patience))) {
      if (!each.message) continue;
      const auto peer = all[0].peer_of(each.source);
      REQUIRE(peer);
      CHECK(each.message.immediate()->value() == *peer);
      seen[*peer] = true;
      ++i;
    }
  }
  CHECK(seen == std::vector<bool>{false, true, true, true});

  // This wait also processes other completions. So the result of the handle becomes available, and
  // the place of the message that was sent returns to the pool.
  auto sent = must(all[1][2].post_send(must(pool.take())));
  while (all[1][2].outstanding() != 0) {
    std::array<arrival, 2> slots;
    static_cast<void>(must(all[1].wait(slots, patience)));
  }
  CHECK(sent.poll());
  // Destroying the groups returns the places of their receives to the pool.
  all.clear();
  CHECK(pool.available() == pool.size());
}

TEST_CASE("a group whose completions need more than 32 bits to count is refused for their number") {
  const testbed bed;
  const message_pool pool = must(message_pool::create(bed.domain, 16, 64));
  const auto with_long_queues = bed.domain.build_channel().max_send_work_requests(1'000'000);
  const error refused = failure_of(prepare_group(with_long_queues, 60'000, pool, {.receives = 16}));
  CHECK(refused == error_kind::invalid_input);
  CHECK_THAT(refused.message(), Catch::Contains("capacity in completions"));
}

TEST_CASE("members can be added and removed while the others continue") {
  const testbed bed;
  std::vector<group> all = connect_groups(bed, 2, {.spare = 2});
  group& mine = all[0];
  std::vector<buffer<>> memory = buffers(bed);
  buffer<> from(bed.domain, pattern(block, 8));
  const auto place = [&](std::uint32_t peer) { return memory[peer].remote(); };
  const auto connect_here = [&] {
    auto here = must(bed.domain.build_channel()
                         .max_send_work_requests(8)
                         .max_receive_work_requests(8)
                         .hub(mine.hub())
                         .build());
    auto there = must(bed.domain.build_channel().build());
    const endpoint here_end = here.endpoint();
    return channel_pair{.left = must(std::move(here).handshake(there.endpoint())),
                        .right = must(std::move(there).handshake(here_end))};
  };

  channel_pair third = connect_here();
  CHECK(must(mine.add(std::move(third.left))) == 2);
  CHECK(mine.size() == 3);
  REQUIRE(mine.multicast(mine.all(), from.gather(), place));
  CHECK(part_of(memory[2], 0) == from.bytes());

  channel removed = mine.remove(1);
  CHECK(removed.is_connected());
  CHECK_FALSE(mine.peer_of(removed.id()));
  CHECK(mine.all().size() == 2);
  CHECK(mine.size() == 3);
  CHECK_FALSE(mine.multicast({1}, from.gather(), place));
  CHECK(mine.remove(1).state() == channel_state::empty);
  CHECK(mine.remove(77).state() == channel_state::empty);

  channel_pair another = connect_here();
  const channel_id id = another.left.id();
  CHECK(must(mine.add(std::move(another.left))) == 1);
  CHECK(mine.peer_of(id) == 1U);
  REQUIRE(mine.multicast(mine.all(), from.gather(), place));

  // If the number is in use, `put` replaces the channel that has it.
  must(mine.put(2, std::move(removed)));
  CHECK(mine.peer_of(mine[2].id()) == 2U);
  REQUIRE(mine.multicast(mine.all(), from.gather(), place));

  channel elsewhere(must(bed.domain.build_channel().build()));
  CHECK(failure_of(mine.add(std::move(elsewhere))) == error_kind::invalid_input);
  CHECK(elsewhere.state() == channel_state::prepared);  // NOLINT(bugprone-use-after-move)
  CHECK(failure_of(mine.add(channel())) == error_kind::invalid_input);
  channel_pair fourth = connect_here();
  CHECK(failure_of(mine.put(99, std::move(fourth.left))) == error_kind::invalid_input);
  CHECK(must(mine.add(std::move(fourth.left))) == 3);  // NOLINT(bugprone-use-after-move)
  CHECK(failure_of(bed.domain.build_channel().hub(mine.hub()).build()) ==
        error_kind::resource_exhausted);
}

TEST_CASE("a scope of a group refuses members that were added after it began") {
  const testbed bed;
  std::vector<group> all = connect_groups(bed, 2, {.spare = 1});
  group& mine = all[0];
  auto added = must(bed.domain.build_channel()
                        .max_send_work_requests(8)
                        .max_receive_work_requests(8)
                        .hub(mine.hub())
                        .build());
  const auto done = mine.scope([&](group_scope& scope) {
    CHECK(must(mine.add(channel(std::move(added)))) == 2);
    CHECK(failure_of(scope[2].post_receive({})) == error_kind::not_connected);
    CHECK(scope[1].post_receive({}).has_value());
    must(all[1][0].send({}));
  });
  CHECK(done.has_value());
}

TEST_CASE_METHOD(four_members, "a group may be assigned to or moved within its own scope") {
  const bool is_moved = GENERATE(true, false);
  buffer<> memory(bed.domain, block);
  auto arriving = must(all[1][0].post_receive({.elements = memory.scatter()}));
  group elsewhere;
  const auto done = all[0].scope([&](group_scope& scope) {
    must(scope[1].post_send({.elements = memory.gather()}));
    if (is_moved) elsewhere = std::move(all[0]);
    // The group has no members any more.
    all[0] = group();
    for (const std::uint32_t peer : {2U, 3U})
      CHECK(failure_of(scope[peer].post_receive({})) == error_kind::not_connected);
    CHECK_FALSE(scope.post_multicast({3}, {}).has_value());
  });
  // If the group was not moved, the assignment destroyed it, and the message may or may not have
  // been sent. Closing the receiver's channel then ends the receive even if no message arrives.
  if (!is_moved) must(all[1][0].close());
  const bool has_arrived = std::move(arriving).wait(patience).has_value();
  CHECK((!is_moved || (done.has_value() && has_arrived)));
}

TEST_CASE_METHOD(four_members, "a list of peers may change while parts are posted to them") {
  buffer<> memory(bed.domain, block);
  const bool is_of_group = GENERATE(true, false);
  std::vector<pending<>> arriving;
  for (const std::uint32_t peer : {1U, 2U, 3U})
    arriving.push_back(must(all[peer][0].post_receive({.elements = memory.scatter()})));
  std::vector<std::uint32_t> listed{1, 2, 3};
  std::vector<std::uint32_t> asked;
  const auto part_for = [&](std::uint32_t peer) {
    asked.push_back(peer);
    // This function reallocates the program's list. In one variant, it also changes the group's
    // list of connected peers.
    listed.assign(1000, 0);
    listed.shrink_to_fit();
    if (is_of_group) all[0][2] = channel();
    static_cast<void>(all[0].connected());
    return send_operation{.elements = memory.gather()};
  };
  if (is_of_group) {
    static_cast<void>(all[0].remove(0));
    const group_error refused = failure_of(all[0].scope([&](group_scope& scope) {
      static_cast<void>(scope.post_scatter(all[0].connected(), part_for));
    }));
    CHECK(refused.peer() == 2);
  } else {
    must(all[0].scope([&](group_scope& scope) { must(scope.post_scatter(listed, part_for)); }));
  }
  CHECK(asked == std::vector<std::uint32_t>{1, 2, 3});
  for (const std::uint32_t peer : {1U, 3U}) {
    CAPTURE(peer);
    CHECK(std::move(arriving[peer - 1]).wait(patience).has_value());
  }
  if (is_of_group) must(all[2][0].close());
  CHECK(std::move(arriving[1]).wait(patience).has_value() == !is_of_group);
}

TEST_CASE_METHOD(four_members,
                 "a group that is assigned to while it posts parts refuses the rest") {
  buffer<> memory(bed.domain, block);
  const auto done = all[0].scatter({1, 2, 3}, [&](std::uint32_t peer) {
    if (peer == 1) all[0] = group();
    return send_operation{.elements = memory.gather()};
  });
  REQUIRE(done.size() == 3);
  for (const peer_result& each : done)
    CHECK(failure_of(each.result).message().find("size()") != std::string::npos);
}

TEST_CASE("a group's handshake reports the members that it could not connect") {
  const testbed bed;
  const auto prepare = [&] { return must(prepare_group(bed.domain.build_channel(), 2)); };
  prepared_group left = prepare();
  prepared_group right = prepare();
  std::vector<endpoint> remotes{right.endpoint(0), right.endpoint(1)};

  SECTION("too few endpoints") {
    remotes.pop_back();
    CHECK(static_cast<error>(failure_of(std::move(left).handshake(remotes))).kind() ==
          error_kind::invalid_input);
  }
  remotes.resize(2);
  remotes[1] = endpoint();  // invalid
  SECTION("a prepared group reports the invalid endpoint") {
    const auto failed = failure_of(std::move(left).handshake(remotes));
    CHECK(failed.peer() == 1U);
    CHECK(failed.failed() == 1);
  }
  SECTION("an existing group connects the other members") {
    group mine(std::move(left));
    CHECK(failure_of(mine.handshake(remotes)).peer() == 1U);
    CHECK(mine[0].is_connected());
    CHECK(mine[1].state() == channel_state::broken);
    CHECK(mine[1].failure());
    group theirs(std::move(right));
    must(theirs[0].handshake(mine[0].endpoint()));
    auto message = must(theirs[0].post_receive({}));
    must(mine[0].send({.immediate = immediate_data(1)}));
    must(message.wait(patience));
  }
}

TEST_CASE("receives posted before a group's handshake take the peers' first messages") {
  const testbed bed;
  buffer<> into(bed.domain, 2 * block);
  buffer<> from(bed.domain, pattern(block, 9));
  const auto pool = must(message_pool::create(bed.domain, 8, 64));
  std::vector<prepared_group> prepared;
  for (int i = 0; i < 2; ++i)
    prepared.push_back(must(prepare_group(bed.domain.build_channel(), 2)));
  auto first = must(prepared[0].post_receive(1, {.elements = into.scatter(0, block)}));
  auto arrivals = must(prepared[1].open_inbox(0, pool));
  std::vector<std::vector<endpoint>> remotes{remotes_of(prepared, 0), remotes_of(prepared, 1)};
  group left = must(std::move(prepared[0]).handshake(remotes[0]));
  group right = must(std::move(prepared[1]).handshake(remotes[1]));
  must(right[0].send({.elements = from.gather()}));
  CHECK(must(first.wait(patience)).byte_count() == block);
  must(left[1].send({.elements = from.gather()}));
  CHECK(must(arrivals.wait(patience)).size() == block);
}

TEST_CASE_METHOD(four_members, "a group stops all of its members before it destroys one") {
  std::vector<ibv_qp*> pairs;
  for (const std::uint32_t peer : all[0].all()) pairs.push_back(all[0][peer].native_handle());
  std::size_t stopped = 0;
  before_next_destroy_qp([&] {
    for (ibv_qp* each : pairs) {
      ibv_qp_attr attributes{};
      ibv_qp_init_attr initial{};
      const int failed = ibv_query_qp(each, &attributes, IBV_QP_STATE, &initial);
      if (failed == 0 && attributes.qp_state == IBV_QPS_ERR) ++stopped;
    }
  });
  SECTION("by destruction") { const group gone = std::move(all[0]); }
  SECTION("by assignment") { all[0] = group(); }
  CHECK(stopped == count);
}

TEST_CASE("handles of several peers outlive their group") {
  const testbed bed;
  std::vector<group> all = connect_groups(bed, 2);
  buffer<> into(bed.domain, 2 * block);
  auto work = must(all[0].post_gather({0, 1}, [&](std::uint32_t peer) {
    return receive_operation{.elements = into.scatter(peer * block, block)};
  }));
  all.clear();
  const group_results done = work.wait(patience);
  CHECK(done.failed() == 2);
}

TEST_CASE_METHOD(four_members,
                 "a manual scope of a group reports the peers whose results were not taken") {
  buffer<> from(bed.domain, pattern(block, 1));
  std::vector<buffer<>> into = buffers(bed);
  const auto write_to = [&](std::uint32_t peer) {
    return write_operation{.elements = from.gather(), .remote = into[peer].remote()};
  };
  const int got = must(all[0].manual_scope([&](manual_group_scope& scope) -> group_result<int> {
    VERBSPP_TRY(one, scope[1].post_write(write_to(1)));
    VERBSPP_TRY(other, scope[3].post_write(write_to(3)));
    VERBSPP_TRYV(other.wait(patience));
    VERBSPP_TRYV(one.wait(patience));
    return 7;
  }));
  CHECK(got == 7);
  CHECK(part_of(into[3], 0) == pattern(block, 1));

  const auto left = failure_of(all[0].manual_scope([&](manual_group_scope& scope) {
    auto taken = must(scope[1].post_write(write_to(1)));
    must(scope[2].post_write(write_to(2)));
    auto never = must(scope[3].post_write(write_to(3)));
    must(taken.wait(patience));
  }));
  CHECK(left.peer() == 2U);
  CHECK(left.failed() == 2);
  CHECK_FALSE(left.own());
  CHECK(static_cast<error>(left).message().find("not taken") != std::string::npos);
  // The requests have finished nevertheless, and no channel is broken.
  CHECK(part_of(into[2], 0) == pattern(block, 1));
  for (const std::uint32_t peer : all[0].all()) {
    CHECK(all[0][peer].outstanding() == 0);
    CHECK(all[0][peer].is_connected());
  }

  // The error of the scope's function is reported separately.
  const auto both = failure_of(all[0].manual_scope([&](manual_group_scope& scope) -> result<void> {
    must(scope[1].post_write(write_to(1)));
    return error(error_kind::busy, "test", "the function failed");
  }));
  REQUIRE(both.own());
  CHECK(both.own()->kind() == error_kind::busy);
  CHECK(both.peer() == 1U);
}

TEST_CASE_METHOD(four_members, "a group that was moved from is empty") {
  group& moved_from = all[0];
  const group taken = std::move(moved_from);
  CHECK(moved_from.size() == 0);
  channel some;
  CHECK_THAT(failure_of(moved_from.add(std::move(some))).message(),
             Catch::Contains("this group is empty"));
  for (const error& told :
       {failure_of(moved_from.poll(std::span<arrival>())), failure_of(moved_from.poll()),
        failure_of(moved_from.request_notification())})
    CHECK_THAT(told.message(), Catch::Contains("this group is empty"));
  CHECK(moved_from.file_descriptor() == -1);
  CHECK(moved_from.deadline() == (clock::time_point::max)());
}
