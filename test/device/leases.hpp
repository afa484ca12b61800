// SPDX-License-Identifier: Apache-2.0
/// \file
/// Shared code of the lease tests.
#pragma once

#include "channels.hpp"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

namespace verbspp::test::leases {

using test::status_of;

inline constexpr access_flags both_ways = access::remote_read | access::remote_write;
inline constexpr access_flags for_all = all_rights | access::remote_atomic | access::window_bind;
using leased_memory = buffer<for_all>;
using whole_buffer = registered_buffer<for_all>;
using hidden_buffer = registered_buffer<access::local_write | access::window_bind>;

/// Two connected channels. The owner grants leases, and the peer uses them.
struct lease_bed : testbed {
  lease_bed() { connect(); }
  void connect() {
    channel_pair ends = connect_channels(static_cast<const testbed&>(*this));
    peer = std::move(ends.left);
    owner = std::move(ends.right);
  }
  /// Returns true if the device has the memory windows that leases use by default.
  [[nodiscard]] bool has_windows() {
    buffer<access::local_write | access::window_bind> memory(domain, 64);
    const auto lease = owner.lease<access::remote_read>(memory.region(), 0, 64);
    if (lease.has_error()) REQUIRE(lease.error() == error_kind::not_supported);
    return lease.has_value();
  }
  /// Skips the test if the device does not have the memory windows that leases use.
  void need_windows() {
    if (!has_windows()) SKIP("the device has no memory windows of type 2");
  }
  channel peer;
  channel owner;
};

/// A fixture: memory that can be leased through type 2 memory windows. Skips the test if the device
/// does not support them.
struct memory_for_windows {
  memory_for_windows() { bed.need_windows(); }

  lease_bed bed;
  leased_memory memory{bed.domain, 64};
};

/// Runs a test for each kind of lease that the device supports: `test.operator()<By>(bed)`.
template <class Test>
void for_each_way(Test test) {
  SECTION("by a window") {
    lease_bed bed;
    bed.need_windows();
    test.template operator()<lease_by::window>(bed);
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

/// Makes the peer write the first bytes of `from` to the leased memory.
template <class Buffer>
[[nodiscard]] transport_result<completed_work> write(channel& peer, const Buffer& from,
                                                     const remote_memory<both_ways>& to,
                                                     std::chrono::milliseconds limit = patience) {
  return peer.write(
      {.elements = from.gather(0, static_cast<std::size_t>(to.length())), .remote = to}, limit);
}

/// Checks that the peer's writes no longer reach the memory.
inline void check_closed(channel& peer, const protection_domain& domain, leased_memory& memory,
                         const remote_memory<both_ways>& far, int line = __builtin_LINE()) {
  INFO("line " << line);
  const std::vector<std::byte> expected = pattern(memory.size(), 77);
  std::copy(expected.begin(), expected.end(), memory.content().begin());
  const buffer<> source(domain, pattern(memory.size(), 78));
  CHECK(write(peer, source, far, short_limit).has_error());
  CHECK(memory.bytes() == expected);
}

[[nodiscard]] inline std::optional<work_status> status_of(const error& e) {
  const auto failed = work_error::from(e);
  return failed ? std::optional(failed->status()) : std::nullopt;
}

/// Returns the object itself. The call hides from compilers and analyzers that the object was moved
/// from or revoked.
template <class Object>
[[nodiscard]] Object& anyhow(Object& object) {
  return object;
}

/// Posts a send, which does not complete before the peer posts a receive. On most devices, all
/// later requests wait behind it.
[[nodiscard]] inline pending<> block(channel& sender, const buffer<>& memory) {
  return must(sender.post_send({.elements = memory.gather()}));
}

}  // namespace verbspp::test::leases
