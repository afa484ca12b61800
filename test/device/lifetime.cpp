// SPDX-License-Identifier: Apache-2.0
#include "transports.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <memory>
#include <optional>

using namespace verbspp;
using namespace verbspp::test;

namespace {

/// A queue pair and the objects that it uses. Each of them can be destroyed separately.
struct parts {
  parts()
      : opened(must(open_device(device_name()))),
        domain(must(protection_domain::allocate(*opened))),
        queue(must(completion_queue::create(*opened, 16))),
        region(must(register_memory<all_rights>(*domain, memory))),
        pair(connect_to_itself(must(build_queue_pair<transport::rc>()
                                        .protection_domain(*domain)
                                        .completion_queue(*queue)
                                        .access(all_rights)
                                        .build()))) {}

  void drop(int which) {
    switch (which) {
      case 0:
        return opened.reset();
      case 1:
        return domain.reset();
      case 2:
        return queue.reset();
      case 3:
        return region.reset();
      default:
        return pair.reset();
    }
  }

  std::array<std::byte, 64> memory{};
  std::optional<context> opened;
  std::optional<protection_domain> domain;
  std::optional<completion_queue> queue;
  std::optional<memory_region<all_rights>> region;
  std::optional<connected> pair;
};

}  // namespace

TEST_CASE("verbs objects can be destroyed in any order") {
  std::array<int, 5> order{0, 1, 2, 3, 4};
  do {
    const release_watch watch;
    parts all;
    for (const int which : order) all.drop(which);
    if (watch.failures() != 0)
      FAIL("order " << order[0] << order[1] << order[2] << order[3] << order[4]);
  } while (std::next_permutation(order.begin(), order.end()));
  SUCCEED();
}

TEST_CASE("a queue pair works after the handles of its parents are destroyed") {
  const release_watch watch;
  parts all;
  all.opened.reset();
  all.domain.reset();
  const completion_queue queue = all.pair->send_completion_queue();
  all.queue.reset();
  must(all.pair->post_receive({.elements = must(all.region->scatter(0, 8))}, {.id = 1}));
  must(all.pair->post_send({.elements = must(all.region->gather(8, 8))}, {.id = 2}));
  for (const work_completion& each : take(queue, 2)) CHECK(each.is_success());
  CHECK(all.pair->protection_domain() == all.region->protection_domain());
  CHECK_NOTHROW(must(all.pair->protection_domain().context().query_device()));
}

TEST_CASE("a completion queue keeps its context open") {
  const release_watch watch;
  const completion_queue queue =
      must(completion_queue::create(must(open_device(device_name())), 8));
  std::vector<work_completion> slots(1);
  CHECK(must(queue.poll(slots)).empty());
  CHECK_NOTHROW(must(queue.context().first_active_port()));
}

TEST_CASE("a prepared queue pair can be destroyed") {
  const testbed bed;
  buffer<> memory(bed.domain, 64);
  {
    prepared pair = must(bed.left().build());
    for (std::uint64_t id = 0; id < 4; ++id)
      must(pair.post_receive({.elements = memory.scatter()}, {.id = id}));
  }
  CHECK(count_within_a_moment(bed.left_queue) == 0);
  CHECK_NOTHROW(must(std::move(memory.region()).deregister()));
}

TEST_CASE("assigning to a queue pair destroys the previous one") {
  const testbed bed;
  prepared first = must(bed.left().build());
  prepared second = must(bed.left().build());
  const queue_pair_number number = second.number();
  first = std::move(second);
  CHECK(first.number() == number);
  CHECK(must(first.query_state()) == queue_pair_state::init);
}

TEST_CASE("assigning to a queue pair ends the receives of the previous one at once") {
  const testbed bed;
  buffer<> inbox(bed.domain, 64);
  buffer<> outbox(bed.domain, pattern(16, 1));
  const std::vector<std::byte> untouched = inbox.bytes();
  auto former = prepared_of<transport::ud>(bed, bed.left_queue);
  auto replacement = prepared_of<transport::ud>(bed, bed.left_queue);
  auto sender = must(prepared_of<transport::ud>(bed, bed.right_queue).activate());
  const endpoint gone = former.endpoint();
  auto receiver = must(std::move(former).activate());
  auto active_replacement = must(std::move(replacement).activate());
  must(receiver.post_receive({.elements = inbox.scatter()}, {.id = 1}));

  receiver = std::move(active_replacement);
  // Sends a datagram and waits for a moment, because no completion tells whether the datagram has
  // arrived.
  const sender_to<transport::ud> destination(sender, gone);
  const gather_element from = outbox.gather();
  destination.send(sender, 2, from);
  take_success(bed.right_queue, 2);
  CHECK(count_within_a_moment(bed.left_queue) == 0);
  CHECK(inbox.bytes() == untouched);
  // The previous queue pair no longer accesses the memory, so the memory can be deregistered.
  CHECK_NOTHROW(must(std::move(inbox.region()).deregister()));
}

TEST_CASE("a peer loses its connection when another queue pair is assigned to the connected one") {
  const testbed bed;
  buffer<> inbox(bed.domain, 64);
  buffer<> outbox(bed.domain, pattern(16, 1));
  const std::vector<std::byte> untouched = inbox.bytes();
  prepared left =
      must(bed.left().ack_timeout(std::chrono::milliseconds(8)).ack_retry_count(1).build());
  auto pair = connect(std::move(left), must(bed.right().build()));
  must(pair.right.post_receive({.elements = inbox.scatter()}, {.id = 1}));
  auto fresh = connect_to_itself(must(bed.right().build()));
  const queue_pair_number number = fresh.number();

  pair.right = std::move(fresh);
  CHECK(pair.right.number() == number);
  must(pair.left.post_send({.elements = outbox.gather()}, {.id = 2}));
  CHECK(status_of(take_one(bed.left_queue)) == work_status::retry_exceeded);
  CHECK(count_within_a_moment(bed.right_queue) == 0);
  CHECK(inbox.bytes() == untouched);
}

TEST_CASE("assigning a queue pair to itself changes nothing") {
  const testbed bed;
  prepared pair = must(bed.left().build());
  const endpoint before = pair.endpoint();
  prepared& itself = pair;
  pair = std::move(itself);
  CHECK(pair.endpoint() == before);
  CHECK(pair.protection_domain() == bed.domain);
  CHECK(must(pair.query_state()) == queue_pair_state::init);
  const connected works = connect_to_itself(std::move(pair));
  CHECK(works.number() == before.number);
}

TEST_CASE("a queue pair can be assigned to repeatedly and after it was moved from") {
  const release_watch watch;
  const testbed bed;
  prepared pair = must(bed.left().build());
  const prepared taken = std::move(pair);
  pair = must(bed.left().build());
  const queue_pair_number first = pair.number();
  CHECK(first != taken.number());
  pair = must(bed.left().build());
  CHECK(pair.number() != first);
  CHECK(must(pair.query_state()) == queue_pair_state::init);
  CHECK(must(taken.query_state()) == queue_pair_state::init);
}

TEST_CASE("a moved-from queue pair has no number, endpoint or capacities") {
  const testbed bed;
  const auto check = [](auto pair) {
    using queue_pair = decltype(pair);
    // NOLINTBEGIN(bugprone-use-after-move)
    const auto empty = [](const queue_pair& moved_from) {
      CHECK(moved_from.number() == queue_pair_number(0));
      CHECK(moved_from.native_handle() == nullptr);
      CHECK(moved_from.endpoint() == endpoint{});
      CHECK(moved_from.capacities() == queue_pair_capacities{});
    };
    queue_pair constructed = std::move(pair);
    empty(pair);
    CHECK(constructed.number() != queue_pair_number(0));
    pair = std::move(constructed);
    empty(constructed);
    CHECK(pair.endpoint().number == pair.number());
    CHECK(pair.capacities().max_send_work_requests >= 16);
    // NOLINTEND(bugprone-use-after-move)
  };
  check(prepared_of<transport::rc>(bed, bed.left_queue));
  check(must(prepared_of<transport::ud>(bed, bed.left_queue).activate()));
}

TEST_CASE("values returned by a temporary queue pair outlive it") {
  const testbed bed;
  const endpoint& end = must(bed.left().send_psn(0x123456).build()).endpoint();
  CHECK(end.send_psn == packet_sequence_number(0x123456));
  const queue_pair_capacities& capacities = must(bed.left().build()).capacities();
  CHECK(capacities.max_send_work_requests >= 16);
  CHECK(must(bed.left().build()).protection_domain() == bed.domain);
  const completion_queue& send_queue = must(bed.left().build()).send_completion_queue();
  CHECK(send_queue == bed.left_queue);
  const completion_queue& receive_queue = must(bed.left().build()).receive_completion_queue();
  CHECK(receive_queue == bed.left_queue);
  const ibv_qp_attr& attributes = must(must(bed.left().build()).query()).attributes();
  CHECK(attributes.qp_state == IBV_QPS_INIT);
  const ibv_qp_init_attr& initial = must(must(bed.left().build()).query()).initial();
  CHECK(initial.qp_type == IBV_QPT_RC);
}

TEST_CASE("a queue pair with requests in flight can be destroyed before its memory") {
  const testbed bed;
  constexpr std::size_t size = std::size_t{1} << 18;
  for (int round = 0; round < 10; ++round) {
    auto near = std::make_unique<buffer<>>(bed.domain, size);
    auto far = std::make_unique<buffer<>>(bed.domain, size);
    {
      auto [left, right] = connect(bed);
      for (std::uint64_t id = 0; id < 4; ++id) {
        must(left.post_receive({.elements = near->scatter()}, {.id = id}));
        must(right.post_receive({.elements = far->scatter()}, {.id = id}));
        must(left.post_send({.elements = near->gather()}, {.id = id}));
        must(left.post_write({.elements = near->gather(), .remote = far->remote()}, {.id = id}));
        must(left.post_read({.elements = near->scatter(), .remote = far->remote()}, {.id = id}));
        must(right.post_write({.elements = far->gather(), .remote = near->remote()}, {.id = id}));
      }
      // Polls a different number of times in each round, so that the queue pairs are destroyed at
      // different points.
      std::array<work_completion, 4> slots;
      for (int i = 0; i < 3 * round; ++i) static_cast<void>(must(bed.left_queue.poll(slots)));
    }
    // If softverbs were still using the memory, a sanitizer would report it.
    near.reset();
    far.reset();
    // Removes the completions of finished requests, so that the queues do not overflow.
    std::array<work_completion, 16> slots;
    while (!must(bed.left_queue.poll(slots)).empty()) {
    }
    while (!must(bed.right_queue.poll(slots)).empty()) {
    }
  }
  SUCCEED();
}

TEST_CASE_METHOD(two_queue_pairs, "memory can be released while a peer still writes to it") {
  constexpr std::size_t size = std::size_t{1} << 20;
  buffer<> near(bed.domain, size);
  auto far = std::make_unique<buffer<>>(bed.domain, size);
  const auto remote = far->remote();
  for (std::uint64_t id = 0; id < 8; ++id)
    must(left.post_write({.elements = near.gather(), .remote = remote}, {.id = id}));
  must(std::move(far->region()).deregister());
  far.reset();
  // If the deregistration makes the device refuse a write, the writes after it are flushed.
  bool failed = false;
  for (const work_completion& each : take(bed.left_queue, 8)) {
    const work_status status = status_of(each);
    if (failed) {
      CHECK(status == work_status::flushed);
    } else if (status != work_status::success) {
      failed = true;
      CHECK(status == work_status::remote_access_error);
    }
  }
}

TEST_CASE("many queue pairs can be created and destroyed one after another") {
  const testbed bed;
  for (std::uint32_t i = 0; i < repetitions(300); ++i) {
    const prepared pair = must(bed.left().build());
    if (must(pair.query_state()) != queue_pair_state::init) FAIL("round " << i);
  }
  buffer<> memory(bed.domain, 64);
  for (std::uint64_t i = 0; i < repetitions(100); ++i) {
    auto [left, right] = connect(bed);
    must(right.post_receive({.elements = memory.scatter(0, 32)}, {.id = i}));
    must(left.post_send({.elements = memory.gather(32, 32)}, {.id = i}));
    take_success(bed.left_queue, i);
    take_success(bed.right_queue, i);
  }
  SUCCEED();
}

TEST_CASE("many queue pairs can exist at once") {
  const testbed bed;
  std::vector<connected_pair> pairs;
  for (int i = 0; i < 50; ++i) pairs.push_back(connect(bed));
  buffer<> memory(bed.domain, 64);
  for (std::uint64_t i = 0; i < pairs.size(); ++i) {
    must(pairs[i].right.post_receive({.elements = memory.scatter(0, 32)}, {.id = i}));
    must(pairs[i].left.post_send({.elements = memory.gather(32, 32)}, {.id = i}));
  }
  for (const work_completion& each : take(bed.left_queue, pairs.size())) {
    REQUIRE(each.is_success());
    CHECK(each.queue_pair_number() == pairs[each.wr_id()].left.number());
  }
  for (const work_completion& each : take(bed.right_queue, pairs.size())) {
    REQUIRE(each.is_success());
    CHECK(each.queue_pair_number() == pairs[each.wr_id()].right.number());
  }
}
