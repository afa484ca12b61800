// SPDX-License-Identifier: Apache-2.0
// How groups are formed and waited for, and how members are added and removed.

#include "groups.hpp"

#include "channels.hpp"
#include "event_loop.hpp"
#include "failing_verb.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <sstream>
#include <utility>
#include <vector>

using namespace verbspp;
using namespace verbspp::test;

TEST_CASE_METHOD(four_members, "a group's channels have numbers and share one completion queue") {
  for (group& each : all) {
    REQUIRE(each.size() == group_size);
    CHECK(each.all().size() == group_size);
    CHECK(each.connected().size() == group_size);
    for (const std::uint32_t peer : each.all()) {
      CHECK(each[peer].native_completion_queue() == each.hub().native_handle());
      CHECK(each.peer_of(each[peer].id()) == peer);
    }
    CHECK_FALSE(each.peer_of(channel_id()));
    CHECK_FALSE(each.peer_of({.index = 0, .generation = 1000}));
  }
  // A member can also use its channels directly, even the one that connects it to itself.
  std::vector<buffer<>> memory = buffers(bed);
  buffer<> from(bed.domain, pattern(part_size, 1));
  for (std::uint32_t peer = 0; peer < group_size; ++peer)
    must(all[0][peer].write({.elements = from.gather(), .remote = memory[peer].remote()}));
  for (const buffer<>& each : memory) CHECK(part_of(each, 0) == from.bytes());

  std::ostringstream text;
  text << all[0];
  CHECK(text.str() == "group, numbers: 4, connected: 4, broken: 0");
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
  buffer<> into(bed.domain, 2 * part_size);
  buffer<> from(bed.domain, pattern(part_size, 9));
  const auto pool = must(message_pool::create(bed.domain, 8, 64));
  std::vector<prepared_group> prepared;
  for (int i = 0; i < 2; ++i)
    prepared.push_back(must(prepare_group(bed.domain.build_channel(), 2)));
  auto first = must(prepared[0].post_receive(1, {.elements = into.scatter(0, part_size)}));
  auto arrivals = must(prepared[1].open_inbox(0, pool));
  std::vector<std::vector<endpoint>> remotes{remotes_of(prepared, 0), remotes_of(prepared, 1)};
  group left = must(std::move(prepared[0]).handshake(remotes[0]));
  group right = must(std::move(prepared[1]).handshake(remotes[1]));
  must(right[0].send({.elements = from.gather()}));
  CHECK(must(first.wait(patience)).byte_count() == part_size);
  must(left[1].send({.elements = from.gather()}));
  CHECK(must(arrivals.wait(patience)).size() == part_size);
}

static_assert(FourFunctions<group>);

TEST_CASE("an event loop waits for the channels of a group") {
  const testbed bed;
  std::vector<group> all = connect_groups(
      2, [&] { return prepare_group(bed.domain.build_channel().waiting(wait_mode::sleep()), 2); });
  buffer<> into(bed.domain, part_size);
  buffer<> from(bed.domain, pattern(part_size, 3));
  auto received = must(all[0][1].post_receive({.elements = into.scatter()}));
  CHECK_FALSE(must(all[0].request_notification()));
  must(all[1][0].send({.elements = from.gather()}));
  serve(all[0], [&] { return must(all[0].poll()), received.poll().has_value(); });
  CHECK(part_of(into, 0) == part_of(from, 0));
  CHECK(all[0].deadline() == (clock::time_point::max)());
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
  std::vector<group> all = connect_groups(group_size, [&] {
    return prepare_group(bed.domain.build_channel(), group_size, pool, {.receives = 8});
  });
  buffer<> from(bed.domain, pattern(part_size, 7));
  for (std::uint32_t i = 1; i < group_size; ++i)
    must(all[i][0].send({.elements = from.gather(), .immediate = immediate_data(i)}));
  std::vector<bool> seen(group_size);
  for (std::uint32_t i = 1; i < group_size;) {
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
  buffer<> from(bed.domain, pattern(part_size, 8));
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
  CHECK(stopped == group_size);
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
