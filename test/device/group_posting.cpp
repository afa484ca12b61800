// SPDX-License-Identifier: Apache-2.0
// Requests that a group posts to several peers, and scopes of groups.

#include "groups.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

using namespace verbspp;
using namespace verbspp::test;

namespace {

/// Posts a receive at each member for a message from member `from`. Returns a handle for each
/// receive, indexed by the member that receives.
[[nodiscard]] std::vector<pending<>> receive_from(std::vector<group>& all, std::uint32_t from,
                                                  std::vector<buffer<>>& into) {
  std::vector<pending<>> receives;
  for (std::uint32_t i = 0; i < all.size(); ++i)
    receives.push_back(
        must(all[i][from].post_receive({.elements = into[i].scatter(0, part_size)})));
  return receives;
}

}  // namespace

TEST_CASE_METHOD(members_with_memory, "scatter sends a different part to each peer") {
  buffer<> from(bed.domain, pattern(group_size * part_size, 2));
  const auto sent = [&](std::uint32_t peer) -> result<send_operation> {
    VERBSPP_TRY(part, from.region().gather(peer * part_size, part_size));
    return send_operation{.elements = part, .immediate = immediate_data(peer)};
  };
  const auto written = [&](std::uint32_t peer) {
    return write_operation{.elements = from.gather(peer * part_size, part_size),
                           .remote = memory[peer].remote()};
  };

  SECTION("by blocking sends") {
    auto receives = receive_from(all, 1, memory);
    const group_results done = all[1].scatter(all[1].all(), sent, patience);
    REQUIRE(done);
    CHECK(done.size() == group_size);
    for (std::uint32_t i = 0; i < group_size; ++i) {
      CHECK(done[i].peer == i);
      CHECK(must(receives[i].wait(patience)).immediate()->value() == i);
    }
  }
  SECTION("by sends without polling") {
    auto receives = receive_from(all, 1, memory);
    auto work = must(all[1].post_scatter({3, 2, 1, 0}, sent));
    CHECK(work.size() == group_size);
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
  for (std::uint32_t i = 0; i < group_size; ++i) CHECK(part_of(memory[i], 0) == part_of(from, i));
}

TEST_CASE_METHOD(four_members, "gather reads or receives a part from each peer") {
  buffer<> into(bed.domain, group_size * part_size);
  std::vector<buffer<>> theirs;
  for (std::uint32_t i = 0; i < group_size; ++i)
    theirs.emplace_back(bed.domain, pattern(part_size, i));

  const auto read = [&](std::uint32_t peer) {
    return read_operation{.elements = into.scatter(peer * part_size, part_size),
                          .remote = theirs[peer].remote()};
  };
  const auto received = [&](std::uint32_t peer) {
    return receive_operation{.elements = into.scatter(peer * part_size, part_size)};
  };

  SECTION("by blocking reads, posted reads, and reads in a scope") {
    REQUIRE(all[2].gather({0, 1}, read));
    REQUIRE(must(all[2].post_gather({2}, read)).wait(patience));
    must(all[2].scope([&](group_scope& scope) { return scope.post_gather({3}, read); }));
  }
  SECTION("by receives") {
    auto work = must(all[2].post_gather(all[2].all(), received));
    CHECK_FALSE(work.poll());
    for (std::uint32_t i = 0; i < group_size; ++i)
      must(all[i][2].send({.elements = theirs[i].gather(), .immediate = immediate_data(i)}));
    const group_results done = work.wait(patience);
    REQUIRE(done);
    for (const peer_result& each : done) {
      CHECK(must(each.result).byte_count() == part_size);
      CHECK(must(each.result).immediate()->value() == each.peer);
    }
  }
  for (std::uint32_t i = 0; i < group_size; ++i) CHECK(part_of(into, i) == theirs[i].bytes());
}

TEST_CASE_METHOD(members_with_memory, "multicast sends the same bytes to each given peer") {
  buffer<> from(bed.domain, pattern(part_size, 3));
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
    for (pending<>& each : receives) CHECK(must(each.wait(patience)).byte_count() == part_size);
  }
  SECTION("by blocking writes") { REQUIRE(all[1].multicast(some, from.gather(), place)); }
  SECTION("by writes without polling") {
    REQUIRE(must(all[1].post_multicast(some, from.gather(), place)).wait());
  }
  SECTION("by writes in a scope") {
    must(all[1].scope(
        [&](group_scope& scope) { return scope.post_multicast(some, from.gather(), place); }));
  }
  for (std::uint32_t i = 0; i < group_size; ++i)
    CHECK((part_of(memory[i], 0) == from.bytes()) == (i == 0 || i == 3));
}

TEST_CASE("blocking calls for several peers wait for room in their queues") {
  const testbed bed;
  std::vector<group> all = connect_groups(bed, 2);
  std::vector<buffer<>> memory = buffers(bed);
  buffer<> from(bed.domain, pattern(part_size, 6));
  const auto place = [&](std::uint32_t peer) { return memory[peer].remote(); };
  const std::vector<std::uint32_t> often(100, 1);
  REQUIRE(all[0].multicast(often, from.gather(), place, patience));
  must(all[0].scope(
      [&](group_scope& scope) { return scope.post_multicast(often, from.gather(), place); },
      patience));
}

TEST_CASE_METHOD(four_members, "a list of peers may change while parts are posted to them") {
  buffer<> memory(bed.domain, part_size);
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
  buffer<> memory(bed.domain, part_size);
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

TEST_CASE_METHOD(four_members,
                 "a manual scope of a group reports the peers whose results were not taken") {
  buffer<> from(bed.domain, pattern(part_size, 1));
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
  CHECK(part_of(into[3], 0) == pattern(part_size, 1));

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
  CHECK(part_of(into[2], 0) == pattern(part_size, 1));
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
