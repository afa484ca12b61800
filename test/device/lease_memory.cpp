// SPDX-License-Identifier: Apache-2.0
/// \file
/// Leases that own or share their memory.
#include "leases.hpp"

#include <algorithm>
#include <optional>
#include <utility>

namespace verbspp::test::leases {

TEST_CASE("a lease keeps the pages of a shared buffer registered") {
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
    SECTION("until it is dropped after its channel") {
      bed.owner = channel();
      CHECK_FALSE(watching.is_only());
      lease.reset();
    }
    CHECK(watching.is_only());
  });
}

TEST_CASE("a lease can hold the last handle of a shared buffer") {
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

TEST_CASE("a lease owns its buffer and returns it when it is revoked") {
  for_each_way([]<lease_by By>(lease_bed& bed) {
    auto owned = must(whole_buffer::allocate(bed.domain, 64));
    const buffer<> source(bed.domain, pattern(64, 8));
    const auto* const where = owned.data();
    auto lease = must(bed.owner.lease<both_ways, By>(std::move(owned)));
    must(write(bed.peer, source, must(lease.remote())));
    CHECK(lease.memory().data() == where);
    SECTION("after a revocation") {
      auto [result, buffer] = std::move(lease).revoke();
      must(result);
      CHECK(buffer.data() == where);
      CHECK(std::equal(buffer.begin(), buffer.end(), source.bytes().begin(), source.bytes().end()));
      auto again = std::move(anyhow(lease)).revoke(patience);
      CHECK(failure_of(again.result) == error_kind::invalid_input);
      CHECK(again.memory.size() == 0);
    }
    SECTION("after a move and a revocation with an expired limit") {
      auto moved = std::move(lease);
      auto [result, buffer] = std::move(moved).revoke(std::chrono::seconds(-1));
      must(result);
      CHECK(buffer.data() == where);
    }
    SECTION("after a drop") {}
    SECTION("after an assignment") {
      if constexpr (By != lease_by::connection)
        lease = must(bed.owner.lease<both_ways, By>(must(whole_buffer::allocate(bed.domain, 128))));
    }
  });
}

TEST_CASE("a lease of a part of an owned buffer gives access to the part only") {
  lease_bed bed;
  bed.need_windows();
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

TEST_CASE("a buffer that cannot be leased stays with the caller") {
  lease_bed bed;
  must(bed.owner.close());
  auto owned = must(whole_buffer::allocate(bed.domain, 64));
  CHECK(failure_of(bed.owner.lease<both_ways>(std::move(owned))) == error_kind::not_connected);
  CHECK(anyhow(owned).size() == 64);
  auto shared = must(std::move(anyhow(owned)).share());
  CHECK(failure_of(bed.owner.lease<both_ways>(shared)) == error_kind::not_connected);
  CHECK(shared.is_only());
}

}  // namespace verbspp::test::leases
