// SPDX-License-Identifier: Apache-2.0
/// \file
/// Leases: what they let the peer of a channel do, how it is taken back, and what ends them.

#include "channels.hpp"
#include "failing_verb.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <deque>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

using namespace verbspp;
using namespace verbspp::test;

namespace {

constexpr access_flags both_ways = access::remote_read | access::remote_write;
constexpr access_flags for_all = all_rights | access::remote_atomic | access::window_bind;
using leased_memory = buffer<for_all>;
using whole_buffer = registered_buffer<for_all>;
using hidden_buffer = registered_buffer<access::local_write | access::window_bind>;

/// Connected channels, of which one grants and the other uses what it was granted.
struct lease_bed : testbed {
  lease_bed() { connect(); }
  void connect() {
    channel_pair ends = connect_channels(static_cast<const testbed&>(*this));
    peer = std::move(ends.left);
    owner = std::move(ends.right);
  }
  /// Whether the device has what leases are by default.
  [[nodiscard]] bool has_windows() {
    buffer<access::local_write | access::window_bind> memory(domain, 64);
    const auto lease = owner.lease<access::remote_read>(memory.region(), 0, 64);
    if (lease.has_value()) return true;
    REQUIRE(lease.error() == error_kind::not_supported);
    WARN("this device has no memory windows of type 2");
    return false;
  }
  channel peer;
  channel owner;
};

/// Runs a test for each way to lease that the device has: `test.operator()<By>(bed)`.
template <class Test>
void for_each_way(Test test) {
  SECTION("by a window") {
    lease_bed bed;
    if (bed.has_windows()) test.template operator()<lease_by::window>(bed);
  }
  SECTION("by a registration") {
    lease_bed bed;
    test.template operator()<lease_by::registration>(bed);
  }
  SECTION("by the connection") {
    lease_bed bed;
    test.template operator()<lease_by::connection>(bed);
  }
}

/// The peer writes the front of a buffer.
template <class Buffer>
[[nodiscard]] transport_result<completed_work> write(channel& peer, const Buffer& from,
                                                     const remote_memory<both_ways>& to,
                                                     std::chrono::milliseconds limit = patience) {
  return peer.write(
      {.elements = from.gather(0, static_cast<std::size_t>(to.length())), .remote = to}, limit);
}

/// That the peer's writes do not land there any more.
void check_closed(channel& peer, const protection_domain& domain, leased_memory& memory,
                  const remote_memory<both_ways>& far, int line = __builtin_LINE()) {
  INFO("line " << line);
  const std::vector<std::byte> expected = pattern(memory.size(), 77);
  std::copy(expected.begin(), expected.end(), memory.content().begin());
  const buffer<> source(domain, pattern(memory.size(), 78));
  CHECK(write(peer, source, far, short_limit).has_error());
  CHECK(memory.bytes() == expected);
}

[[nodiscard]] std::optional<work_status> status_of(const error& e) {
  const auto failed = work_error::from(e);
  return failed ? std::optional(failed->status()) : std::nullopt;
}

/// Hides from the compiler that it was moved from, or revoked.
template <class Object>
[[nodiscard]] Object& anyhow(Object& object) {
  return object;
}

/// Has the send queue of a channel hold a request that does not finish.
[[nodiscard]] pending<> block(channel& sender, const buffer<>& memory) {
  return must(sender.post_send({.elements = memory.gather()}));
}

std::vector<std::string> reports;  // of what could not be released

}  // namespace

TEST_CASE("a lease lets the peer in, to that part, until it is revoked") {
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

TEST_CASE("a lease of a part for a window is one by a window") {
  lease_bed bed;
  if (!bed.has_windows()) return;
  leased_memory memory(bed.domain, 64);
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

TEST_CASE("a lease gives the rights that it names, and no other") {
  for_each_way([]<lease_by By>(lease_bed& bed) {
    if constexpr (By != lease_by::connection) {  // which gives what the memory gives
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

TEST_CASE("a lease gives atomic operations") {
  for_each_way([]<lease_by By>(lease_bed& bed) {
    if (bed.limits.atomic_cap == IBV_ATOMIC_NONE) {
      WARN("this device has no atomic operations");
      return;
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

TEST_CASE("after revoke nothing of the peer's lands, although it goes on writing") {
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
          const auto done = write(peer, source, far, std::chrono::milliseconds(500));
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
      CHECK(std::all_of(memory.bytes().begin(), memory.bytes().end(),
                        [](std::byte each) { return each == std::byte{0x5a}; }));
      REQUIRE(stopped_by);
      if constexpr (By != lease_by::connection)
        CHECK(status_of(*stopped_by) == work_status::remote_access_error);
    }
  });
}

TEST_CASE("who uses a lease too late breaks the connection for both") {
  lease_bed bed;
  if (!bed.has_windows()) return;
  leased_memory memory(bed.domain, 64);
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
  // What else was leased can be taken back still.
  CHECK_FALSE(second.is_open());
  CHECK(failure_of(second.remote()) == error_kind::not_connected);
  must(second.revoke());

  // Also where this side has not noticed yet.
  bed.connect();
  auto third = must(bed.owner.lease<both_ways>(memory.region(), 0, 64));
  auto fourth = must(bed.owner.lease<both_ways>(memory.region(), 0, 64));
  const auto late = must(third.remote());
  must(third.revoke());
  CHECK(write(bed.peer, source, late).has_error());
  CHECK(bed.owner.is_connected());
  must(fourth.revoke());
  check_closed(bed.peer, bed.domain, memory, late);
}

TEST_CASE("the next lease of the same bytes has another key, for a long time") {
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

TEST_CASE("a window is replaced before its keys repeat") {
  lease_bed bed;
  if (!bed.has_windows()) return;
  leased_memory memory(bed.domain, 64);
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

TEST_CASE("there can be several leases of the same bytes at once") {
  lease_bed bed;
  if (!bed.has_windows()) return;
  leased_memory memory(bed.domain, 64);
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

TEST_CASE("dropping a lease, or assigning to it, revokes") {
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
      SECTION("dropped") { lease.reset(); }
      SECTION("dropped with work in the send queue") {
        const buffer<> message(bed.domain, 8);
        buffer<> inbox(bed.domain, 8);
        auto blocking = block(bed.owner, message);
        lease.reset();
        CHECK(bed.owner.is_connected());
        auto received = must(bed.peer.post_receive({.elements = inbox.scatter()}));
        must(blocking.wait(patience));
        must(received.wait(patience));
      }
      SECTION("assigned to") { assigned(); }
    }
    check_closed(bed.peer, bed.domain, memory, far);
  });
}

TEST_CASE("a lease that was revoked, or moved from, says so") {
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
      CHECK(out.str() == "lease, revoked or moved from");
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

TEST_CASE("a lease keeps the pages of a shared buffer") {
  for_each_way([]<lease_by By>(lease_bed& bed) {
    std::optional shared = must(must(whole_buffer::allocate(bed.domain, 4096)).share());
    auto watching = *shared;
    const buffer<> source(bed.domain, pattern(100, 6));
    std::optional lease = must(bed.owner.lease<both_ways, By>(must(shared->part(10, 100))));
    shared.reset();
    CHECK_FALSE(watching.is_only());
    must(write(bed.peer, source, must(lease->remote())));
    CHECK(std::equal(source.bytes().begin(), source.bytes().end(), watching.begin() + 10));
    SECTION("until it is revoked") { must(lease->revoke()); }
    SECTION("until it is dropped") { lease.reset(); }
    SECTION("until it is dropped, after its channel") {
      bed.owner = channel();
      CHECK_FALSE(watching.is_only());
      lease.reset();
    }
    CHECK(watching.is_only());
  });
}

TEST_CASE("a lease can be the last to have a shared buffer") {
  for_each_way([]<lease_by By>(lease_bed& bed) {
    auto lease = must(
        bed.owner.lease<both_ways, By>(must(must(whole_buffer::allocate(bed.domain, 64)).share())));
    const buffer<> source(bed.domain, pattern(64, 7));
    buffer<> back(bed.domain, 64);
    must(write(bed.peer, source, must(lease.remote())));
    must(bed.peer.read({.elements = back.scatter(), .remote = must(lease.remote())}));
    CHECK(back.bytes() == source.bytes());
    must(lease.revoke());
  });
}

TEST_CASE("a lease has an owned buffer, which comes back when it is revoked") {
  for_each_way([]<lease_by By>(lease_bed& bed) {
    auto owned = must(whole_buffer::allocate(bed.domain, 64));
    const buffer<> source(bed.domain, pattern(64, 8));
    const auto* const where = owned.data();
    auto lease = must(bed.owner.lease<both_ways, By>(std::move(owned)));
    must(write(bed.peer, source, must(lease.remote())));
    CHECK(lease.memory().data() == where);
    SECTION("revoked") {
      auto [result, buffer] = std::move(lease).revoke();
      must(result);
      CHECK(buffer.data() == where);
      CHECK(std::equal(buffer.begin(), buffer.end(), source.bytes().begin(), source.bytes().end()));
      auto again = std::move(anyhow(lease)).revoke(patience);
      CHECK(failure_of(again.result) == error_kind::invalid_input);
      CHECK(again.memory.size() == 0);
    }
    SECTION("moved, and revoked by a limit that has passed") {
      auto moved = std::move(lease);
      auto [result, buffer] = std::move(moved).revoke(std::chrono::seconds(-1));
      must(result);
      CHECK(buffer.data() == where);
    }
    SECTION("dropped") {}
    SECTION("assigned to") {
      if constexpr (By != lease_by::connection)
        lease = must(bed.owner.lease<both_ways, By>(must(whole_buffer::allocate(bed.domain, 128))));
    }
  });
}

TEST_CASE("a lease of a part of an owned buffer gives access to the part") {
  lease_bed bed;
  if (!bed.has_windows()) return;
  auto owned = must(hidden_buffer::allocate(bed.domain, 64));
  const buffer<> source(bed.domain, pattern(16, 9));
  auto lease = must(bed.owner.lease<both_ways>(must(std::move(owned).part(8, 16))));
  CHECK(must(lease.remote()).length() == 16);
  must(write(bed.peer, source, must(lease.remote())));
  auto [result, part] = std::move(lease).revoke();
  must(result);
  auto whole = std::move(part).buffer();
  CHECK(std::equal(source.bytes().begin(), source.bytes().end(), whole.begin() + 8));
  must(std::move(whole).release());
}

TEST_CASE("a buffer that can't be leased stays where it was") {
  lease_bed bed;
  must(bed.owner.close());
  auto owned = must(whole_buffer::allocate(bed.domain, 64));
  CHECK(failure_of(bed.owner.lease<both_ways>(std::move(owned))) == error_kind::not_connected);
  CHECK(anyhow(owned).size() == 64);
  auto shared = must(std::move(anyhow(owned)).share());
  CHECK(failure_of(bed.owner.lease<both_ways>(shared)) == error_kind::not_connected);
  CHECK(shared.is_only());
}

TEST_CASE("a lease ends with its connection, and is revoked at no cost then") {
  for_each_way([]<lease_by By>(lease_bed& bed) {
    leased_memory memory(bed.domain, 64);
    std::optional lease = must(bed.owner.lease<both_ways, By>(memory.region(), 0, 64));
    auto bystander = must(bed.owner.lease<both_ways, By>(memory.region(), 0, 8));
    const auto far = must(lease->remote());
    const auto check_over = [&] {
      CHECK_FALSE(lease->is_open());
      CHECK(failure_of(lease->remote()) == error_kind::not_connected);
    };
    SECTION("broken") {
      static_cast<void>(failure_of(bed.owner.receive({.elements = memory.scatter()}, short_limit)));
      check_over();
    }
    SECTION("closed") {
      must(bed.owner.close());
      check_over();
    }
    SECTION("destroyed") {
      bed.owner = channel();
      check_over();
    }
    SECTION("renewed") {
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
    SECTION("the peer is gone") {
      bed.peer = channel();
      must(lease->revoke());
      bed.connect();
      return;
    }
    SECTION("moved to another place") {
      channel moved = std::move(bed.owner);
      CHECK(lease->is_open());
      must(lease->revoke());
      CHECK(moved.is_connected() == (By != lease_by::connection));
      bed.connect();
      return;
    }
    SECTION("dropped afterwards") {
      bed.owner = channel();
      lease.reset();
      return;
    }
    must(lease->revoke());
    must(bystander.revoke());
    bed.connect();
  });
}

TEST_CASE("a region can go when the lease of it is over, however it ended") {
  for_each_way([]<lease_by By>(lease_bed& bed) {
    auto owned = must(whole_buffer::allocate(bed.domain, 64));
    auto lease = must(bed.owner.lease<both_ways, By>(owned.region(), 0, 64));
    SECTION("revoked") { must(lease.revoke()); }
    SECTION("its channel was closed") { must(bed.owner.close()); }
    SECTION("its channel was destroyed") { bed.owner = channel(); }
    SECTION("its channel broke") {
      buffer<> inbox(bed.domain, 8);
      static_cast<void>(failure_of(bed.owner.receive({.elements = inbox.scatter()}, short_limit)));
      must(lease.revoke());
    }
    must(std::move(owned).release());
  });
}

TEST_CASE("a lease that is not waited for goes to the peer by the next message") {
  lease_bed bed;
  if (!bed.has_windows()) return;
  leased_memory memory(bed.domain, 64);
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

TEST_CASE("a lease can be dropped before the device has seen it") {
  lease_bed bed;
  if (!bed.has_windows()) return;
  leased_memory memory(bed.domain, 64);
  SECTION("dropped at once") {
    for (int i = 0; i < 50; ++i)
      static_cast<void>(
          must(bed.owner.post_lease(must(memory.region().window_part<both_ways>(0, 64)))));
    CHECK(bed.owner.is_connected());
  }
  SECTION("more of them than the queue holds slots") {
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
  SECTION("its channel goes before") {
    auto lease = must(bed.owner.post_lease<both_ways>(memory.region(), 0, 64));
    auto other = must(bed.owner.post_lease<both_ways>(memory.region(), 0, 64));
    bed.owner = channel();
    must(lease.revoke());
  }
  SECTION("its channel breaks before") {
    const buffer<> message(bed.domain, 8);
    auto blocking = block(bed.owner, message);
    auto lease = must(bed.owner.post_lease<both_ways>(memory.region(), 0, 64));
    auto other = must(bed.owner.post_lease<both_ways>(memory.region(), 0, 64));
    static_cast<void>(failure_of(blocking.wait(short_limit)));
    must(lease.revoke());
  }
}

TEST_CASE("limits that have passed, and stops that were requested, are found before a lease") {
  lease_bed bed;
  if (!bed.has_windows()) return;
  leased_memory memory(bed.domain, 64);
  std::stop_source source;
  source.request_stop();
  const auto part = must(memory.region().window_part<both_ways>(0, 64));
  CHECK(failure_of(bed.owner.lease(part, std::chrono::seconds(-1))) == error_kind::timed_out);
  CHECK(failure_of(bed.owner.lease(part, source.get_token())) == error_kind::cancelled);
  CHECK(failure_of(bed.owner.lease<both_ways>(memory.region(), 0, 64, source.get_token())) ==
        error_kind::cancelled);
  CHECK(bed.owner.is_connected());
  // What is taken back then, is so without a request.
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

TEST_CASE("a limit that ends the wait for a lease ends the connection, and the lease") {
  lease_bed bed;
  if (!bed.has_windows()) return;
  leased_memory memory(bed.domain, 64);
  const buffer<> message(bed.domain, 8);
  const auto part = must(memory.region().window_part<both_ways>(0, 64));
  SECTION("granted") {
    auto blocking = block(bed.owner, message);
    const auto start = clock::now();
    const auto granted = bed.owner.lease(part, short_limit);
    CHECK(clock::now() - start < short_limit + soon);
    if (granted.has_value()) {
      WARN("this device binds windows before the requests that come first have completed");
    } else {
      CHECK(granted.error() == error_kind::timed_out);
      CHECK(bed.owner.state() == channel_state::broken);
    }
    static_cast<void>(failure_of(blocking.wait(short_limit)));
  }
  SECTION("taken back") {
    auto lease = must(bed.owner.lease(part));
    const auto far = must(lease.remote());
    auto blocking = block(bed.owner, message);
    std::stop_source source;
    const auto start = clock::now();
    const auto revoked = lease.revoke(short_limit);
    CHECK(clock::now() - start < short_limit + soon);
    if (revoked.has_value()) {
      WARN("this device closes windows before the requests that come first have completed");
    } else {
      CHECK(revoked.error() == error_kind::timed_out);
      CHECK_THAT(revoked.error().message(), Catch::Contains("2 requests of the send queue"));
      CHECK(bed.owner.state() == channel_state::broken);
    }
    check_closed(bed.peer, bed.domain, memory, far);
    static_cast<void>(failure_of(blocking.wait(short_limit)));
  }
  SECTION("taken back while the send queue is full") {
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

TEST_CASE("the peer gives a lease back by a message") {
  lease_bed bed;
  if (!bed.has_windows()) return;
  leased_memory memory(bed.domain, 64);
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
    CHECK_THAT(failure_of(lease.remote()).message(), Catch::Contains("given the lease back"));
  } else {
    // Linux' software driver sets the flag of something else.
    WARN("the completion does not tell the invalidated rkey");
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

TEST_CASE(
    "a lease is told what the peer gives back by a message that is no receive's of its channel") {
  lease_bed bed;
  if (!bed.has_windows()) return;
  const auto pool = must(message_pool::create(bed.domain, 8, 64));
  const auto hub = channel_hub::create(
      bed.domain, pool, {.channels = 2, .completions = 128, .receives = 4, .refill = 2});
  if (!hub.has_value()) {
    REQUIRE(hub.error() == error_kind::not_supported);
    WARN("this device has no shared receive queues");
    return;
  }
  auto served = must(bed.domain.build_channel().max_send_work_requests(8).hub(hub.value()).build());
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
  do static_cast<void>(must(hub.value().wait(slot, patience)));
  while (!slot[0].message);
  const auto told = slot[0].message.received()->invalidated_rkey();
  // Linux' software driver sets the flag of something else.
  if (!told) WARN("the completion does not tell the invalidated rkey");
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

TEST_CASE("what can't be leased is refused in words") {
  lease_bed bed;
  leased_memory memory(bed.domain, 64);
  const auto& region = memory.region();
  CHECK(failure_of(channel().lease<both_ways>(region, 0, 64)) == error_kind::not_connected);
  for (const auto& [offset, length] :
       {std::pair<std::size_t, std::size_t>{0, 65}, {65, 0}, {64, 1}, {1, SIZE_MAX}}) {
    CHECK(failure_of(bed.owner.lease<both_ways>(region, offset, length)) ==
          error_kind::invalid_input);
  }
  CHECK_THAT(failure_of(bed.owner.lease<both_ways>(region, 64, 0)).message(),
             Catch::Contains("0 bytes"));
  const auto gone = [&] {
    auto moved = must(register_memory<for_all>(bed.domain, memory.content()));
    static_cast<void>(memory_region<for_all>(std::move(moved)));
    return failure_of(bed.owner.lease<both_ways>(anyhow(moved), 0, 0));
  };
  CHECK(gone() == error_kind::invalid_input);
  auto buffer_gone = must(whole_buffer::allocate(bed.domain, 8));
  {
    const auto taken = std::move(buffer_gone);
  }
  CHECK(failure_of(bed.owner.lease<both_ways>(std::move(anyhow(buffer_gone)))) ==
        error_kind::invalid_input);

  const auto elsewhere = must(protection_domain::allocate(bed.context));
  leased_memory of_another(elsewhere, 64);
  if (bed.has_windows())
    CHECK(failure_of(bed.owner.lease<both_ways>(of_another.region(), 0, 64)) ==
          error_kind::invalid_input);
  CHECK(failure_of(bed.owner.lease<both_ways, lease_by::connection>(of_another.region(), 0, 64)) ==
        error_kind::invalid_input);
  // Registered anew, it is of the channel's domain.
  auto lease = must(bed.owner.lease<both_ways, lease_by::registration>(of_another.region(), 0, 64));
  must(write(bed.peer, buffer<>(bed.domain, 64), must(lease.remote())));

  channel_pair plain = connect_channels(bed.domain.build_channel());
  const error e = failure_of(plain.left.lease<access::remote_atomic>(region, 0, 8));
  CHECK(e == error_kind::permission);
  CHECK_THAT(e.message(), Catch::Contains(".access("));
  CHECK(plain.left.is_connected());
  CHECK(bed.owner.is_connected());
}

TEST_CASE("where there are no windows to take back, the error names the other ways") {
  lease_bed bed;
  leased_memory memory(bed.domain, 64);
  const auto check = [&](channel& owner) {
    const error e = failure_of(owner.lease<access::remote_write>(memory.region(), 0, 64));
    CHECK(e == error_kind::not_supported);
    CHECK_THAT(e.message(), Catch::Contains("lease_by::registration") &&
                                Catch::Contains("lease_by::connection"));
    CHECK(owner.is_connected());
  };
  SECTION("on UC") {
    channel_pair ends = connect_channels(bed.domain.build_channel<transport::uc>());
    check(ends.right);
    auto lease = must(
        ends.right.lease<access::remote_write, lease_by::registration>(memory.region(), 0, 64));
    const buffer<> source(bed.domain, pattern(64, 11));
    auto received = must(ends.right.post_receive({}));
    must(ends.left.write({.elements = source.gather(),
                          .remote = must(lease.remote()),
                          .immediate = immediate_data(1)}));
    must(received.wait(patience));
    CHECK(memory.bytes() == source.bytes());
    must(lease.revoke());
  }
  SECTION("on a device that says that it has none") {
    const claimed_capabilities none(IBV_DEVICE_MEM_WINDOW_TYPE_2A | IBV_DEVICE_MEM_WINDOW_TYPE_2B,
                                    0);
    check(bed.owner);
  }
  SECTION("on one whose requests invalidate nothing") {
    const claimed_capabilities none(IBV_DEVICE_MEM_MGT_EXTENSIONS, 0);
    check(bed.owner);
  }
  SECTION("on one whose driver has none") {
    if (!bed.has_windows()) return;
    auto kept = must(bed.owner.lease<both_ways>(memory.region(), 0, 64));
    const failing_operation refused(bed.context.native_handle()->ops.alloc_mw, EOPNOTSUPP,
                                    convention::null);
    check(bed.owner);
  }
}

TEST_CASE("a bind that fails breaks the channel, and leaves no lease") {
  lease_bed bed;
  if (!bed.has_windows()) return;
  leased_memory memory(bed.domain, 64);
  const failing_device fails("send-completion=mw-bind-err");
  SECTION("waited for") {
    const error e = failure_of(bed.owner.lease<both_ways>(memory.region(), 0, 64));
    CHECK(status_of(e) == work_status::memory_window_bind_error);
  }
  SECTION("not waited for") {
    auto lease = must(bed.owner.post_lease<both_ways>(memory.region(), 0, 64));
    must(lease.revoke());
  }
  CHECK(bed.owner.state() == channel_state::broken);
}

TEST_CASE("what the driver refuses to post leaves the channel as it was") {
  lease_bed bed;
  if (!bed.has_windows()) return;
  leased_memory memory(bed.domain, 64);
  auto lease = must(bed.owner.lease<both_ways>(memory.region(), 0, 64));
  const auto far = must(lease.remote());
  {
    const failing_operation refused(bed.context.native_handle()->ops.post_send, EINVAL,
                                    convention::returns_errno);
    CHECK(failure_of(bed.owner.lease<both_ways>(memory.region(), 0, 64)) ==
          error_kind::invalid_input);
    // Without a request, then.
    must(lease.revoke());
  }
  CHECK(bed.owner.is_connected());
  must(must(bed.owner.lease<both_ways>(memory.region(), 0, 64)).revoke());
  check_closed(bed.peer, bed.domain, memory, far);
}

TEST_CASE("a lease that is on its way is taken back when it has come, if not by a request") {
  // Linux' software driver goes on after a receiver that was not ready only when something is
  // posted.
  if (!device_name().starts_with("soft")) SKIP("this may need a request that is refused here");
  lease_bed bed;
  if (!bed.has_windows()) return;
  leased_memory memory(bed.domain, 64);
  const buffer<> message(bed.domain, 8);
  buffer<> inbox(bed.domain, 8);
  auto blocking = block(bed.owner, message);
  auto lease = must(bed.owner.post_lease<both_ways>(memory.region(), 0, 64));
  const auto far = must(lease.remote());
  std::optional<pending<>> received;
  std::thread receiver([&] {
    std::this_thread::sleep_for(moment);
    received = must(bed.peer.post_receive({.elements = inbox.scatter()}));
  });
  const auto revoked = [&] {
    const failing_operation refused(bed.context.native_handle()->ops.post_send, EINVAL,
                                    convention::returns_errno);
    return lease.revoke();
  }();
  receiver.join();
  must(revoked);
  must(blocking.wait(patience));
  must(received->wait(patience));
  must(bed.owner.write({.elements = message.gather(), .remote = inbox.remote()}));
  check_closed(bed.peer, bed.domain, memory, far);
}

TEST_CASE("a lease that the device does not take back says so") {
  lease_bed bed;
  if (!bed.has_windows()) return;
  leased_memory memory(bed.domain, 64);
  auto lease = must(bed.owner.lease<both_ways>(memory.region(), 0, 64));
  ibv_mw* const window = lease.native_handle();
  reports.clear();
  const destroy_failure_handler before = set_destroy_failure_handler(
      [](const error& cause) noexcept { reports.push_back(cause.message()); });
  std::optional<error> told;
  {
    const failing_operation refused(bed.context.native_handle()->ops.dealloc_mw, EIO,
                                    convention::returns_errno);
    SECTION("revoked") { told = failure_of(lease.revoke(std::chrono::seconds(-1))); }
    // Where Linux' software driver would wait for the window.
    if (!device_name().starts_with("rxe")) SECTION("of a channel that is gone") {
        bed.owner = channel();
        told = failure_of(lease.revoke());
      }
    SECTION("dropped") {
      const buffer<> message(bed.domain, 8);
      auto blocking = block(bed.owner, message);
      {
        const auto dropped = std::move(lease);
      }
      CHECK(bed.owner.is_connected());
      static_cast<void>(failure_of(blocking.wait(short_limit)));
    }
  }
  set_destroy_failure_handler(before);
  CHECK(ibv_dealloc_mw(window) == 0);
  CHECK(reports.size() == (told ? 0U : 1U));
  const std::string message = told ? told->message() : reports.front();
  CHECK_THAT(message, Catch::Contains("ibv_dealloc_mw") && Catch::Contains("may have access"));
  if (told) CHECK(*told == error_kind::driver);
}

TEST_CASE("memory of a lease that the device did not take back is never freed") {
  // What stays registered for good is a leak of other drivers' in the eyes of LeakSanitizer.
  if (!device_name().starts_with("soft")) SKIP("memory that is kept for good leaks by intent");
  lease_bed bed;
  std::array<std::byte, 64> mark{};
  mark.fill(std::byte{0x33});
  reports.clear();
  // Until the bed is gone: what is registered still has its domain stay, too.
  set_destroy_failure_handler(
      [](const error& cause) noexcept { reports.push_back(cause.message()); });
  const std::byte* where = nullptr;
  SECTION("owned") {
    auto lease = must(bed.owner.lease<both_ways, lease_by::registration>(
        must(whole_buffer::allocate(bed.domain, 64))));
    std::copy(mark.begin(), mark.end(), lease.memory().begin());
    where = lease.memory().data();
    const failing_verb refused("ibv_dereg_mr", EBUSY, convention::returns_errno);
    {
      const auto dropped = std::move(lease);
    }
    CHECK(refused.calls() == 1);
  }
  SECTION("shared") {
    auto shared = must(must(whole_buffer::allocate(bed.domain, 64)).share());
    auto lease = must(bed.owner.lease<both_ways, lease_by::registration>(shared));
    std::copy(mark.begin(), mark.end(), shared.begin());
    where = shared.data();
    const failing_verb refused("ibv_dereg_mr", EBUSY, convention::returns_errno);
    {
      const auto dropped = std::move(lease);
    }
    CHECK(refused.calls() == 1);
    CHECK_FALSE(shared.is_only());
  }
  CHECK(std::equal(mark.begin(), mark.end(), where));
  CHECK(reports.size() == 1);
}
