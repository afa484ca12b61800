// SPDX-License-Identifier: Apache-2.0
// Tests that use the devices of devices_that_differ.conf. They run separately.
#include "support/faults.hpp"
#include "support/frames.hpp"
#include "support/peer.hpp"

#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <net/if.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <set>
#include <string>
#include <vector>

namespace {

options at_port(std::uint8_t port, std::uint8_t gid_index) {
  return {.port = port, .gid_index = gid_index};
}

ibv_port_attr port_of(ibv_context* verbs, std::uint8_t number) {
  ibv_port_attr port{};
  REQUIRE(ibv_query_port(verbs, number, &port) == 0);
  return port;
}

std::string text_of(const ibv_gid& gid) {
  char text[INET6_ADDRSTRLEN];
  return ::inet_ntop(AF_INET6, gid.raw, text, sizeof(text));
}

bool writes(endpoint& from, const endpoint& to) {
  REQUIRE(from.write(1, {from.piece(0, 8)}, to.here()) == 0);
  const ibv_wc completion = from.wait();
  return completion.status == IBV_WC_SUCCESS;
}

}  // namespace

TEST_CASE("the devices and ports match the configuration", "[.][differ]") {
  int count = 0;
  ibv_free_device_list(ibv_get_device_list(&count));
  CHECK(count == 3);
  open_context two_ports("soft0");
  ibv_device_attr device{};
  REQUIRE(ibv_query_device(two_ports.verbs, &device) == 0);
  CHECK(device.phys_port_cnt == 2);
  CHECK(port_of(two_ports.verbs, 1).active_mtu == IBV_MTU_1024);
  CHECK(port_of(two_ports.verbs, 1).state == IBV_PORT_ACTIVE);
  CHECK(port_of(two_ports.verbs, 2).active_mtu == IBV_MTU_4096);
  CHECK(port_of(two_ports.verbs, 2).state == IBV_PORT_DOWN);
  ibv_port_attr none{};
  CHECK(ibv_query_port(two_ports.verbs, 3, &none) == EINVAL);
  open_context one_port("soft1");
  CHECK(ibv_query_port(one_port.verbs, 2, &none) == EINVAL);
  open_context infiniband("soft2");
  CHECK(port_of(infiniband.verbs, 1).link_layer == IBV_LINK_LAYER_INFINIBAND);
  CHECK(port_of(infiniband.verbs, 1).lid != 0);
}

TEST_CASE("a GID table has gaps, duplicates and unusual addresses", "[.][differ]") {
  open_context device("soft0");
  std::vector<ibv_gid_entry> table(64);
  REQUIRE(ibv_query_gid_table(device.verbs, table.data(), table.size(), 0) == 6 + 6);
  struct expected {
    unsigned index;
    const char* address;
    unsigned type;
    unsigned interface;
  };
  const expected first_port[] = {{0, "fe80::1", IBV_GID_TYPE_ROCE_V2, 0},
                                 {3, "::ffff:169.254.7.9", IBV_GID_TYPE_ROCE_V2, 0},
                                 {5, "::ffff:10.1.2.3", IBV_GID_TYPE_ROCE_V1, 0},
                                 {6, "::ffff:10.1.2.3", IBV_GID_TYPE_ROCE_V2, 4},
                                 {7, "::ffff:10.1.2.3", IBV_GID_TYPE_ROCE_V2, 12},
                                 {8, "::ffff:127.9.8.7", IBV_GID_TYPE_ROCE_V2, 1}};
  for (std::size_t at = 0; at < 6; ++at) {
    CHECK(table[at].port_num == 1);
    CHECK(table[at].gid_index == first_port[at].index);
    CHECK(text_of(table[at].gid) == first_port[at].address);
    CHECK(table[at].gid_type == first_port[at].type);
    CHECK(table[at].ndev_ifindex == first_port[at].interface);
  }
  CHECK(table[6].port_num == 2);
  ibv_gid_entry entry{};
  CHECK(ibv_query_gid_ex(device.verbs, 1, 1, &entry, 0) == ENODATA);
  CHECK(ibv_query_gid_ex(device.verbs, 1, 16, &entry, 0) == EINVAL);
  CHECK(ibv_query_gid_ex(device.verbs, 2, 1, &entry, 0) == 0);
  ibv_gid gid{};
  CHECK(ibv_query_gid(device.verbs, 1, 3, &gid) == 0);
  CHECK(text_of(gid) == "::ffff:169.254.7.9");
}

TEST_CASE("a device's folder lists the network interfaces of its addresses", "[.][differ]") {
  const open_context device("soft0");
  const std::string path = "/sys/class/infiniband/soft0/device/net/";
  std::set<std::string> expected{".", ".."};
  // Interface 1 exists on every host. The others may not exist.
  for (const unsigned interface : {1U, 4U, 12U}) {
    std::array<char, IF_NAMESIZE> name{};
    if (::if_indextoname(interface, name.data()) != nullptr) expected.emplace(name.data());
  }
  REQUIRE(expected.size() >= 3);
  std::set<std::string> found;
  DIR* const folder = ::opendir(path.c_str());
  REQUIRE(folder != nullptr);
  while (const dirent* entry = ::readdir(folder)) found.insert(entry->d_name);
  CHECK(::closedir(folder) == 0);
  CHECK(found == expected);
  for (const std::string& name : expected)
    if (name.front() != '.') CHECK(::access((path + name).c_str(), F_OK) == 0);
  CHECK(::access((path + "none0").c_str(), F_OK) == -1);
  CHECK(::access("/sys/class/infiniband/soft2/device/net", F_OK) == -1);
}

TEST_CASE("unusual addresses can be reached", "[.][differ]") {
  for (const std::uint8_t index : {std::uint8_t{0}, std::uint8_t{3}, std::uint8_t{7}}) {
    connection link(at_port(1, index));
    CHECK(writes(link.left, link.right));
  }
  connection link(options{.device = "soft2"});
  CHECK(writes(link.left, link.right));
}

TEST_CASE("an empty entry of the GID table is not used as an address", "[.][differ]") {
  endpoint end(at_port(1, 1));
  REQUIRE(end.initialize() == 0);
  address there = end.here();
  there.gid = endpoint(at_port(1, 3)).here().gid;
  CHECK(end.ready_to_receive(there) == ENODATA);
}

TEST_CASE("each port of a device goes up and down independently of the other", "[.][differ]") {
  options second = at_port(2, 3);
  second.timeout = 1;
  second.retry_count = 2;
  connection below(at_port(1, 3));
  {
    connection above(second);
    CHECK_FALSE(writes(above.left, above.right));
  }
  CHECK(writes(below.left, below.right));
  connection above(second);
  const faults set("port-up@soft0/2");
  const ibv_async_event up = above.left.event();
  CHECK(up.event_type == IBV_EVENT_PORT_ACTIVE);
  CHECK(up.element.port_num == 2);
  CHECK(port_of(above.left.context, 2).state == IBV_PORT_ACTIVE);
  CHECK(writes(above.left, above.right));

  faults::add("port-down@soft0/1");
  const ibv_async_event down = above.left.event();
  CHECK(down.event_type == IBV_EVENT_PORT_ERR);
  CHECK(down.element.port_num == 1);
  CHECK(port_of(above.left.context, 1).state == IBV_PORT_DOWN);
  CHECK(writes(above.left, above.right));
  REQUIRE(below.left.write(2, {below.left.piece(0, 8)}, below.right.here()) == 0);
  CHECK(below.left.quiet());
  faults::add("port-up@soft0/1");
  CHECK(below.left.wait().status == IBV_WC_SUCCESS);

  // After the reset, the configured state applies again.
  softverbs_reset_faults();
  CHECK(port_of(above.left.context, 2).state == IBV_PORT_DOWN);
}

TEST_CASE("a connection can lead from one port of a device to the other", "[.][differ]") {
  const faults set("port-up@soft0/2");
  connection link(at_port(1, 3), at_port(2, 3));
  CHECK(writes(link.left, link.right));
  CHECK(writes(link.right, link.left));
  // The path must start at the port that the queue pair uses.
  endpoint end(at_port(1, 3));
  REQUIRE(end.initialize() == 0);
  const address there = link.right.here();
  end.wanted.port = 2;
  CHECK(end.ready_to_receive(there) == EINVAL);
  end.wanted.port = 1;
  CHECK(end.ready_to_receive(there) == 0);
  endpoint nowhere(at_port(1, 3));
  nowhere.wanted.port = 3;
  CHECK(nowhere.initialize() == EINVAL);
}

TEST_CASE("a tagging rule reports its tag even if its queue pair has other rules", "[.][differ]") {
  if (!may_send_frames()) return;
  tag_reader end;
  end.hear(rule(IBV_FLOW_ATTR_SNIFFER));
  rule tags;
  tags.to(own_mac(2)).tagging(77).attributes().port = 2;
  end.hear(tags);
  frame_end other;
  CHECK(other.send_frame(frame_of(own_mac(2), own_mac(1), 0x88b5, {1})) == IBV_WC_SUCCESS);
  CHECK(end.next_tag() == 77);
}

TEST_CASE("a small MTU limits paths and datagrams", "[.][differ]") {
  endpoint end(at_port(1, 3));
  REQUIRE(end.initialize() == 0);
  ibv_qp_attr path{};
  path.qp_state = IBV_QPS_RTR;
  path.path_mtu = IBV_MTU_2048;
  path.dest_qp_num = end.pair->qp_num;
  path.max_dest_rd_atomic = 1;
  path.ah_attr = end.address_of(end.here());
  constexpr int mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                       IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
  CHECK(ibv_modify_qp(end.pair, &path, mask) == EINVAL);
  path.path_mtu = IBV_MTU_1024;
  CHECK(ibv_modify_qp(end.pair, &path, mask) == 0);

  options datagrams = at_port(1, 3);
  datagrams.type = IBV_QPT_UD;
  endpoint sender(datagrams);
  sender.connect(sender.here());
  const address_handle handle(sender, sender.here());
  const std::uint32_t qpn = sender.pair->qp_num;
  REQUIRE(sender.send_to(handle, qpn, 1, {sender.piece(0, 1024)}) == 0);
  CHECK(sender.wait().status == IBV_WC_SUCCESS);
  REQUIRE(sender.send_to(handle, qpn, 2, {sender.piece(0, 1025)}) == 0);
  CHECK(sender.wait().status == IBV_WC_LOC_LEN_ERR);
}

TEST_CASE("disabled features are refused", "[.][differ]") {
  options small = with_atomics();
  small.device = "soft1";
  small.cq_entries = 15;
  small.send_requests = small.receive_requests = 8;
  small.entries = 2;
  small.inline_data = 0;
  small.reads = 1;
  endpoint end(small);
  ibv_device_attr device{};
  REQUIRE(ibv_query_device(end.context, &device) == 0);
  CHECK(device.atomic_cap == IBV_ATOMIC_NONE);
  CHECK((device.device_cap_flags & IBV_DEVICE_MEM_WINDOW) == 0);
  CHECK(device.max_mw == 0);
  CHECK(ibv_alloc_mw(end.domain, IBV_MW_TYPE_1) == nullptr);
  CHECK(end.granted.max_inline_data == 0);
  CHECK(errno == EOPNOTSUPP);
  ibv_alloc_dm_attr eight_bytes{8, 0, 0};
  CHECK(refusal([&] { return ibv_alloc_dm(end.context, &eight_bytes); }) == EOPNOTSUPP);
  end.connect(end.here());
  CHECK(end.fetch_and_add(1, end.piece(0, 8), end.here(), 1) == EINVAL);
  CHECK(end.send(1, {end.piece(0, 8)}, IBV_SEND_INLINE) == EINVAL);
  CHECK(writes(end, end));
  ibv_cq_init_attr_ex extended{};
  extended.cqe = 1;
  CHECK(refusal([&] { return ibv_create_cq_ex(end.context, &extended); }) == EOPNOTSUPP);
  // This device has no extended verbs, so the inline function in verbs.h falls back to the older
  // verb.
  ibv_device_attr_ex answer{};
  CHECK(ibv_query_device_ex(end.context, nullptr, &answer) == 0);
  CHECK(answer.orig_attr.max_qp == 2);
}

TEST_CASE("limits count objects and not the structures that refer to them", "[.][differ]") {
  const open_context opened("soft1");
  ibv_context* const other = ibv_import_device(::fcntl(opened.verbs->cmd_fd, F_DUPFD_CLOEXEC, 0));
  REQUIRE(other != nullptr);
  ibv_pd* const domain = ibv_alloc_pd(opened.verbs);
  REQUIRE(domain != nullptr);
  ibv_pd* const same = ibv_import_pd(other, domain->handle);
  REQUIRE(same != nullptr);
  std::vector<char> memory(64);
  std::vector<ibv_mr*> gone;
  for (int round = 0; round < 10; ++round) {
    ibv_mr* const region = ibv_reg_mr(domain, memory.data(), memory.size(), 0);
    REQUIRE(region != nullptr);
    ibv_mr* const imported = ibv_import_mr(same, region->handle);
    REQUIRE(imported != nullptr);
    if (round % 2 == 0)
      ibv_unimport_mr(region);
    else
      gone.push_back(region);
    REQUIRE(ibv_dereg_mr(imported) == 0);
  }
  for (ibv_mr* each : gone) {
    CHECK(ibv_dereg_mr(each) == ENOENT);
    ibv_unimport_mr(each);
  }
  ibv_mr* const last = ibv_reg_mr(domain, memory.data(), memory.size(), 0);
  REQUIRE(last != nullptr);
  for (int round = 0; round < 10; ++round) REQUIRE(ibv_import_mr(same, last->handle) != nullptr);
  CHECK(ibv_reg_mr(same, memory.data(), memory.size(), 0) != nullptr);
  CHECK(refusal([&] { return ibv_reg_mr(same, memory.data(), memory.size(), 0); }) == ENOMEM);
  CHECK(ibv_close_device(other) == 0);
}

TEST_CASE("a device reports its limits of receive work queues, and they can be reached",
          "[.][differ]") {
  open_context opened;
  ibv_device_attr_ex device{};
  REQUIRE(ibv_query_device_ex(opened.verbs, nullptr, &device) == 0);
  CHECK(device.max_wq_type_rq == 2);
  CHECK(device.rss_caps.max_rwq_indirection_tables == 1);
  ibv_wq_init_attr wanted{};
  wanted.max_wr = wanted.max_sge = 1;
  wanted.pd = ibv_alloc_pd(opened.verbs);
  wanted.cq = ibv_create_cq(opened.verbs, 1, nullptr, nullptr, 0);
  ibv_wq* queues[2]{};
  for (ibv_wq*& each : queues) {
    each = ibv_create_wq(opened.verbs, &wanted);
    REQUIRE(each != nullptr);
  }
  CHECK(refusal([&] { return ibv_create_wq(opened.verbs, &wanted); }) == ENOMEM);
  ibv_rwq_ind_table_init_attr both{1, queues, 0};
  ibv_rwq_ind_table* const table = ibv_create_rwq_ind_table(opened.verbs, &both);
  REQUIRE(table != nullptr);
  CHECK(refusal([&] { return ibv_create_rwq_ind_table(opened.verbs, &both); }) == ENOMEM);
  CHECK(ibv_destroy_rwq_ind_table(table) == 0);
  CHECK(ibv_create_rwq_ind_table(opened.verbs, &both) != nullptr);
}

TEST_CASE("a device grants no more than its limits", "[.][differ]") {
  options all;
  all.device = "soft2";
  all.cq_entries = 300;
  all.send_requests = all.receive_requests = 100;
  connection link(all);
  endpoint& end = link.left;
  CHECK(end.granted.max_send_wr == 100);
  CHECK(end.granted.max_recv_wr == 100);
  CHECK(end.queue->cqe == 300);
  REQUIRE(ibv_resize_cq(end.queue, 290) == 0);
  CHECK(end.queue->cqe >= 290);
  CHECK(end.queue->cqe <= 300);
  // Each round begins at a different place in the rings.
  for (std::uint64_t round = 0; round < 3; ++round) {
    for (std::uint64_t id = 0; id < 100; ++id) REQUIRE(end.post_receive(id, {}) == 0);
    CHECK(end.post_receive(100, {}) == ENOMEM);
    ibv_sge piece = link.right.piece(0, 8);
    std::vector<ibv_send_wr> writes = list_of_writes(101, piece, end.here());
    ibv_send_wr* refused = nullptr;
    CHECK(ibv_post_send(link.right.pair, writes.data(), &refused) == ENOMEM);
    CHECK(refused == &writes.back());
    for (std::uint64_t id = 1; id <= 100; ++id) CHECK(link.right.wait().wr_id == id);
    for (std::uint64_t id = 0; id < 100; ++id) {
      REQUIRE(link.right.send(id, {}) == 0);
      CHECK(link.right.wait().wr_id == id);
      CHECK(end.wait().wr_id == id);
    }
  }
  endpoint shares([&] {
    options wanted = all;
    wanted.shared_receives = true;
    return wanted;
  }());
  ibv_srq_attr limits{};
  REQUIRE(ibv_query_srq(shares.shared, &limits) == 0);
  CHECK(limits.max_wr <= 100);
}

TEST_CASE("a queue pair is granted no more inline data than the device allows", "[.][differ]") {
  connection link(options{.device = "soft2", .inline_data = 100});
  endpoint& end = link.left;
  CHECK(end.granted.max_inline_data == 100);
  CHECK(end.write(1, {end.piece(0, 101)}, link.right.here(), 0, IBV_SEND_INLINE) == EINVAL);
  REQUIRE(end.write(2, {end.piece(0, 100)}, link.right.here(), 0,
                    IBV_SEND_INLINE | IBV_SEND_SIGNALED) == 0);
  CHECK(end.wait().status == IBV_WC_SUCCESS);
}

TEST_CASE("a device reports its limits, and they can be reached", "[.][differ]") {
  open_context opened("soft1");
  ibv_context* verbs = opened.verbs;
  ibv_device_attr device{};
  REQUIRE(ibv_query_device(verbs, &device) == 0);
  CHECK(device.max_qp == 2);
  CHECK(device.max_qp_wr == 8);
  CHECK(device.max_sge == 2);
  CHECK(device.max_cq == 2);
  CHECK(device.max_cqe == 15);
  CHECK(device.max_mr == 2);
  CHECK(device.max_pd == 2);
  CHECK(device.max_srq == 1);
  CHECK(device.max_qp_rd_atom == 1);
  CHECK(device.max_ah == 1);
  ibv_pd* domain = ibv_alloc_pd(verbs);
  REQUIRE(ibv_alloc_pd(verbs) != nullptr);
  CHECK(refusal([&] { return ibv_alloc_pd(verbs); }) == ENOMEM);
  CHECK(refusal([&] { return ibv_create_cq(verbs, 16, nullptr, nullptr, 0); }) == EINVAL);
  ibv_cq* queue = ibv_create_cq(verbs, 15, nullptr, nullptr, 0);
  REQUIRE(queue != nullptr);
  REQUIRE(ibv_create_cq(verbs, 1, nullptr, nullptr, 0) != nullptr);
  CHECK(refusal([&] { return ibv_create_cq(verbs, 1, nullptr, nullptr, 0); }) == ENOMEM);
  CHECK(ibv_resize_cq(queue, 16) == EINVAL);
  std::vector<char> memory(64);
  for (int round = 0; round < 2; ++round)
    REQUIRE(ibv_reg_mr(domain, memory.data(), memory.size(), 0) != nullptr);
  CHECK(refusal([&] { return ibv_reg_mr(domain, memory.data(), memory.size(), 0); }) == ENOMEM);
  ibv_srq_init_attr receives{};
  receives.attr = {9, 1, 0};
  CHECK(ibv_create_srq(domain, &receives) == nullptr);
  receives.attr = {8, 2, 0};
  REQUIRE(ibv_create_srq(domain, &receives) != nullptr);
  CHECK(refusal([&] { return ibv_create_srq(domain, &receives); }) == ENOMEM);
  const auto create = [&](std::uint32_t requests, std::uint32_t entries, std::uint32_t inlined) {
    ibv_qp_init_attr wanted = pair_with(queue, {requests, requests, entries, entries, inlined});
    errno = 0;
    return ibv_create_qp(domain, &wanted);
  };
  CHECK(create(9, 1, 0) == nullptr);
  CHECK(errno == EINVAL);
  CHECK(create(1, 3, 0) == nullptr);
  CHECK(create(1, 1, 1) == nullptr);
  REQUIRE(create(8, 2, 0) != nullptr);
  REQUIRE(create(8, 2, 0) != nullptr);
  CHECK(create(1, 1, 0) == nullptr);
  CHECK(errno == ENOMEM);
}

TEST_CASE("a device reports the NUMA node of its section", "[.][differ]") {
  const auto node_of = [](const char* device) {
    const std::string path = "/sys/class/infiniband/" + std::string(device) + "/device/numa_node";
    std::FILE* file = std::fopen(path.c_str(), "re");
    REQUIRE(file != nullptr);
    int node = -2;
    CHECK(std::fscanf(file, "%d", &node) == 1);
    std::fclose(file);
    return node;
  };
  CHECK(node_of("soft0") == -1);
  CHECK(node_of("soft1") == 3);
}

TEST_CASE("processes with the same configuration communicate", "[.][differ]") {
  endpoint end(at_port(1, 3));
  peer other("target",
             ("SOFTVERBS_CONFIG=" + std::string(std::getenv("SOFTVERBS_CONFIG"))).c_str());
  const address there = other.meet(end);
  REQUIRE(end.write(1, {end.piece(0, 8)}, there) == 0);
  CHECK(end.wait().status == IBV_WC_SUCCESS);
  other.finish();
}

TEST_CASE("processes with different configurations report this instead of communicating",
          "[.][differ]") {
  char name[] = "/tmp/softverbs-configuration-XXXXXX";
  const int file = ::mkstemp(name);
  REQUIRE(file >= 0);
  const std::string text = "[soft0]\ngid 3 = 169.254.7.9 v2\n";
  REQUIRE(::write(file, text.data(), text.size()) == static_cast<ssize_t>(text.size()));
  std::FILE* said = std::tmpfile();
  REQUIRE(said != nullptr);
  const int before = ::dup(STDERR_FILENO);
  options impatient = at_port(1, 3);
  impatient.timeout = 1;
  impatient.retry_count = 2;
  {
    endpoint end(impatient);
    peer other("target", ("SOFTVERBS_CONFIG=" + std::string(name)).c_str());
    const address there = other.meet(end);
    ::dup2(::fileno(said), STDERR_FILENO);
    REQUIRE(end.write(1, {end.piece(0, 8)}, there) == 0);
    const ibv_wc failed = end.wait();
    ::dup2(before, STDERR_FILENO);
    CHECK(failed.status == IBV_WC_RETRY_EXC_ERR);
    other.finish();
  }
  ::close(before);
  ::close(file);
  ::unlink(name);
  std::rewind(said);
  char line[400] = "";
  CHECK(std::fgets(line, sizeof(line), said) != nullptr);
  CHECK(std::string(line).find("the same file in SOFTVERBS_CONFIG") != std::string::npos);
  CHECK(std::fgets(line, sizeof(line), said) == nullptr);
  std::fclose(said);
}
