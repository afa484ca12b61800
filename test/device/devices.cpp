// SPDX-License-Identifier: Apache-2.0
#include "../sanitized.hpp"
#include "device.hpp"
#include "failing_verb.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

using namespace verbspp;
using namespace verbspp::test;

namespace {

/// Returns the index of the address that should be chosen. This function does not use the library's
/// own ranking, but a simpler one, which is sufficient for the tested devices. RoCE v2 comes before
/// v1. Within a version, the order is IPv4, IPv6 of a wider scope, and link-local IPv6.
std::optional<unsigned> expected_gid_index(const gid_table& table, const testbed& bed) {
  if (!bed.is_ethernet()) return 0;
  const auto find = [&](gid_type type, auto fits) -> std::optional<unsigned> {
    for (const gid_entry& each : table)
      if (each.type == type && !each.address.is_zero() && fits(each.address))
        return each.index.value();
    return std::nullopt;
  };
  const auto ipv4 = [](const gid& g) { return g.bytes[10] == 0xff && g.subnet_prefix() == 0; };
  const auto local = [](const gid& g) { return g.subnet_prefix() == 0xfe80000000000000; };
  const auto global = [&](const gid& g) { return !ipv4(g) && !local(g); };
  for (const gid_type type : {gid_type::roce_v2, gid_type::roce_v1}) {
    if (const auto index = find(type, ipv4)) return index;
    if (const auto index = find(type, global)) return index;
    if (const auto index = find(type, local)) return index;
  }
  return std::nullopt;
}

port_number port_beyond(const testbed& bed) {
  return must(port_number::from(bed.limits.phys_port_cnt + 1));
}

}  // namespace

TEST_CASE("the device list contains the device under test with its name and GUID") {
  const device_list devices = must(device_list::query());
  REQUIRE_FALSE(devices.empty());
  std::size_t seen = 0;
  bool found = false;
  for (const device& each : devices) {
    ++seen;
    CHECK(std::strlen(each.name()) > 0);
    found = found || each.name() == device_name();
  }
  CHECK(seen == devices.size());
  CHECK(found);

  const device chosen = must(devices.find(device_name()));
  CHECK(chosen.name() == device_name());
  const context opened = must(chosen.open());
  CHECK(be64toh(must(opened.query_device()).node_guid) == chosen.guid().value());
  CHECK(opened.device_name() == device_name());
}

TEST_CASE("a missing device is not found") {
  const error by_list = failure_of(must(device_list::query()).find("no_such_device"));
  CHECK(by_list == error_kind::not_found);
  CHECK(by_list == std::errc::no_such_device);
  CHECK(by_list.hint() != nullptr);
  CHECK(failure_of(open_device("")) == error_kind::not_found);
  // A prefix of a device's name does not match the device.
  const std::string name = device_name();
  CHECK(failure_of(open_device(name.substr(0, name.size() - 1))) == error_kind::not_found);
}

TEST_CASE("the error for a missing device names it and the devices of the machine") {
  CHECK_THAT(failure_of(open_device("mlx5_77")).message(),
             Catch::Contains("\"mlx5_77\"") && Catch::Contains(device_name()));
  // Unprintable characters in names are replaced, because names may come from a user.
  CHECK_THAT(failure_of(open_device("a\nb")).message(), Catch::Contains("\"a?b\""));
  CHECK_THAT(failure_of(open_device(std::string(10'000, 'x'))).message(),
             Catch::Contains("xxx...") && Catch::Contains(device_name()));
  CHECK_THAT(failure_of(open_device("")).message(), Catch::Contains(device_name()));
}

TEST_CASE("a device outlives its device list") {
  std::optional<device> kept;
  {
    const device_list devices = must(device_list::query());
    kept = must(devices.find(device_name()));
  }
  CHECK(kept->name() == device_name());
  CHECK_NOTHROW(must(kept->open()));
}

TEST_CASE("the limits that a device reports permit queue pairs and completion queues") {
  const testbed bed;
  CHECK(bed.limits.max_qp_wr > 0);
  CHECK(bed.limits.max_sge > 0);
  CHECK(bed.limits.max_cqe > 0);
  CHECK(bed.limits.phys_port_cnt > 0);
}

TEST_CASE("the first active port is the first port that reports this state") {
  const testbed bed;
  for (unsigned number = 1; number <= bed.limits.phys_port_cnt; ++number) {
    const port_attributes port = must(bed.context.query_port(must(port_number::from(number))));
    CHECK(port.number().value() == number);
    CHECK(port.active_mtu() <= port.max_mtu());
    if (!port.is_active()) continue;
    CHECK(bed.port.number() == port.number());
    CHECK(bed.port.state() == port_state::active);
    // An InfiniBand port is not active until it has a LID.
    CHECK((bed.is_ethernet() || port.lid().value() != 0));
    break;
  }
}

TEST_CASE("querying a port number that the device does not have returns an error") {
  const testbed bed;
  const port_number beyond = port_beyond(bed);
  const error port = failure_of(bed.context.query_port(beyond));
  CHECK(port == error_kind::invalid_input);
  CHECK(port.native_errno() == EINVAL);
  CHECK(port.hint() != nullptr);
  CHECK(failure_of(bed.context.query_gid_table(beyond)) == error_kind::invalid_input);
  CHECK(failure_of(bed.context.query_gid(beyond, 0)) == error_kind::invalid_input);
}

TEST_CASE("the GID table and the query of one entry agree") {
  const testbed bed;
  const gid_table table = must(bed.context.query_gid_table(bed.port.number()));
  REQUIRE_FALSE(table.empty());
  CHECK(table.entries().size() == table.size());
  std::set<unsigned> used;
  int before = -1;
  for (const gid_entry& each : table) {
    CHECK(static_cast<int>(each.index.value()) > before);
    before = each.index.value();
    used.insert(each.index.value());
    const gid_entry single = must(bed.context.query_gid(bed.port.number(), each.index));
    CHECK(single.address == each.address);
    CHECK(single.type == each.type);
    CHECK(single.port == bed.port.number());
    CHECK(single.index == each.index);
    CHECK((each.type == gid_type::infiniband) == !bed.is_ethernet());
    CHECK_FALSE(each.address.is_zero());
  }
  // For each of the remaining indices, the port has an empty entry or no entry.
  for (unsigned index = 0; index <= gid_index::maximum; ++index) {
    if (used.contains(index)) continue;
    const error e =
        failure_of(bed.context.query_gid(bed.port.number(), must(gid_index::from(index))));
    INFO(index << ": " << e);
    if (index < bed.port.gid_table_length())
      CHECK(e == error_kind::not_found);
    else
      CHECK(e == error_kind::invalid_input);
  }
}

TEST_CASE("the most suitable local address is chosen and set on the device") {
  const testbed bed;
  const gid_table table = must(bed.context.query_gid_table(bed.port.number()));
  const auto expected = expected_gid_index(table, bed);
  REQUIRE(expected);
  const gid_entry entry =
      must(bed.context.query_gid(bed.port.number(), must(gid_index::from(*expected))));

  const connected pair = connect_to_itself(must(bed.left().build()));
  CHECK(pair.endpoint().address == entry.address);
  CHECK(pair.endpoint().gid_type == entry.type);
  if (bed.is_ethernet()) {
    const ibv_ah_attr address = query(pair.native_handle()).attributes.ah_attr;
    CHECK(address.grh.sgid_index == *expected);
  }
}

TEST_CASE("an explicit GID index is used") {
  const testbed bed;
  const gid_table table = must(bed.context.query_gid_table(bed.port.number()));
  for (const gid_entry& each : table) {
    INFO(each);
    prepared pair = must(bed.left().gid_index(each.index).build());
    CHECK(pair.endpoint().address == each.address);
    CHECK(pair.endpoint().gid_type == each.type);
    const endpoint end = pair.endpoint();
    const auto connection = std::move(pair).handshake(end);
    // It depends on the network's configuration whether the port can reach itself at an address.
    // For example, a link-local address may not resolve.
    if (!connection.has_value() || !bed.is_ethernet()) continue;
    const ibv_ah_attr address = query(connection.assume_value().native_handle()).attributes.ah_attr;
    CHECK(address.is_global == 1);
    CHECK(address.grh.sgid_index == each.index.value());
    CHECK(gid::from_native(address.grh.dgid) == each.address);
  }
}

TEST_CASE("a port is found by the local address from which a peer is reached") {
  const testbed bed;
  bool has_interface = false;
  for (const gid_entry& each : must(bed.context.query_gid_table(bed.port.number()))) {
    // When the host connects to one of its own addresses, it also uses that address as its source
    // address.
    if (each.interface_index == 0 || each.address.is_link_local()) continue;
    INFO(each);
    has_interface = true;
    const port_towards found = must(open_device_towards(each.address));
    CHECK(must(found.context.query_gid(found.port, found.gid_index)).address == each.address);
    CHECK(must(found.context.query_port(found.port)).is_active());
  }
  if (!has_interface) SKIP("the addresses of this device do not belong to a network interface");
}

TEST_CASE("contexts of one device are independent of each other") {
  const release_watch watch;
  std::optional<context> first = must(open_device(device_name()));
  const context second = must(open_device(device_name()));
  CHECK(*first != second);
  CHECK(*first == context(*first));
  CHECK(first->native_handle() != second.native_handle());
  const protection_domain domain = must(protection_domain::allocate(second));
  first.reset();
  CHECK_NOTHROW(must(second.query_device()));
  CHECK_NOTHROW(must(protection_domain::allocate(domain.context())));
}

TEST_CASE("query results can be printed") {
  const testbed bed;
  std::ostringstream text;
  text << bed.port;
  CHECK_THAT(text.str(), Catch::Contains("active"));
  for (const gid_entry& each : must(bed.context.query_gid_table(bed.port.number()))) {
    std::ostringstream line;
    line << each;
    CHECK_THAT(line.str(), Catch::Contains(to_string(each.address)));
    CHECK_THAT(line.str(), Catch::Contains(to_string(each.type)));
  }
}

TEST_CASE("a device and its context report the same NUMA node and bind a thread alike") {
  const testbed bed;
  const device chosen = must(must(device_list::query()).find(device_name()));
  const auto node = must(numa_node_of(chosen));
  CHECK(must(numa_node_of(bed.context)) == node);
  if (device_name().starts_with("soft")) CHECK_FALSE(node);
  std::thread([&] {
    CHECK(must(bind_this_thread_near(chosen, numa_binding::as_far_as_possible)) ==
          must(bind_this_thread_near(bed.context, numa_binding::as_far_as_possible)));
    if (!node)
      CHECK(failure_of(bind_this_thread_near(chosen, numa_binding::strict)) ==
            error_kind::not_supported);
  }).join();
  context moved = bed.context;
  const context taken = std::move(moved);
  CHECK(failure_of(numa_node_of(moved)) ==  // NOLINT(bugprone-use-after-move)
        error_kind::invalid_input);
}

#if !defined(VERBSPP_TEST_THREAD_SANITIZED)
TEST_CASE("an EIO error in a forked child reports that the parent opened the device") {
  const testbed bed;
  const failing_verb fails("ibv_create_cq", EIO);
  const auto told_now = [&] {
    std::array<char, 512> text{};
    const auto made = completion_queue::create(bed.context, 4);
    if (!made.has_value()) made.error().format(text);
    return text;
  };
  const std::string_view parents = "a device that its parent opened";
  std::array<int, 2> pipe{};
  REQUIRE(::pipe(pipe.data()) == 0);
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    const auto inherited = told_now();
    // Once the child has opened the device itself, its errors no longer mention the parent.
    const auto own = open_device(device_name());
    const auto later = told_now();
    const bool is_right = std::string_view(inherited.data()).find(parents) != std::string::npos &&
                          own.has_value() &&
                          std::string_view(later.data()).find(parents) == std::string::npos;
    const bool is_written = ::write(pipe[1], inherited.data(), std::strlen(inherited.data())) > 0;
    ::_exit(is_right && is_written ? 0 : 1);
  }
  ::close(pipe[1]);
  std::array<char, 512> told{};
  CHECK(::read(pipe[0], told.data(), told.size() - 1) > 0);
  ::close(pipe[0]);
  int status = -1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  INFO(told.data());
  CHECK(status == 0);
  CHECK_THAT(told_now().data(), !Catch::Contains(std::string(parents)));
}
#endif
