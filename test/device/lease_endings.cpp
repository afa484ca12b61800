// SPDX-License-Identifier: Apache-2.0
/// \file
/// Leases that end although their owner did not revoke them, and leases whose requests are
/// still in flight.
#include "leases.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <stop_token>
#include <utility>
#include <vector>

namespace verbspp::test::leases {

TEST_CASE("a lease ends with its connection and revoking it afterwards succeeds") {
  for_each_way([]<lease_by By>(lease_bed& bed) {
    leased_memory memory(bed.domain, 64);
    std::optional lease = must(bed.owner.lease<both_ways, By>(memory.region(), 0, 64));
    auto bystander = must(bed.owner.lease<both_ways, By>(memory.region(), 0, 8));
    const auto far = must(lease->remote());
    const auto check_over = [&] {
      CHECK_FALSE(lease->is_open());
      CHECK(failure_of(lease->remote()) == error_kind::not_connected);
    };
    SECTION("the connection breaks") {
      static_cast<void>(failure_of(bed.owner.receive({.elements = memory.scatter()}, short_limit)));
      check_over();
    }
    SECTION("the connection is closed") {
      must(bed.owner.close());
      check_over();
    }
    SECTION("the channel is destroyed") {
      bed.owner = channel();
      check_over();
    }
    SECTION("the channel is renewed") {
      const endpoint peer_end = must(bed.peer.renew());
      const endpoint owner_end = must(bed.owner.renew());
      check_over();
      must(bed.owner.handshake(peer_end));
      must(bed.peer.handshake(owner_end));
      check_over();
      if constexpr (By != lease_by::connection) {
        check_closed(bed.peer, bed.domain, memory, far);
      } else {
        auto other = must(bed.owner.lease<both_ways, By>(memory.region(), 0, 64));
        must(lease->revoke());
        CHECK(other.is_open());
        must(write(bed.peer, buffer<>(bed.domain, 64), must(other.remote())));
        return;
      }
    }
    SECTION("the peer is destroyed") {
      bed.peer = channel();
      must(lease->revoke());
      bed.connect();
      return;
    }
    SECTION("the channel is moved") {
      channel moved = std::move(bed.owner);
      CHECK(lease->is_open());
      must(lease->revoke());
      CHECK(moved.is_connected() == (By != lease_by::connection));
      bed.connect();
      return;
    }
    SECTION("the lease is dropped afterwards") {
      bed.owner = channel();
      lease.reset();
      return;
    }
    must(lease->revoke());
    must(bystander.revoke());
    bed.connect();
  });
}

TEST_CASE("a region can be destroyed once its lease has ended") {
  for_each_way([]<lease_by By>(lease_bed& bed) {
    auto owned = must(whole_buffer::allocate(bed.domain, 64));
    auto lease = must(bed.owner.lease<both_ways, By>(owned.region(), 0, 64));
    SECTION("by a revocation") { must(lease.revoke()); }
    SECTION("by closing its channel") { must(bed.owner.close()); }
    SECTION("by destroying its channel") { bed.owner = channel(); }
    SECTION("by a failure of its channel") {
      buffer<> inbox(bed.domain, 8);
      static_cast<void>(failure_of(bed.owner.receive({.elements = inbox.scatter()}, short_limit)));
      must(lease.revoke());
    }
    must(std::move(owned).release());
  });
}

TEST_CASE_METHOD(
    memory_for_windows,
    "a lease that is posted without waiting is open when the next message reaches the peer") {
  const buffer<> source(bed.domain, pattern(64, 10));
  buffer<> outbox(bed.domain, remote_memory<both_ways>::encoded_size);
  buffer<> inbox(bed.domain, outbox.size());
  for (int round = 0; round < 100; ++round) {
    auto received = must(bed.peer.post_receive({.elements = inbox.scatter()}));
    auto lease = must(bed.owner.post_lease<both_ways>(memory.region(), 0, 64));
    const auto encoded = must(lease.remote()).encode();
    std::copy(encoded.begin(), encoded.end(), outbox.content().begin());
    auto sent = must(bed.owner.post_send({.elements = outbox.gather()}));
    must(received.wait(patience));
    must(write(bed.peer, source, must(remote_memory<both_ways>::decode(inbox.bytes()))));
    must(sent.wait(patience));
    if (round % 2 == 0) must(lease.revoke());
  }
  CHECK(memory.bytes() == source.bytes());
}

TEST_CASE_METHOD(memory_for_windows, "a lease can be dropped before the device has executed it") {
  SECTION("it is dropped at once") {
    for (int i = 0; i < 50; ++i)
      static_cast<void>(
          must(bed.owner.post_lease(must(memory.region().window_part<both_ways>(0, 64)))));
    CHECK(bed.owner.is_connected());
  }
  SECTION("there are more leases than places in the queue") {
    std::vector<lease<both_ways>> leases;
    while (leases.size() < 300) {
      auto granted = bed.owner.post_lease<both_ways>(memory.region(), 0, 64);
      if (granted.has_value())
        leases.push_back(std::move(granted).value());
      else
        REQUIRE(granted.error() == error_kind::would_block);
    }
    for (auto& each : leases) must(each.revoke());
    CHECK(bed.owner.is_connected());
  }
  SECTION("its channel was destroyed before") {
    auto lease = must(bed.owner.post_lease<both_ways>(memory.region(), 0, 64));
    auto other = must(bed.owner.post_lease<both_ways>(memory.region(), 0, 64));
    bed.owner = channel();
    must(lease.revoke());
  }
  SECTION("a request before it never completes and soon ends the connection") {
    const buffer<> message(bed.domain, 8);
    auto blocking = block(bed.owner, message);
    const auto start = clock::now();
    static_cast<void>(must(bed.owner.post_lease<both_ways>(memory.region(), 0, 64)));
    // With the channel's default timeout, this would have taken 30 s.
    CHECK(clock::now() - start < patience);
    CHECK(bed.owner.state() == channel_state::broken);
    CHECK_FALSE(blocking.wait(patience).has_value());
  }
  SECTION("its channel broke before") {
    const buffer<> message(bed.domain, 8);
    auto blocking = block(bed.owner, message);
    auto lease = must(bed.owner.post_lease<both_ways>(memory.region(), 0, 64));
    auto other = must(bed.owner.post_lease<both_ways>(memory.region(), 0, 64));
    static_cast<void>(failure_of(blocking.wait(short_limit)));
    must(lease.revoke());
  }
}

TEST_CASE_METHOD(memory_for_windows,
                 "lease calls with an expired limit or a stop request post nothing") {
  std::stop_source source;
  source.request_stop();
  const auto part = must(memory.region().window_part<both_ways>(0, 64));
  CHECK(failure_of(bed.owner.lease(part, std::chrono::seconds(-1))) == error_kind::timed_out);
  CHECK(failure_of(bed.owner.lease(part, source.get_token())) == error_kind::cancelled);
  CHECK(failure_of(bed.owner.lease<both_ways>(memory.region(), 0, 64, source.get_token())) ==
        error_kind::cancelled);
  CHECK(bed.owner.is_connected());
  // If the limit has expired or a stop was requested, leases are revoked without posting a request.
  for (const bool by_stop : {false, true}) {
    auto lease = must(bed.owner.lease(part));
    must(by_stop ? lease.revoke(source.get_token()) : lease.revoke(std::chrono::seconds(-1)));
    CHECK(bed.owner.is_connected());
  }
  auto lease = must(bed.owner.lease(part));
  const auto far = must(lease.remote());
  must(lease.revoke(std::chrono::seconds(-1)));
  check_closed(bed.peer, bed.domain, memory, far);
}

TEST_CASE_METHOD(memory_for_windows,
                 "a wait for a lease that times out ends the connection and the lease") {
  const buffer<> message(bed.domain, 8);
  const auto part = must(memory.region().window_part<both_ways>(0, 64));
  SECTION("when it is granted") {
    auto blocking = block(bed.owner, message);
    const auto start = clock::now();
    const auto granted = bed.owner.lease(part, short_limit);
    CHECK(clock::now() - start < short_limit + soon);
    if (granted.has_value()) {
      WARN("this device binds windows before earlier requests have completed");
    } else {
      CHECK(granted.error() == error_kind::timed_out);
      CHECK(bed.owner.state() == channel_state::broken);
    }
    static_cast<void>(failure_of(blocking.wait(short_limit)));
  }
  SECTION("when it is revoked") {
    auto lease = must(bed.owner.lease(part));
    const auto far = must(lease.remote());
    auto blocking = block(bed.owner, message);
    std::stop_source source;
    const auto start = clock::now();
    const auto revoked = lease.revoke(short_limit);
    CHECK(clock::now() - start < short_limit + soon);
    if (revoked.has_value()) {
      WARN("this device closes windows before earlier requests have completed");
    } else {
      CHECK(revoked.error() == error_kind::timed_out);
      CHECK_THAT(revoked.error().message(), Catch::Contains("2 requests of the send queue"));
      CHECK(bed.owner.state() == channel_state::broken);
    }
    check_closed(bed.peer, bed.domain, memory, far);
    static_cast<void>(failure_of(blocking.wait(short_limit)));
  }
  SECTION("when it is revoked while the send queue is full") {
    bed.owner = channel();
    channel_pair ends = connect_channels(
        bed.domain.build_channel().access(for_all - access::window_bind).max_send_work_requests(2));
    bed.peer = std::move(ends.left);
    bed.owner = std::move(ends.right);
    auto lease = must(bed.owner.lease(part));
    const auto far = must(lease.remote());
    std::vector<pending<>> blocking;
    for (auto posted = bed.owner.post_send({.elements = message.gather()}); posted.has_value();
         posted = bed.owner.post_send({.elements = message.gather()}))
      blocking.push_back(std::move(posted).value());
    const auto revoked = lease.revoke(short_limit);
    if (revoked.has_error()) CHECK(revoked.error() == error_kind::timed_out);
    check_closed(bed.peer, bed.domain, memory, far);
    must(bed.owner.close());
  }
}

TEST_CASE_METHOD(memory_for_windows, "the peer can return a lease by a message") {
  buffer<> inbox(bed.domain, 8);
  const buffer<> message(bed.domain, 8);
  auto other = must(bed.owner.lease<both_ways>(memory.region(), 0, 64));
  auto lease = must(bed.owner.lease<both_ways>(memory.region(), 0, 64));
  const auto far = must(lease.remote());
  auto received = must(bed.owner.post_receive({.elements = inbox.scatter()}));
  auto sent =
      must(bed.peer.post_send_with_invalidate({.elements = message.gather(), .rkey = far.rkey()}));
  must(sent.wait(patience));
  const auto done = must(received.wait(patience));
  if (done.invalidated_rkey()) {
    CHECK(done.invalidated_rkey() == far.rkey());
    CHECK_FALSE(lease.is_open());
    CHECK_THAT(failure_of(lease.remote()).message(), Catch::Contains("returned the lease"));
  } else {
    // Linux's software driver sets a different flag in the completion.
    WARN("the completion does not report the invalidated rkey");
  }
  CHECK(other.is_open());
  must(lease.revoke());
  CHECK(bed.owner.is_connected());
  auto next = must(bed.owner.lease<both_ways>(memory.region(), 0, 64));
  CHECK(must(next.remote()).rkey() != far.rkey());
  must(write(bed.peer, buffer<>(bed.domain, 64), must(next.remote())));
  must(write(bed.peer, buffer<>(bed.domain, 64), must(other.remote())));
  check_closed(bed.peer, bed.domain, memory, far);
}

TEST_CASE("a message that is received through a hub reports that it returns a lease") {
  lease_bed bed;
  bed.need_windows();
  const auto pool = must(message_pool::create(bed.domain, 8, 64));
  const channel_hub hub = supported(
      channel_hub::create(bed.domain, pool,
                          {.channels = 2, .completions = 128, .receives = 4, .refill = 2}),
      shared_receive_queues);
  auto served = must(bed.domain.build_channel().max_send_work_requests(8).hub(hub).build());
  auto client = must(bed.domain.build_channel().build());
  const endpoint client_end = client.endpoint();
  channel peer = must(std::move(client).handshake(served.endpoint()));
  channel owner = must(std::move(served).handshake(client_end));

  leased_memory memory(bed.domain, 64);
  auto other = must(owner.lease<both_ways>(memory.region(), 0, 64));
  auto lease = must(owner.lease<both_ways>(memory.region(), 0, 64));
  const remote_key key = must(lease.remote()).rkey();
  const buffer<> message(bed.domain, 8);
  auto sent = must(peer.post_send_with_invalidate({.elements = message.gather(), .rkey = key}));
  must(sent.wait(patience));
  std::array<arrival, 1> slot;
  do static_cast<void>(must(hub.wait(slot, patience)));
  while (!slot[0].message);
  const auto told = slot[0].message.received()->invalidated_rkey();
  // Linux's software driver sets a different flag in the completion.
  if (!told) WARN("the completion does not report the invalidated rkey");
  CHECK(told.value_or(key) == key);
  CHECK_FALSE(other.note_invalidated(key));
  CHECK(other.is_open());
  CHECK(lease.note_invalidated(key));
  CHECK_FALSE(lease.is_open());
  must(lease.revoke());
  CHECK_FALSE(anyhow(lease).note_invalidated(key));
  must(other.revoke());
  CHECK(owner.is_connected());
}

}  // namespace verbspp::test::leases
