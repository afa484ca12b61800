// SPDX-License-Identifier: Apache-2.0
#include "device/configuration.hpp"

#include "catch.hpp"

#include <string>

namespace softverbs {
namespace {

configuration read(const std::string& text) {
  configuration_problem problem;
  const auto result = read_configuration(text, link_layer::ethernet, problem);
  INFO(problem.line << ": " << problem.text);
  REQUIRE(result);
  return *result;
}

}  // namespace

TEST_CASE("a configuration describes devices with different properties") {
  const configuration all = read(
      "  [soft0]   # the first\n"
      "\n"
      "mtu=256\r\n"
      "max-inline = 0\n"
      "[soft1]\n"
      "without=windows,atomics\n"
      "[soft1 port 2]\n"
      "link-layer = infiniband\n"
      "gid 15 = fe80::1 infiniband");
  REQUIRE(all.devices.size() == 2);
  CHECK(all.devices[0].port_count == 1);
  CHECK(all.devices[0].ports[0].mtu == IBV_MTU_256);
  CHECK(all.devices[0].most.inline_data == 0);
  CHECK(all.devices[0].has_windows);
  CHECK_FALSE(all.devices[0].ports[0].gids);
  CHECK(all.devices[1].port_count == 2);
  CHECK_FALSE(all.devices[1].has_windows);
  CHECK_FALSE(all.devices[1].has_atomics);
  CHECK(all.devices[1].has_extended);
  CHECK(all.devices[1].ports[0].layer == link_layer::ethernet);
  CHECK(all.devices[1].ports[1].layer == link_layer::infiniband);
  REQUIRE(all.devices[1].ports[1].gids);
  CHECK_FALSE((*all.devices[1].ports[1].gids)[0]);
  CHECK((*all.devices[1].ports[1].gids)[15]->gid.raw[15] == 1);
}

TEST_CASE("any blanks may separate the word gid from its index") {
  const configuration all = read("[soft0]\ngid\t0 = ::1 v2\ngid \t 03 = ::2 v2");
  REQUIRE(all.devices[0].ports[0].gids);
  CHECK((*all.devices[0].ports[0].gids)[0]->gid.raw[15] == 1);
  CHECK((*all.devices[0].ports[0].gids)[3]->gid.raw[15] == 2);
}

TEST_CASE("a configuration sets the NUMA node of a device") {
  const configuration all = read("[soft0]\nnuma-node = 1\n[soft1]\nnuma-node=1023\n[soft2]");
  CHECK(all.devices[0].numa_node == 1);
  CHECK(all.devices[1].numa_node == 1023);
  CHECK_FALSE(all.devices[2].numa_node);
}

TEST_CASE("a configuration may contain letters of any language in its comments only") {
  CHECK(read("# ger\xc3\xa4t\n[soft0] # \xe8\xa8\xad\xe5\x82\x99\n").devices.size() == 1);
  configuration_problem problem;
  CHECK_FALSE(read_configuration("[soft0]\nmtu\xc2\xa0= 256", link_layer::ethernet, problem));
  CHECK(problem.line == 2);
}

TEST_CASE("configurations are compared by their content and not by their layout") {
  const auto one = read("[soft0]\nmtu = 256\n").fingerprint;
  CHECK(one != 0);
  CHECK(read("# a remark\n\n[soft0]\n  mtu = 256 # small").fingerprint == one);
  CHECK(read("[soft0]\nmtu = 512\n").fingerprint != one);
  configuration_problem problem;
  CHECK(read_configuration("[soft0]\nmtu = 256\n", link_layer::infiniband, problem)->fingerprint !=
        one);
}

TEST_CASE("an invalid configuration is refused with its line number") {
  struct mistake {
    std::string text;
    unsigned line;
    const char* reason;
  };
  const std::string zero(1, '\0');
  const std::string huge(1000, '9');
  for (const mistake& each : {
           mistake{"", 0, "no device"},
           mistake{"# nothing\n\n", 2, "no device"},
           mistake{"mtu = 256", 1, "settings must follow a section"},
           mistake{"[soft0]\nmtu", 2, "neither `[section]` nor"},
           mistake{"[soft0", 1, "no `]`"},
           mistake{"[]", 1, "neither `[softN]`"},
           mistake{"[mlx5_0]", 1, "neither `[softN]`"},
           mistake{"[soft]", 1, "neither `[softN]`"},
           mistake{"[soft64]", 1, "N from 0 to 63"},
           mistake{"[soft1]", 1, "the next device is soft0"},
           mistake{"[soft0]\n[soft0]", 2, "the next device is soft1"},
           mistake{"[soft0]\n[soft2]", 2, "the next device is soft1"},
           mistake{"[soft0 port 2]", 1, "must follow that of its device"},
           mistake{"[soft0]\n[soft0 port 1]", 2, "`[softN]` describes port 1"},
           mistake{"[soft0]\n[soft0 port 3]", 2, "describes port 1"},
           mistake{"[soft0]\n[soft0 port 2]\n[soft0 port 3]", 3, "describes port 1"},
           mistake{"[soft0]\n[soft0 port 2]\n[soft0 port 2]", 3, "a single section"},
           mistake{"[soft0]\n[soft0 plug 2]", 2, "only `port 2`"},
           mistake{"[soft0]\n[soft0 port 2 3]", 2, "only `port 2`"},
           mistake{"[soft0]\ncolour = blue", 2, "no setting `colour`"},
           mistake{"[soft0]\n[soft0 port 2]\nwithout = inline", 3, "second port has no setting"},
           mistake{"[soft0]\nmtu = 256\n\nmtu = 256", 4, "has already been set"},
           mistake{"[soft0]\nmtu =", 2, "the MTU must be"},
           mistake{"[soft0]\nmtu = 1500", 2, "the MTU must be"},
           mistake{"[soft0]\nmtu = 8192", 2, "the MTU must be"},
           mistake{"[soft0]\nlink-layer = token", 2, "`ethernet` or `infiniband`"},
           mistake{"[soft0]\nstate = sideways", 2, "`up` or `down`"},
           mistake{"[soft0]\nwithout =", 2, "at least one feature"},
           mistake{"[soft0]\nwithout = doors", 2, "not `doors`"},
           mistake{"[soft0]\nmax-reads = 0", 2, "a number from 1 to 16"},
           mistake{"[soft0]\nmax-reads = 17", 2, "a number from 1 to 16"},
           mistake{"[soft0]\nmax-reads = -1", 2, "a number from 1 to 16"},
           mistake{"[soft0]\nmax-reads = 4294967297", 2, "a number from 1 to 16"},
           mistake{"[soft0]\nmax-reads = " + huge, 2, "a number from 1 to 16"},
           mistake{"[soft0]\nmax-reads = 0x10", 2, "a number from 1 to 16"},
           mistake{"[soft0]\nmax-reads = 4 4", 2, "a number from 1 to 16"},
           mistake{"[soft0]\nmtu = " + huge, 2, "the MTU must be"},
           mistake{"[soft0]\nmtu = 256 = 512", 2, "the MTU must be"},
           mistake{"[soft" + huge + "]", 1, "N from 0 to 63"},
           mistake{"[soft-1]", 1, "N from 0 to 63"},
           mistake{"[soft0]\n[soft0 port " + huge + "]", 2, "only `port 2`"},
           mistake{"[soft0]\n[soft0 port 0]", 2, "describes port 1"},
           mistake{"[soft0]]", 1, "N from 0 to 63"},
           mistake{"[soft0]\ngid " + huge + " = ::1 v2", 2, "from 0 to 15"},
           mistake{"[soft0]\ngid 0 = " + huge + " v2", 2, "an IPv6 or IPv4 address"},
           mistake{"[soft0]\ngid 0 = ::1 v2 interface " + huge, 2, "only `interface N`"},
           mistake{"[soft0]\ngid 0 =", 2, "an IPv6 or IPv4 address"},
           mistake{"[soft0]\n= 5", 2, "neither `[section]` nor"},
           mistake{"[soft0]\nnuma-node =", 2, "from 0 to 1023"},
           mistake{"[soft0]\nnuma-node = -1", 2, "from 0 to 1023"},
           mistake{"[soft0]\nnuma-node = 1024", 2, "from 0 to 1023"},
           mistake{"[soft0]\nnuma-node = " + huge, 2, "from 0 to 1023"},
           mistake{"[soft0]\n[soft0 port 2]\nnuma-node = 1", 3, "second port has no setting"},
           mistake{"[soft0]\nwithout = inline\nmax-inline = 1", 3, "`without` has set this limit"},
           // The next two files are truncated, as if an editor or a full disk had left them behind.
           mistake{"[soft0]\nmtu = 10", 2, "the MTU must be"},
           mistake{"[soft0]\nwithout = atomics, win", 2, "not `win`"},
           mistake{zero, 1, "a control character"},
           mistake{"[soft0]\n" + zero + zero + zero, 2, "a control character"},
           mistake{"[soft0]\nmtu = 256 #" + zero, 2, "a control character"},
           mistake{"[soft0]\ngid 0 = ::1" + zero + "x v2", 2, "a control character"},
           mistake{"[soft0]\nmtu = 256\x1b[2J", 2, "a control character"},
           mistake{"[soft0]\nmtu\x7f = 256", 2, "a control character"},
           mistake{"\xef\xbb\xbf[soft0]", 1, "neither `[section]` nor"},
           mistake{"[soft0]\nmax-inline = 257", 2, "a number from 0 to 256"},
           mistake{"[soft0]\nmax-device-memory = 4194305", 2, "a number from 1 to 4194304"},
           mistake{"[soft0]\nmax-queue-pairs = many", 2, "a number from 1 to 16383"},
           mistake{"[soft0]\ngid 16 = ::1 v2", 2, "from 0 to 15"},
           mistake{"[soft0]\ngid 3 = ::1 v2\ngid  03 = ::2 v2", 3, "`gid 3` has already been set"},
           mistake{"[soft0]\ngid x = ::1 v2", 2, "from 0 to 15"},
           mistake{"[soft0]\ngid = ::1 v2", 2, "from 0 to 15"},
           mistake{"[soft0]\ngid 0 = here v2", 2, "an IPv6 or IPv4 address"},
           mistake{"[soft0]\ngid 0 = :: v2", 2, "other than zero"},
           mistake{"[soft0]\ngid 0 = ::1", 2, "`v1`, `v2` or `infiniband`"},
           mistake{"[soft0]\ngid 0 = ::1 v2 vlan 3", 2, "only `interface N`"},
           mistake{"[soft0]\ngid 0 = ::1 v2 interface", 2, "only `interface N`"},
           mistake{"[soft0]\ngid 0 = ::1 v2 interface 1 2", 2, "only `interface N`"},
           mistake{"[soft0]\ngid 0 = ::1 infiniband\nmtu = 256", 2, "the port's link layer"},
           mistake{"[soft0]\ngid 0 = ::1 v2\nlink-layer = infiniband", 2, "the port's link layer"},
           mistake{"[soft0]\ngid 0 = ::1 v2\n[soft1]\ngid 3 = ::1 v1", 4, "(see line 2)"},
       }) {
    INFO(each.text.substr(0, 60));
    configuration_problem problem;
    CHECK_FALSE(read_configuration(each.text, link_layer::ethernet, problem));
    CHECK(problem.line == each.line);
    INFO(problem.text);
    CHECK(problem.text.find(each.reason) != std::string::npos);
  }
}

}  // namespace softverbs
