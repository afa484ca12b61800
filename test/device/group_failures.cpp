// SPDX-License-Identifier: Apache-2.0
// Requests to several peers of a group, some of which fail or are refused.

#include "channels.hpp"
#include "failing_device.hpp"
#include "groups.hpp"

#include <array>
#include <chrono>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

using namespace verbspp;
using namespace verbspp::test;

namespace {

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

TEST_CASE_METHOD(members_with_memory,
                 "a peer that fails is reported by number while the others continue") {
  buffer<> from(bed.domain, pattern(part_size, 4));
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
  CHECK(all[0].connected().size() == group_size - 1);
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
  buffer<> from(bed.domain, 2 * part_size);
  const auto part = [&](std::uint32_t peer) -> result<write_operation> {
    VERBSPP_TRY(source, from.region().gather(peer * part_size, part_size));
    return write_operation{.elements = source, .remote = memory[peer].remote()};
  };
  const group_results done = all[0].scatter({0, 1, 2, 3}, part);
  CHECK(done.failed() == 2);
  CHECK(done.error().peer() == 2U);
  CHECK(done[0].result);
  CHECK(done[1].result);
  CHECK(all[0].connected().size() == group_size);
  const auto failed = failure_of(
      all[0].scope([&](group_scope& scope) { return scope.post_scatter({3, 1}, part); }));
  REQUIRE(failed.own());
  CHECK(failed.own()->kind() == error_kind::invalid_input);
}

TEST_CASE("numbers beyond a group's size are refused before anything is posted") {
  const testbed bed;
  std::vector<group> all = connect_groups(bed, 2);
  buffer<> from(bed.domain, part_size);
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

TEST_CASE_METHOD(four_members,
                 "a wait for several peers that times out breaks only the late connections") {
  buffer<> into(bed.domain, group_size * part_size);
  buffer<> from(bed.domain, pattern(part_size, 5));
  const auto received = [&](std::uint32_t peer) {
    return receive_operation{.elements = into.scatter(peer * part_size, part_size)};
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

TEST_CASE("posting to several peers does not wait for room in their queues") {
  const testbed bed;
  std::vector<group> all = connect_groups(bed, 2);
  std::vector<buffer<>> memory = buffers(bed);
  buffer<> from(bed.domain, pattern(part_size, 6));
  const auto place = [&](std::uint32_t peer) { return memory[peer].remote(); };
  // Without the delay, the queue might be emptied as fast as it is filled.
  const failing_device late("send-completion:*=50ms");
  auto posted =
      must(all[0].post_multicast(std::vector<std::uint32_t>(100, 1), from.gather(), place));
  const group_results done = posted.wait(patience);
  CHECK(done.failed() > 0);
  CHECK(done.error().cause().call()->kind() == error_kind::would_block);
}

TEST_CASE_METHOD(four_members,
                 "a group that is assigned to while it posts parts refuses the rest") {
  buffer<> memory(bed.domain, part_size);
  const auto done = all[0].scatter({1, 2, 3}, [&](std::uint32_t peer) {
    if (peer == 1) all[0] = group();
    return send_operation{.elements = memory.gather()};
  });
  REQUIRE(done.size() == 3);
  for (const peer_result& each : done)
    CHECK(failure_of(each.result).message().find("size()") != std::string::npos);
}

TEST_CASE("handles of several peers outlive their group") {
  const testbed bed;
  std::vector<group> all = connect_groups(bed, 2);
  buffer<> into(bed.domain, 2 * part_size);
  auto work = must(all[0].post_gather({0, 1}, [&](std::uint32_t peer) {
    return receive_operation{.elements = into.scatter(peer * part_size, part_size)};
  }));
  all.clear();
  const group_results done = work.wait(patience);
  CHECK(done.failed() == 2);
}
