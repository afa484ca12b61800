// SPDX-License-Identifier: Apache-2.0
#include "../assertions.hpp"
#include "device.hpp"
#include "failing_verb.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>

using namespace verbspp;
using namespace verbspp::test;

namespace {

/// Two connected ends. The left one posts batches through the interface `Posting`.
template <posting_interface Posting>
struct batch_pair {
  connected_queue_pair<transport::rc, receive_queue_kind::own, Posting> left;
  connected right;
};

template <posting_interface Posting>
batch_pair<Posting> connect_with(const testbed& bed) {
  auto left = [&] {
    if constexpr (Posting == posting_interface::extended)
      return must(bed.left().max_inline_data(16).extended_posting().build());
    else
      return must(bed.left().max_inline_data(16).build());
  }();
  prepared right = must(bed.right().build());
  const endpoint address = left.endpoint();
  auto connected_left = must(std::move(left).handshake(right.endpoint()));
  return {std::move(connected_left), must(std::move(right).handshake(address))};
}

/// Calls `test` with a pair for each posting interface that the device supports.
template <class Test>
void with_each_interface(Test test) {
  const testbed bed;
  {
    INFO("linked lists");
    test(bed, connect_with<posting_interface::standard>(bed));
  }
  INFO("the extended interface");
  static_cast<void>(supported(bed.left().extended_posting().build(), extended_posting));
  test(bed, connect_with<posting_interface::extended>(bed));
}

}  // namespace

TEST_CASE("both posting interfaces post the requests of a batch in order") {
  with_each_interface([](const testbed& bed, auto pair) {
    buffer<> source(bed.domain, pattern(64, 1));
    buffer<> target(bed.domain, 64);
    buffer<> fetched(bed.domain, 16);
    buffer<> inbox(bed.domain, 64);
    must(pair.right.template post_receive_batch<4>([&](auto& batch) {
      for (std::uint64_t id = 10; id < 13; ++id)
        batch.post_receive({.elements = inbox.scatter(16 * (id - 10), 16)}, {.id = id});
    }));
    must(pair.left.template post_batch<8>([&](auto& batch) {
      batch.post_write({.elements = source.gather(0, 48), .remote = target.remote()}, {.id = 1});
      batch.post_read({.elements = fetched.scatter(), .remote = target.remote()}, {.id = 2});
      batch.post_send({.elements = source.gather(0, 16), .fenced = true}, {.id = 3});
      batch.post_send({.elements = source.gather(16, 16), .immediate = immediate_data(0x1234)},
                      {.id = 4, .signaled = false});
      batch.post_write({.remote = target.remote(), .immediate = immediate_data(7)}, {.id = 5});
    }));
    for (const std::uint64_t id : {1U, 2U, 3U, 5U}) take_success(bed.left_queue, id);
    CHECK(target.front(48) == source.front(48));
    CHECK(fetched.bytes() == source.front(16));
    CHECK_FALSE(take_success(bed.right_queue, 10).immediate());
    CHECK(take_success(bed.right_queue, 11).immediate() == immediate_data(0x1234));
    const auto last = take_success(bed.right_queue, 12);
    CHECK(last.operation() == work_operation::receive_of_rdma_write);
    CHECK(last.immediate() == immediate_data(7));
    CHECK(inbox.front(32) == source.front(32));
  });
}

TEST_CASE("an empty batch posts nothing") {
  with_each_interface([](const testbed& bed, auto pair) {
    must(pair.left.template post_batch<4>([](auto&) {}));
    must(pair.left.template post_receive_batch<4>([](auto&) {}));
    CHECK(count_within_a_moment(bed.left_queue) == 0);
  });
}

TEST_CASE("a batch with a request that cannot be posted posts nothing and returns the reason") {
  with_each_interface([](const testbed& bed, auto pair) {
    buffer<> source(bed.domain, 64);
    buffer<> target(bed.domain, 32);
    const batch_error e = failure_of(pair.left.template post_batch<4>([&](auto& batch) {
      batch.post_write({.elements = source.gather(0, 32), .remote = target.remote()}, {.id = 1});
      batch.post_write({.elements = source.gather(), .remote = target.remote()}, {.id = 2});
      batch.post_write({.elements = source.gather(0, 32), .remote = target.remote()}, {.id = 3});
    }));
    CHECK(e.accepted() == 0);
    CHECK(e.kind() == error_kind::invalid_input);
    CHECK_THAT(e.message(), Catch::Contains("the limit is the length of the remote memory"));
    CHECK(count_within_a_moment(bed.left_queue) == 0);
    // The queue pair is still usable.
    must(pair.left.post_write({.elements = source.gather(0, 8), .remote = target.remote()},
                              {.id = 4}));
    take_success(bed.left_queue, 4);
  });
}

TEST_CASE("a batch longer than its storage is refused as a whole") {
  const testbed bed;
  auto pair = connect_with<posting_interface::standard>(bed);
  buffer<> memory(bed.domain, 64);
  const batch_error requests = failure_of(pair.left.template post_batch<2>([&](auto& batch) {
    for (int i = 0; i < 3; ++i) batch.post_send({});
  }));
  CHECK_THAT(requests.message(), Catch::Contains("requests of the batch"));
  const std::array two{memory.gather(0, 8), memory.gather(8, 8)};
  const batch_error elements = failure_of(pair.left.template post_batch<2, 3>([&](auto& batch) {
    batch.post_send({.elements = two});
    batch.post_send({.elements = two});
  }));
  CHECK_THAT(elements.message(), Catch::Contains("elements in the batch"));
  const batch_error receives =
      failure_of(pair.left.template post_receive_batch<1>([&](auto& batch) {
        batch.post_receive({.elements = memory.scatter()});
        batch.post_receive({.elements = memory.scatter()});
      }));
  CHECK_THAT(receives.message(), Catch::Contains("requests of the batch"));
  CHECK(count_within_a_moment(bed.left_queue) == 0);
}

TEST_CASE("the requests of a batch may divide its elements in any way") {
  const testbed bed;
  auto pair = connect_with<posting_interface::standard>(bed);
  buffer<> source(bed.domain, pattern(64, 4));
  buffer<> target(bed.domain, 64);
  const std::array three{source.gather(0, 8), source.gather(8, 8), source.gather(16, 8)};
  const std::array two{source.gather(24, 4), source.gather(28, 4)};
  const auto slice = [&](std::uint64_t offset, std::uint64_t length) {
    return target.remote().slice_unchecked(offset, length);
  };
  // The only request in the first batch has all three elements. The three requests in the second
  // batch have two elements, none, and one.
  must(pair.left.post_batch<3>([&](auto& batch) {
    batch.post_write({.elements = three, .remote = slice(0, 24)}, {.id = 1});
  }));
  must(pair.left.post_batch<4, 3>([&](auto& batch) {
    batch.post_write({.elements = two, .remote = slice(24, 8)}, {.id = 2});
    batch.post_write({.remote = slice(0, 0)}, {.id = 3});
    batch.post_write({.elements = source.gather(32, 32), .remote = slice(32, 32)}, {.id = 4});
  }));
  for (std::uint64_t id = 1; id <= 4; ++id) take_success(bed.left_queue, id);
  CHECK(target.bytes() == source.bytes());
  for (const std::size_t too_many : {3U, 4U}) {
    const batch_error e = failure_of(pair.left.post_batch<4, 2>([&](auto& batch) {
      for (std::size_t i = 0; i < too_many; ++i)
        batch.post_write({.elements = source.gather(0, 8), .remote = slice(0, 8)});
    }));
    CHECK_THAT(e.message(), Catch::Contains("elements in the batch: 3 is above the limit of 2"));
  }
}

TEST_CASE("a batch that does not fit in the queue reports how many of its requests were posted") {
  const testbed bed;
  connected_pair pair = connect(must(bed.left().max_send_work_requests(4).build()),
                                must(bed.right().max_receive_work_requests(64).build()));
  const std::uint32_t room = pair.left.capacities().max_send_work_requests;
  REQUIRE(room < 64);
  buffer<> target(bed.domain, 8);
  // No thread polls while the batch is being built, so no place in the queue becomes free.
  const batch_error e = failure_of(pair.left.template post_batch<64>([&](auto& batch) {
    for (std::uint64_t id = 0; id < 64; ++id)
      batch.post_write({.remote = target.remote()}, {.id = id});
  }));
  INFO(e.message());
  CHECK(e.kind() == error_kind::would_block);
  CHECK(e.accepted() >= 4);
  CHECK(e.accepted() < 64);
  for (std::uint64_t id = 0; id < e.accepted(); ++id) take_success(bed.left_queue, id);
  CHECK(count_within_a_moment(bed.left_queue) == 0);
}

TEST_CASE("an exception during a batch posts nothing") {
  with_each_interface([](const testbed& bed, auto pair) {
    CHECK_THROWS_AS(static_cast<void>(pair.left.template post_batch<4>([](auto& batch) {
                      batch.post_send({}, {.id = 1});
                      throw std::runtime_error("fill");
                    })),
                    std::runtime_error);
    CHECK(count_within_a_moment(bed.left_queue) == 0);
    buffer<> target(bed.domain, 8);
    must(pair.left.template post_batch<1>(
        [&](auto& batch) { batch.post_write({.remote = target.remote()}, {.id = 2}); }));
    take_success(bed.left_queue, 2);
  });
}

TEST_CASE("both posting interfaces can post inline data in a batch") {
  with_each_interface([](const testbed& bed, auto pair) {
    REQUIRE(pair.left.capacities().max_inline_data >= 16);
    buffer<> inbox(bed.domain, 32);
    const std::vector<std::byte> unregistered = pattern(16, 6);
    must(pair.right.post_receive({.elements = inbox.scatter(0, 16)}, {.id = 1}));
    must(pair.left.template post_batch<2>([&](auto& batch) {
      batch.post_send({.elements = inline_payload(unregistered)}, {.id = 2});
      batch.post_write(
          {.elements = inline_payload(unregistered), .remote = must(inbox.remote().slice(16, 16))},
          {.id = 3});
    }));
    take_success(bed.left_queue, 2);
    take_success(bed.left_queue, 3);
    CHECK(take_success(bed.right_queue, 1).byte_count() == 16U);
    CHECK(inbox.front(16) == unregistered);
    CHECK(std::equal(unregistered.begin(), unregistered.end(), inbox.bytes().begin() + 16));
  });
}

TEST_CASE("inline bytes are copied when they are added to a batch and may be freed after that") {
  with_each_interface([](const testbed& bed, auto pair) {
    buffer<> target(bed.domain, 48);
    const auto slice = [&](std::size_t i) { return must(target.remote().slice(16 * i, 16)); };
    must(pair.left.template post_batch<3>([&](auto& batch) {
      std::array<std::byte, 16> message;
      for (std::size_t i = 0; i < 3; ++i) {
        message.fill(static_cast<std::byte>(0xa0 + i));
        batch.post_write({.elements = inline_payload(message), .remote = slice(i)}, {.id = i});
      }
      message.fill(std::byte{0xff});
    }));
    for (const std::uint64_t id : {0U, 1U, 2U}) take_success(bed.left_queue, id);
    for (std::size_t i = 0; i < 48; ++i)
      CHECK(target.bytes()[i] == static_cast<std::byte>(0xa0 + i / 16));
  });
}

TEST_CASE("a queue pair that is moved or destroyed during its batch fails an assertion") {
  with_each_interface([](const testbed& /*bed*/, auto pair) {
    using end = decltype(pair.left);
    std::optional<end> left(std::move(pair.left));
    const bool is_moved = GENERATE(true, false);
    const auto told = assertion_in([&] {
      static_cast<void>(left->template post_batch<1>([&](auto& /*batch*/) {
        if (is_moved)
          const end other(std::move(*left));
        else
          left.reset();
      }));
    });
    CHECK_THAT(told, Catch::Contains("a queue pair was moved or destroyed in"));
  });
}

TEST_CASE("posting during an extended batch of the same queue pair fails an assertion") {
  const testbed bed;
  static_cast<void>(supported(bed.left().extended_posting().build(), extended_posting));
  auto pair = connect_with<posting_interface::extended>(bed);
  const auto told = assertion_in([&] {
    static_cast<void>(pair.left.post_batch<1>(
        [&](auto& /*batch*/) { static_cast<void>(pair.left.post_send({}, {.id = 1})); }));
  });
  CHECK_THAT(told, Catch::Contains("was posted to the queue pair from the function"));
  const remote_memory<access::remote_write> nowhere(0, 8, remote_key(std::uint32_t{0}));
  CHECK_THAT(assertion_in([&] {
               static_cast<void>(pair.left.post_batch<1>([&](auto& /*batch*/) {
                 static_cast<void>(pair.left.post_atomic_write({.value = 1, .remote = nowhere}));
               }));
             }),
             Catch::Contains("was posted to the queue pair from the function"));
  // Posting after a batch is allowed.
  buffer<> target(bed.domain, 8);
  const auto remote = target.remote();
  must(pair.left.post_batch<1>(
      [&](auto& batch) { batch.post_write({.remote = remote}, {.id = 2}); }));
  must(pair.left.post_write({.remote = remote}, {.id = 3}));
  for (const std::uint64_t id : {2U, 3U}) take_success(bed.left_queue, id);
}

TEST_CASE("a batch with more inline bytes than it has room for is refused") {
  const testbed bed;
  connected_pair pair =
      connect(must(bed.left().max_inline_data(16).build()), must(bed.right().build()));
  buffer<> target(bed.domain, 32);
  const std::vector<std::byte> unregistered = pattern(16, 8);
  const auto post = [&](auto& batch) {
    for (const std::uint64_t id : {1U, 2U})
      batch.post_write({.elements = inline_payload(unregistered),
                        .remote = must(target.remote().slice(16 * (id - 1), 16))},
                       {.id = id});
  };
  must(pair.left.post_batch<2, 2, 32>(post));
  for (const std::uint64_t id : {1U, 2U}) take_success(bed.left_queue, id);
  CHECK(target.front(16) == unregistered);
  const batch_error e = failure_of(pair.left.post_batch<2, 2, 31>(post));
  CHECK(e.accepted() == 0);
  CHECK_THAT(e.message(),
             Catch::Contains("inline bytes in the batch: 32 is above the limit of 31"));
  CHECK(count_within_a_moment(bed.left_queue) == 0);
}

TEST_CASE("a buffer that is sent inline may change as soon as the request is posted") {
  const testbed bed;
  connected_pair pair =
      connect(must(bed.left().max_inline_data(32).build()), must(bed.right().build()));
  REQUIRE(pair.left.capacities().max_inline_data >= 32);
  buffer<> inbox(bed.domain, 64);
  must(pair.right.post_receive({.elements = inbox.scatter()}, {.id = 1}));
  std::vector<std::byte> unregistered = pattern(32, 5);
  must(pair.left.post_send({.elements = inline_payload(unregistered)}, {.id = 2}));
  std::memset(unregistered.data(), 0, unregistered.size());
  take_success(bed.left_queue, 2);
  CHECK(take_success(bed.right_queue, 1).byte_count() == 32U);
  CHECK(inbox.front(32) == pattern(32, 5));
}

TEST_CASE("a datagram queue pair sends batches") {
  const testbed bed;
  const auto builder = build_queue_pair<transport::ud>().protection_domain(bed.domain).qkey(0x1234);
  auto receiver = must(must(builder.completion_queue(bed.right_queue).build()).activate());
  const auto send_from = [&](auto prepared) {
    auto sender = must(std::move(prepared).activate());
    const address_handle way = must(sender.address_of(receiver.endpoint()));
    const datagram_destination to = way.destination(receiver.number(), 0x1234);
    buffer<> source(bed.domain, pattern(32, 9));
    buffer<> inbox(bed.domain, 2 * 128);
    must(receiver.template post_receive_batch<2>([&](auto& batch) {
      batch.post_receive({.elements = inbox.scatter(0, 128)}, {.id = 1});
      batch.post_receive({.elements = inbox.scatter(128, 128)}, {.id = 2});
    }));
    const batch_error no_room = failure_of(receiver.template post_receive_batch<2>(
        [&](auto& batch) { batch.post_receive({.elements = inbox.scatter(0, 39)}, {.id = 3}); }));
    CHECK_THAT(no_room.message(), Catch::Contains("40 or more"));
    must(sender.template post_batch<2>([&](auto& batch) {
      batch.post_send({.elements = source.gather(0, 16), .to = to}, {.id = 4});
      batch.post_send({.elements = source.gather(16, 16), .to = to}, {.id = 5});
    }));
    take_success(bed.left_queue, 4);
    take_success(bed.left_queue, 5);
    for (const std::size_t i : {0U, 1U}) {
      const auto datagram =
          received_datagram::from(take_one(bed.right_queue), inbox.content().subspan(128 * i, 128));
      REQUIRE(datagram.has_value());
      const auto expected = std::span(source.bytes()).subspan(16 * i, 16);
      CHECK(std::ranges::equal(datagram.value().payload(), expected));
    }
  };
  send_from(must(builder.completion_queue(bed.left_queue).build()));
  const auto extended = builder.completion_queue(bed.left_queue).extended_posting();
  if (auto built = extended.build(); built.has_value())
    send_from(std::move(built).assume_value());
  else
    CHECK(built.error() == error_kind::not_supported);
}

TEST_CASE(
    "the error for a device without the extended posting interface suggests the standard one") {
  const testbed bed;
  const failing_device without("ibv_create_qp_ex=EOPNOTSUPP");
  const error e = failure_of(bed.left().extended_posting().build());
  CHECK(e.kind() == error_kind::not_supported);
  CHECK(e.native_errno() == EOPNOTSUPP);
  CHECK_THAT(e.message(), Catch::Contains("leave extended_posting out"));
  must(bed.left().build());
}

TEST_CASE("an operation that a device's extended interface lacks is refused") {
  const testbed bed;
  auto pair = connect_to_itself(supported(bed.left().extended_posting().build(), extended_posting));
  buffer<> memory(bed.domain, 64);
  buffer<access::local_write | access::remote_atomic> counter(bed.domain, 8);
  const remote_word word = must(remote_word::at(counter.remote()));
  const auto into = memory.scatter(8, 8);
  ibv_qp_ex& calls = *ibv_qp_to_qp_ex(pair.native_handle());
  const auto is_refused = [&](auto& call, auto add) {
    const auto before = std::exchange(call, nullptr);
    const auto outcome = pair.post_batch<2>([&](auto& batch) {
      batch.post_send({.elements = memory.gather(0, 8)});
      add(batch);
    });
    call = before;
    const batch_error e = failure_of(outcome);
    CHECK(e.kind() == error_kind::not_supported);
    CHECK(e.accepted() == 0);
    CHECK_THAT(e.message(), Catch::Contains("this queue pair does not support this operation"));
  };
  is_refused(calls.wr_atomic_cmp_swp,
             [&](auto& batch) { batch.post_compare_and_swap({.result = into, .remote = word}); });
  is_refused(calls.wr_atomic_fetch_add,
             [&](auto& batch) { batch.post_fetch_and_add({.result = into, .remote = word}); });
  is_refused(calls.wr_send_inv,
             [&](auto& batch) { batch.post_send_with_invalidate({.rkey = remote_key(1U)}); });
  is_refused(calls.wr_local_inv,
             [&](auto& batch) { batch.post_local_invalidate({.rkey = remote_key(1U)}); });
  CHECK(count_within_a_moment(bed.left_queue) == 0);
}
