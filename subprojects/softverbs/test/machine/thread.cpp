// SPDX-License-Identifier: Apache-2.0
#include "catch.hpp"
#include "support/fabric.hpp"

#include <array>
#include <atomic>
#include <cerrno>
#include <thread>
#include <vector>

namespace {

constexpr int threads = 4;
constexpr std::uint64_t rounds = 500;

/// Posts writes, and polls whenever the send queue is full, and at the end. Returns the number of
/// completions that it polled.
std::uint64_t write_and_poll(endpoint& end, const address& there, std::atomic<bool>& well) {
  std::uint64_t taken = 0;
  const auto poll = [&] {
    std::array<ibv_wc, 4> some{};
    const int count = ibv_poll_cq(end.queue, static_cast<int>(some.size()), some.data());
    for (int at = 0; at < count; ++at)
      if (some[static_cast<std::size_t>(at)].status != IBV_WC_SUCCESS) well = false;
    if (count < 0) well = false;
    taken += static_cast<std::uint64_t>(count);
  };
  for (std::uint64_t id = 0; id < rounds; ++id)
    while (well) {
      const int error = end.write(id, {end.piece(0, 64)}, there);
      if (error == 0) break;
      if (error != ENOMEM) well = false;
      poll();
    }
  poll();
  return taken;
}

}  // namespace

TEST_CASE("threads may share a queue pair and its completion queue") {
  connection link;
  const address there = link.right.here();
  std::atomic<bool> well{true};
  std::atomic<std::uint64_t> taken{0};
  std::vector<std::thread> running;
  for (int at = 0; at < threads; ++at)
    running.emplace_back([&] { taken += write_and_poll(link.left, there, well); });
  for (std::thread& each : running) each.join();
  CHECK(well);
  for (std::uint64_t left = taken; left < threads * rounds; ++left)
    REQUIRE(link.left.wait().status == IBV_WC_SUCCESS);
  CHECK(link.left.quiet());
}

TEST_CASE("threads may have their own queue pairs that write to each other") {
  std::array<connection, threads> links;
  std::atomic<bool> well{true};
  std::vector<std::thread> running;
  for (connection& link : links)
    for (const bool there : {true, false})
      running.emplace_back([&, there] {
        endpoint& end = there ? link.left : link.right;
        const address other = (there ? link.right : link.left).here();
        for (std::uint64_t id = 0; id < rounds && well; ++id) {
          const std::size_t offset = there ? 0 : 4096;
          if (end.write(id, {end.piece(offset, 4096)}, other, offset) != 0) well = false;
          if (well && end.wait().wr_id != id) well = false;
        }
      });
  for (std::thread& each : running) each.join();
  CHECK(well);
}

TEST_CASE("a queue pair may be reset while another thread posts to it") {
  connection link;
  const address there = link.right.here();
  std::atomic<bool> done{false};
  std::atomic<bool> well{true};
  std::thread poster([&] {
    while (!done) {
      const int error = link.left.write(1, {link.left.piece(0, 4096)}, there);
      if (error != 0 && error != EINVAL && error != ENOMEM) well = false;
    }
  });
  std::thread poller([&] {
    ibv_wc completion{};
    while (!done)
      if (ibv_poll_cq(link.left.queue, 1, &completion) < 0) well = false;
  });
  for (int round = 0; round < 200; ++round) {
    CHECK(link.left.change(IBV_QPS_RESET) == 0);
    CHECK(link.right.change(IBV_QPS_RESET) == 0);
    link.right.connect(link.left.here());
    link.left.connect(there);
  }
  done = true;
  poster.join();
  poller.join();
  CHECK(well);
  // The reset removes the remaining completions of the previous round.
  CHECK(link.left.change(IBV_QPS_RESET) == 0);
  CHECK(link.right.change(IBV_QPS_RESET) == 0);
  link.right.connect(link.left.here());
  link.left.connect(there);
  for (std::uint64_t id = 0; id < 2 * link.left.granted.max_send_wr; ++id) {
    REQUIRE(link.left.write(id, {link.left.piece(0, 8)}, there) == 0);
    const ibv_wc completion = link.left.wait();
    CHECK(completion.status == IBV_WC_SUCCESS);
    CHECK(completion.wr_id == id);
  }
}

TEST_CASE("destroying a queue pair removes only its own completions from a completion queue") {
  const options few{.cq_entries = 15, .send_requests = 16, .channel = true};
  endpoint host(few);
  options guest = few;
  guest.host = &host;
  endpoint stays(guest);
  REQUIRE(host.initialize() == 0);
  REQUIRE(stays.initialize() == 0);
  // In the queue, the flushed receives of two queue pairs alternate.
  for (int round = 0; round < 3; ++round) {
    endpoint goes(guest);
    REQUIRE(goes.initialize() == 0);
    if (round == 0) REQUIRE(stays.change(IBV_QPS_ERR) == 0);
    REQUIRE(goes.change(IBV_QPS_ERR) == 0);
    const auto flush = [&host](endpoint& end, std::uint64_t id) {
      REQUIRE(ibv_req_notify_cq(host.queue, 0) == 0);
      REQUIRE(end.post_receive(id, {}) == 0);
      // Wait for each completion before posting the next receive, so that the order is fixed.
      REQUIRE(is_readable(host.channel->fd, patience));
      ibv_cq* const queue = take_event_of(host.channel);
      ibv_ack_cq_events(queue, 1);
    };
    for (std::uint64_t id = 0; id < 7; ++id) {
      flush(goes, 100 + id);
      flush(stays, id);
    }
    ibv_qp* gone = goes.pair;
    goes.pair = nullptr;
    REQUIRE(ibv_destroy_qp(gone) == 0);
    // The completion queue has room again for completions of the queue pair that remains.
    for (std::uint64_t id = 7; id < 15; ++id) flush(stays, id);
    for (std::uint64_t id = 0; id < 15; ++id) {
      const ibv_wc completion = host.wait();
      CHECK(completion.wr_id == id);
      CHECK(completion.qp_num == stays.pair->qp_num);
    }
    CHECK(host.quiet());
  }
}
