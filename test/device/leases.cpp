// SPDX-License-Identifier: Apache-2.0
/// \file
/// Leases: which access the peer of a channel gets, and how it is revoked.
#include "leases.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <optional>
#include <sstream>
#include <thread>
#include <utility>
#include <vector>

namespace verbspp::test::leases {

TEST_CASE("a lease lets the peer access its part of the memory until it is revoked") {
  for_each_way([]<lease_by By>(lease_bed& bed) {
    leased_memory memory(bed.domain, 256);
    buffer<> source(bed.domain, pattern(256, 1));
    auto lease = must(bed.owner.lease<both_ways, By>(memory.region(), 64, 128));
    CHECK(lease.is_open());
    CHECK(lease.by() == By);
    const auto far = must(lease.remote());
    CHECK(far.address() == reinterpret_cast<std::uintptr_t>(memory.bytes().data()) + 64);
    CHECK(far.length() == 128);
    must(write(bed.peer, source, far));
    std::vector<std::byte> expected(256);
    std::copy_n(source.bytes().begin(), 128, expected.begin() + 64);
    CHECK(memory.bytes() == expected);
    buffer<> back(bed.domain, 128);
    must(bed.peer.read({.elements = back.scatter(), .remote = far}));
    CHECK(back.bytes() == source.front(128));

    must(lease.revoke());
    CHECK_FALSE(anyhow(lease).is_open());
    CHECK(bed.owner.is_connected() == (By != lease_by::connection));
    check_closed(bed.peer, bed.domain, memory, far);
  });
}

TEST_CASE_METHOD(memory_for_windows, "a lease of a part for a window uses a memory window") {
  const buffer<> source(bed.domain, pattern(64, 2));
  const auto part = must(memory.region().window_part<both_ways>(16, 32));
  auto lease = must(bed.owner.lease(part));
  CHECK(lease.by() == lease_by::window);
  REQUIRE(lease.native_handle() != nullptr);
  CHECK(lease.native_handle()->rkey == must(lease.remote()).rkey().value());
  must(write(bed.peer, source, must(lease.remote())));
  must(lease.revoke(patience));
  auto other = must(bed.owner.lease(part, patience));
  must(other.revoke());
}

TEST_CASE("a lease by a window or a registration grants only the rights that it names") {
  for_each_way([]<lease_by By>(lease_bed& bed) {
    if constexpr (By !=
                  lease_by::connection) {  // a lease by connection has the rights of the memory
      leased_memory memory(bed.domain, pattern(64, 3));
      buffer<> mine(bed.domain, 64);
      auto lease = must(bed.owner.lease<access::remote_read, By>(memory.region(), 0, 64));
      const auto far = must(lease.remote());
      must(bed.peer.read({.elements = mine.scatter(), .remote = far}));
      CHECK(mine.bytes() == memory.bytes());
      buffer<> other(bed.domain, 64);
      const remote_memory<both_ways> claimed(far.address(), 64, far.rkey());
      CHECK(status_of(failure_of(write(bed.peer, other, claimed))) ==
            work_status::remote_access_error);
      CHECK(memory.bytes() == pattern(64, 3));
    }
  });
}

TEST_CASE("a lease can grant atomic access") {
  for_each_way([]<lease_by By>(lease_bed& bed) {
    if (bed.limits.atomic_cap == IBV_ATOMIC_NONE) {
      SKIP("the device has no atomic operations");
    }
    leased_memory memory(bed.domain, 64);
    const buffer<> result(bed.domain, 8);
    auto lease = must(bed.owner.lease<access::remote_atomic, By>(memory.region(), 32, 8));
    const auto word = must(remote_word::at(must(lease.remote())));
    must(bed.peer.fetch_and_add(
        {.result = result.scatter(), .remote = word, .addend = 0x0101010101010101}));
    must(lease.revoke());
    std::vector<std::byte> expected(64);
    std::fill_n(expected.begin() + 32, 8, std::byte{1});
    CHECK(memory.bytes() == expected);
  });
}

TEST_CASE("after a revocation, no write reaches the memory although the peer continues to write") {
  for_each_way([]<lease_by By>(lease_bed& bed) {
    constexpr std::size_t size = 1 << 16;
    for (int round = 0; round < 5; ++round) {
      if (round != 0) bed.connect();
      leased_memory memory(bed.domain, size);
      const buffer<> source(bed.domain, pattern(size, 4));
      auto lease = must(bed.owner.lease<both_ways, By>(memory.region(), 0, size));
      const auto far = must(lease.remote());
      std::atomic<int> written{0};
      std::optional<error> stopped_by;
      std::thread writer([&, peer = std::move(bed.peer)]() mutable {
        for (;;) {
          const auto done = write(peer, source, far, std::chrono::seconds(3));
          if (!done.has_value()) {
            stopped_by = done.error();
            return;
          }
          ++written;
        }
      });
      wait_until([&] { return written > round; }, "the peer's writes");
      const auto revoked = lease.revoke();
      std::fill(memory.content().begin(), memory.content().end(), std::byte{0x5a});
      writer.join();
      must(revoked);
      // rxe checks a packet's key before it copies the packet, so it may write one more packet
      // after the window is closed. It writes none once the peer's request has failed.
      if (By == lease_by::window && device_name().starts_with("rxe"))
        std::fill(memory.content().begin(), memory.content().end(), std::byte{0x5a});
      CHECK(std::all_of(memory.bytes().begin(), memory.bytes().end(),
                        [](std::byte each) { return each == std::byte{0x5a}; }));
      REQUIRE(stopped_by);
      if constexpr (By != lease_by::connection)
        CHECK(status_of(*stopped_by) == work_status::remote_access_error);
    }
  });
}

TEST_CASE_METHOD(memory_for_windows,
                 "using a lease after its revocation breaks the connection for both ends") {
  auto lease = must(bed.owner.lease<both_ways>(memory.region(), 0, 64));
  auto second = must(bed.owner.lease<both_ways>(memory.region(), 0, 32));
  const auto far = must(lease.remote());
  auto waiting = must(bed.owner.post_receive({.elements = memory.scatter()}));
  must(lease.revoke());
  const buffer<> source(bed.domain, 64);
  CHECK(status_of(failure_of(write(bed.peer, source, far))) == work_status::remote_access_error);
  CHECK(bed.peer.state() == channel_state::broken);
  CHECK(failure_of(waiting.wait(patience)).work() != nullptr);
  CHECK(bed.owner.state() == channel_state::broken);
  // The other lease has ended with the connection, but can still be revoked.
  CHECK_FALSE(second.is_open());
  CHECK(failure_of(second.remote()) == error_kind::not_connected);
  must(second.revoke());

  // A lease can also be revoked before this end has detected that the peer broke the connection.
  bed.connect();
  auto third = must(bed.owner.lease<both_ways>(memory.region(), 0, 64));
  auto fourth = must(bed.owner.lease<both_ways>(memory.region(), 0, 64));
  const auto late = must(third.remote());
  must(third.revoke());
  CHECK(write(bed.peer, source, late).has_error());
  CHECK(bed.owner.is_connected());
  // This end may or may not have detected the broken connection by now. The lease is revoked in
  // either case.
  must(fourth.revoke());
  check_closed(bed.peer, bed.domain, memory, late);
}

TEST_CASE("the next lease of the same bytes does not repeat a recent key") {
  for_each_way([]<lease_by By>(lease_bed& bed) {
    if constexpr (By != lease_by::connection) {
      leased_memory memory(bed.domain, 64);
      std::deque<std::uint32_t> keys;
      for (int i = 0; i < 600; ++i) {
        auto lease = must(bed.owner.lease<both_ways, By>(memory.region(), 0, 64));
        const std::uint32_t key = must(lease.remote()).rkey().value();
        INFO("lease " << i);
        REQUIRE(std::find(keys.begin(), keys.end(), key) == keys.end());
        keys.push_back(key);
        if (keys.size() > 254) keys.pop_front();
        must(lease.revoke());
      }
    }
  });
}

TEST_CASE_METHOD(memory_for_windows, "a window is replaced before its keys repeat") {
  std::uint32_t last = 0;
  int in_a_row = 0;
  for (int i = 0; i < 600; ++i) {
    auto lease = must(bed.owner.lease<both_ways>(memory.region(), 0, 64));
    const std::uint32_t window = must(lease.remote()).rkey().value() >> 8;
    in_a_row = window == last ? in_a_row + 1 : 1;
    last = window;
    REQUIRE(in_a_row <= 255);
    must(lease.revoke());
  }
}

TEST_CASE_METHOD(memory_for_windows, "several leases of the same bytes can be open at once") {
  const buffer<> source(bed.domain, pattern(64, 5));
  std::vector<lease<both_ways>> leases;
  for (int i = 0; i < 10; ++i)
    leases.push_back(must(bed.owner.lease<both_ways>(memory.region(), 0, 64)));
  for (const std::size_t i : {3U, 0U, 5U, 1U}) {
    must(leases[i].revoke());
    leases.erase(leases.begin() + static_cast<std::ptrdiff_t>(i));
    for (const auto& each : leases) must(write(bed.peer, source, must(each.remote())));
  }
}

TEST_CASE_METHOD(memory_for_windows, "a lease that is being granted does not hide a result") {
  const buffer<> from(bed.domain, pattern(64, 1));
  buffer<> to(bed.domain, 64);
  auto received = must(bed.owner.post_receive({.elements = to.scatter()}));
  must(bed.peer.send({.elements = from.gather()}));
  // The peer has posted no receive yet, so neither this send nor the bind after it completes.
  auto sent = must(bed.owner.post_send({.elements = from.gather()}));
  const auto lease =
      must(bed.owner.post_lease(memory.region().window_part<both_ways>(0, 64).value()));
  for (int i = 0; i < 2; ++i) CHECK(must(bed.owner.wait(short_limit)) == wait_end::completions);
  must(received.wait(patience));
  must(bed.peer.receive({.elements = to.scatter()}));
  must(sent.wait(patience));
}

TEST_CASE("dropping a lease or assigning to it revokes its access") {
  for_each_way([]<lease_by By>(lease_bed& bed) {
    leased_memory memory(bed.domain, 64);
    std::optional lease = must(bed.owner.lease<both_ways, By>(memory.region(), 0, 64));
    const auto far = must(lease->remote());
    if constexpr (By == lease_by::connection) {
      lease.reset();
      CHECK_FALSE(bed.owner.is_connected());
    } else {
      const auto assigned = [&] {
        *lease = must(bed.owner.lease<both_ways, By>(memory.region(), 0, 32));
        must(write(bed.peer, buffer<>(bed.domain, 64), must(lease->remote())));
      };
      SECTION("dropping the lease") { lease.reset(); }
      SECTION("dropping the lease while the send queue has requests") {
        const buffer<> message(bed.domain, 8);
        buffer<> inbox(bed.domain, 8);
        auto blocking = block(bed.owner, message);
        lease.reset();
        CHECK(bed.owner.is_connected());
        auto received = must(bed.peer.post_receive({.elements = inbox.scatter()}));
        must(blocking.wait(patience));
        must(received.wait(patience));
      }
      SECTION("assigning to the lease") { assigned(); }
    }
    check_closed(bed.peer, bed.domain, memory, far);
  });
}

TEST_CASE("a revoked or moved-from lease is refused and prints its state") {
  for_each_way([]<lease_by By>(lease_bed& bed) {
    leased_memory memory(bed.domain, 64);
    auto first = must(bed.owner.lease<both_ways, By>(memory.region(), 0, 64));
    auto lease = std::move(first);
    const auto check = [](auto& gone) {
      CHECK_FALSE(gone.is_open());
      CHECK(gone.native_handle() == nullptr);
      CHECK(failure_of(gone.remote()) == error_kind::invalid_input);
      const error e = failure_of(gone.revoke());
      CHECK(e == error_kind::invalid_input);
      CHECK_THAT(e.message(), Catch::Contains("revoked") && Catch::Contains("moved from"));
      std::ostringstream out;
      out << gone;
      CHECK(out.str() == "lease, empty");
    };
    check(anyhow(first));
    std::ostringstream out;
    out << lease;
    CHECK_THAT(out.str(), Catch::Contains(to_string(By)) && Catch::Contains("64 bytes") &&
                              Catch::Contains("remote write"));
    must(write(bed.peer, buffer<>(bed.domain, 64), must(lease.remote())));
    must(lease.revoke());
    check(anyhow(lease));
  });
}

TEST_CASE("a lease variable can exist without a lease") {
  lease_bed bed;
  std::array<lease<both_ways>, 2> stored;
  CHECK_FALSE(stored[0].is_open());
  CHECK(failure_of(anyhow(stored[0]).remote()) == error_kind::invalid_input);
  CHECK(failure_of(anyhow(stored[0]).revoke()) == error_kind::invalid_input);
  leased_memory memory(bed.domain, 64);
  stored[1] = must(bed.owner.lease<both_ways, lease_by::registration>(memory.region(), 0, 64));
  CHECK(stored[1].is_open());
  must(stored[1].revoke());
}

}  // namespace verbspp::test::leases
