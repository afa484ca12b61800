// SPDX-License-Identifier: Apache-2.0

#include "../catch.hpp"
#include "text.hpp"
#include <verbspp/base/flags.hpp>
#include <verbspp/memory/access.hpp>

using verbspp::access_flag;
using verbspp::access_flags;
using verbspp::test::printed;

namespace {
namespace access = verbspp::access;
}

TEST_CASE("a set of flags contains its own bits and every subset") {
  constexpr access_flags both = access::local_write | access::remote_read;
  CHECK(both.contains(both));
  CHECK(both.contains(access::local_write));
  CHECK(both.contains(access_flag::remote_read));
  CHECK(both.contains(access_flags{}));
  CHECK_FALSE(both.contains(access::remote_write));
  CHECK_FALSE(both.contains(access::local_write | access::remote_write));
  CHECK_FALSE(access_flags{}.contains(access::local_write));
}

TEST_CASE("sets of flags intersect when they share a bit") {
  constexpr access_flags both = access::local_write | access::remote_read;
  CHECK(both.intersects(access::remote_read | access::remote_write));
  CHECK_FALSE(both.intersects(access::remote_write | access::remote_atomic));
  CHECK_FALSE(both.intersects(access_flags{}));
  CHECK_FALSE(access_flags{}.intersects(access_flags{}));
}

TEST_CASE("sets of flags can be joined and intersected and subtracted") {
  constexpr access_flags left = access_flag::local_write | access_flag::remote_read;
  constexpr access_flags right = access_flag::remote_read | access_flag::remote_write;
  CHECK((left | right) == (access::local_write | access::remote_read | access::remote_write));
  CHECK((left & right) == access::remote_read);
  CHECK((left - right) == access::local_write);
  CHECK((left - left).empty());
  CHECK(left != right);
}

TEST_CASE("flags from the C interface keep every bit") {
  constexpr auto all = access_flags::from_bits(0xffffffff);
  CHECK(all.bits == 0xffffffff);
  CHECK((all - access::local_write).bits == 0xfffffffe);
}

TEST_CASE("access rights print themselves by name") {
  CHECK(printed(access::local_read) == "local read");
  CHECK(printed(access::local_write) == "local write");
  CHECK(printed(access::remote_write) == "remote write");
  CHECK(printed(access::remote_read) == "remote read");
  CHECK(printed(access::remote_atomic) == "remote atomic");
  CHECK(printed(access::local_write | access::all_remote) ==
        "local write|remote write|remote read|remote atomic");
}

TEST_CASE("registration options are printed together with the rights") {
  CHECK(printed(access::remote_read | access::window_bind) == "remote read|window bind");
  CHECK(printed(access::local_write | access::on_demand) == "local write|on demand");
  CHECK(printed(access::relaxed_ordering) == "relaxed ordering");
}

TEST_CASE("an access right without a name is printed as a number") {
  CHECK(printed(access_flags::from_bits(1U << 21)) == "0x200000");
  CHECK(printed(access::remote_read | access_flags::from_bits(1U << 21)) == "remote read|0x200000");
}

TEST_CASE("rights can be added and kept and removed in place") {
  access_flags rights = access::local_write;
  rights |= access::remote_read | access::remote_write;
  CHECK(rights == (access::local_write | access::remote_read | access::remote_write));
  rights -= access::local_write;
  CHECK(rights == (access::remote_read | access::remote_write));
  rights &= access::remote_read | access::remote_atomic;
  CHECK(rights == access::remote_read);
}
