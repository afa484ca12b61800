// SPDX-License-Identifier: Apache-2.0
#include "catch.hpp"
#include "support/descriptors.hpp"
#include "support/fabric.hpp"
#include "support/forked.hpp"
#include <softverbs/softverbs.h>

#include <endian.h>
#include <fcntl.h>
#include <rdma/rdma_user_ioctl_cmds.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>

TEST_CASE("the devices are listed with names and distinct GUIDs") {
  int count = 0;
  ibv_device** list = ibv_get_device_list(&count);
  REQUIRE(list != nullptr);
  REQUIRE(count >= 2);
  CHECK(list[count] == nullptr);
  ibv_device* first = list[count - 2];
  ibv_device* second = list[count - 1];
  CHECK(std::string(ibv_get_device_name(first)) == "soft0");
  CHECK(std::string(ibv_get_device_name(second)) == "soft1");
  CHECK(ibv_get_device_guid(first) != ibv_get_device_guid(second));
  ibv_free_device_list(list);
}

TEST_CASE("a device list can be freed with free, as some programs do") {
  ibv_device** list = ibv_get_device_list(nullptr);
  REQUIRE(list != nullptr);
  ibv_device* const first = list[0];
  std::free(static_cast<void*>(list));
  CHECK(std::string(ibv_get_device_name(first)) == "soft0");
}

TEST_CASE("an opened device outlives the list") {
  open_context device;
  CHECK(std::string(ibv_get_device_name(device.verbs->device)) == "soft0");
  CHECK(device.verbs->async_fd >= 0);
  CHECK(device.verbs->num_comp_vectors > 1);
}

TEST_CASE("the command descriptor can be duplicated and rejects commands") {
  int duplicate = -1;
  {
    open_context device;
    open_context again;
    const int descriptor = device.verbs->cmd_fd;
    REQUIRE(descriptor >= 0);
    CHECK(descriptor != again.verbs->cmd_fd);
    CHECK((::fcntl(descriptor, F_GETFD) & FD_CLOEXEC) != 0);
    duplicate = ::dup(descriptor);
    REQUIRE(duplicate >= 0);
    char command[8]{};
    CHECK(::write(duplicate, command, sizeof(command)) == -1);
    CHECK(errno == EPERM);
    CHECK(::read(duplicate, command, sizeof(command)) == 0);
    CHECK(::ioctl(duplicate, RDMA_VERBS_IOCTL, command) == -1);
    CHECK(errno == ENOTTY);
    const forked child([&] { return ::close(descriptor) == 0; });
    CHECK(child.ended_well());
    CHECK(::fcntl(descriptor, F_GETFD) >= 0);
  }
  // The program has to close its duplicate.
  CHECK(::close(duplicate) == 0);
}

TEST_CASE("opening and closing devices leaks no descriptor") {
  {
    const open_context once;
  }
  const std::ptrdiff_t before = descriptors_open();
  for (int round = 0; round < 20; ++round) const open_context device;
  // In the meantime, the device may open and close descriptors for peers from an earlier test.
  CHECK(eventually([&] { return descriptors_open() <= before; }));
}

TEST_CASE("the vendor ID matches the prefix of the GUIDs") {
  open_context device;
  ibv_device_attr attributes{};
  REQUIRE(ibv_query_device(device.verbs, &attributes) == 0);
  // The GUIDs begin with the vendor ID, except that EUI-64 inverts one of its bits.
  CHECK(attributes.vendor_id == (be64toh(attributes.node_guid) >> 40 ^ 0x02'0000));
  CHECK(attributes.vendor_part_id == 1);
}

TEST_CASE("a soft device has no index, because the kernel doesn't number it") {
  const open_context device;
  // Programs use an index to ask the kernel about a device, but the kernel doesn't know this
  // device.
  CHECK(ibv_get_device_index(device.verbs->device) == -1);
}

TEST_CASE("a device can be opened many times and again after it was closed") {
  for (int round = 0; round < 3; ++round) {
    open_context one;
    open_context two;
    ibv_pd* domain = ibv_alloc_pd(one.verbs);
    REQUIRE(domain != nullptr);
    CHECK(ibv_dealloc_pd(domain) == 0);
  }
}

TEST_CASE("the limits are plausible and the extended query agrees") {
  open_context device;
  ibv_device_attr plain{};
  REQUIRE(ibv_query_device(device.verbs, &plain) == 0);
  CHECK(plain.phys_port_cnt == 1);
  CHECK(plain.max_qp_rd_atom == 16);
  CHECK(plain.max_qp_init_rd_atom == 16);
  ibv_device_attr_ex extended{};
  REQUIRE(ibv_query_device_ex(device.verbs, nullptr, &extended) == 0);
  CHECK(extended.orig_attr.max_qp_wr == plain.max_qp_wr);
  CHECK(extended.phys_port_cnt_ex == 1);
  CHECK(std::string(plain.fw_ver) == softverbs_version());
}

TEST_CASE("each device grants as many queue pairs as it reports") {
  for (const char* name : {"soft0", "soft1"}) {
    open_context device(name);
    ibv_device_attr told{};
    REQUIRE(ibv_query_device(device.verbs, &told) == 0);
    ibv_pd* domain = ibv_alloc_pd(device.verbs);
    ibv_qp_init_attr wanted = pair_with(ibv_create_cq(device.verbs, 1, nullptr, nullptr, 0));
    int granted = 0;
    while (ibv_create_qp(domain, &wanted) != nullptr) ++granted;
    CHECK(errno == ENOMEM);
    CHECK(granted == told.max_qp);
  }
}

TEST_CASE("the single port is active") {
  open_context device;
  ibv_port_attr port{};
  REQUIRE(ibv_query_port(device.verbs, 1, &port) == 0);
  CHECK(port.state == IBV_PORT_ACTIVE);
  CHECK(port.active_mtu == IBV_MTU_4096);
  CHECK(port.pkey_tbl_len == 1);
  CHECK(port.link_layer == (on_ethernet() ? IBV_LINK_LAYER_ETHERNET : IBV_LINK_LAYER_INFINIBAND));
  CHECK((port.lid != 0) == !on_ethernet());
  CHECK(ibv_query_port(device.verbs, 0, &port) == EINVAL);
  CHECK(ibv_query_port(device.verbs, 2, &port) == EINVAL);
}

TEST_CASE("the pkey table has only the default pkey") {
  open_context device;
  __be16 pkey = 0;
  REQUIRE(ibv_query_pkey(device.verbs, 1, 0, &pkey) == 0);
  CHECK(pkey == htobe16(0xffff));
  CHECK(ibv_query_pkey(device.verbs, 1, 1, &pkey) == -1);
  CHECK(ibv_get_pkey_index(device.verbs, 1, htobe16(0xffff)) == 0);
  CHECK(ibv_get_pkey_index(device.verbs, 1, htobe16(0x1234)) == -1);
}

TEST_CASE("the GID table matches the port's link layer") {
  open_context device;
  ibv_gid_entry table[32];
  const ssize_t count = ibv_query_gid_table(device.verbs, table, 32, 0);
  REQUIRE(count == (on_ethernet() ? 6 : 1));
  for (ssize_t at = 0; at < count; ++at) {
    const ibv_gid_entry& entry = table[at];
    CHECK(entry.gid_index == static_cast<std::uint32_t>(at));
    CHECK(entry.port_num == 1);
    CHECK(entry.ndev_ifindex == 0);
    if (!on_ethernet())
      CHECK(entry.gid_type == IBV_GID_TYPE_IB);
    else
      CHECK(entry.gid_type == (at % 2 == 0 ? IBV_GID_TYPE_ROCE_V1 : IBV_GID_TYPE_ROCE_V2));
    ibv_gid gid{};
    CHECK(ibv_query_gid(device.verbs, 1, static_cast<int>(at), &gid) == 0);
    CHECK(std::memcmp(gid.raw, entry.gid.raw, sizeof(gid)) == 0);
    ibv_gid_entry single{};
    CHECK(ibv_query_gid_ex(device.verbs, 1, entry.gid_index, &single, 0) == 0);
    CHECK(single.gid_type == entry.gid_type);
  }
  CHECK(be64toh(table[0].gid.global.subnet_prefix) == 0xfe80000000000000U);
  ibv_gid_entry entry{};
  CHECK(ibv_query_gid_ex(device.verbs, 1, 10, &entry, 0) == ENODATA);
  CHECK(ibv_query_gid_ex(device.verbs, 1, 1000, &entry, 0) == EINVAL);
  CHECK(ibv_query_gid_table(device.verbs, table, 0, 0) < 0);
  ibv_gid empty{};
  CHECK(ibv_query_gid(device.verbs, 1, 10, &empty) == 0);
  CHECK(empty.global.interface_id == 0);
  CHECK(ibv_query_gid(device.verbs, 1, 1000, &empty) == -1);
}

TEST_CASE("unsupported features are refused instead of ignored") {
  endpoint end;
  ibv_qp_init_attr_ex wanted{};
  wanted.send_cq = wanted.recv_cq = end.queue;
  wanted.qp_type = IBV_QPT_RC;
  wanted.cap = {4, 4, 1, 1, 0};
  wanted.pd = end.domain;
  wanted.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_IND_TABLE;
  CHECK(refusal([&] { return ibv_create_qp_ex(end.context, &wanted); }) == EOPNOTSUPP);
  wanted.comp_mask = IBV_QP_INIT_ATTR_PD;
  ibv_qp* pair = ibv_create_qp_ex(end.context, &wanted);
  REQUIRE(pair != nullptr);
  CHECK(ibv_destroy_qp(pair) == 0);
  wanted.qp_type = IBV_QPT_DRIVER;
  CHECK(refusal([&] { return ibv_create_qp_ex(end.context, &wanted); }) == EOPNOTSUPP);
}

TEST_CASE("vendor options of a queue pair can be neither queried nor set") {
  const endpoint end;
  ibv_ece options{};
  CHECK(ibv_query_ece(end.pair, &options) == EOPNOTSUPP);
  for (const std::uint32_t vendor : {0U, 0x1234U}) {
    options = {vendor, 7, 0};
    errno = 0;
    CHECK(ibv_set_ece(end.pair, &options) == EOPNOTSUPP);
    CHECK(errno == EOPNOTSUPP);
  }
}

TEST_CASE("queue pairs and completion queues above the limits are refused") {
  open_context device;
  ibv_device_attr limits{};
  REQUIRE(ibv_query_device(device.verbs, &limits) == 0);
  for (const int entries : {0, -1, limits.max_cqe + 1}) {
    CHECK(refusal([&] { return ibv_create_cq(device.verbs, entries, nullptr, nullptr, 0); }) ==
          EINVAL);
  }
  CHECK(ibv_create_cq(device.verbs, 1, nullptr, nullptr, device.verbs->num_comp_vectors) ==
        nullptr);
  ibv_cq* queue =
      ibv_create_cq(device.verbs, 100, nullptr, nullptr, device.verbs->num_comp_vectors - 1);
  REQUIRE(queue != nullptr);
  CHECK(queue->cqe >= 100);
  ibv_pd* domain = ibv_alloc_pd(device.verbs);
  REQUIRE(domain != nullptr);
  const auto attempt = [&](ibv_qp_cap capacities) {
    ibv_qp_init_attr attributes = pair_with(queue, capacities);
    errno = 0;
    ibv_qp* pair = ibv_create_qp(domain, &attributes);
    if (pair == nullptr) return errno;
    CHECK(attributes.cap.max_send_wr >= capacities.max_send_wr);
    CHECK(attributes.cap.max_inline_data >= capacities.max_inline_data);
    // Inline data may use the space of the gather elements, so at least that much is granted, up to
    // the limit.
    CHECK(attributes.cap.max_inline_data >=
          std::min(256U, attributes.cap.max_send_sge * unsigned{sizeof(ibv_sge)}));
    CHECK(ibv_destroy_qp(pair) == 0);
    return 0;
  };
  const auto requests = static_cast<std::uint32_t>(limits.max_qp_wr);
  const auto entries = static_cast<std::uint32_t>(limits.max_sge);
  CHECK(attempt({requests, requests, entries, entries, 256}) == 0);
  CHECK(attempt({1, 1, 1, 1, 0}) == 0);
  CHECK(attempt({0, 0, 0, 0, 0}) == 0);
  CHECK(attempt({requests + 1, 1, 1, 1, 0}) == EINVAL);
  CHECK(attempt({1, requests + 1, 1, 1, 0}) == EINVAL);
  CHECK(attempt({1, 1, entries + 1, 1, 0}) == EINVAL);
  CHECK(attempt({1, 1, 1, entries + 1, 0}) == EINVAL);
  CHECK(attempt({1, 1, 1, 1, 257}) == EINVAL);
}

TEST_CASE("parent objects are busy as long as they have children") {
  endpoint end;
  CHECK(ibv_dealloc_pd(end.domain) == EBUSY);
  CHECK(ibv_destroy_cq(end.queue) == EBUSY);
  ibv_comp_channel* channel = ibv_create_comp_channel(end.context);
  ibv_cq* queue = ibv_create_cq(end.context, 1, nullptr, channel, 0);
  REQUIRE(queue != nullptr);
  CHECK(ibv_destroy_comp_channel(channel) == EBUSY);
  CHECK(ibv_destroy_cq(queue) == 0);
  CHECK(ibv_destroy_comp_channel(channel) == 0);
}

TEST_CASE("closing a device frees its remaining objects") {
  ibv_context* device = open_device("soft0");
  ibv_pd* domain = ibv_alloc_pd(device);
  ibv_comp_channel* channel = ibv_create_comp_channel(device);
  ibv_cq* queue = ibv_create_cq(device, 4, nullptr, channel, 0);
  REQUIRE(ibv_req_notify_cq(queue, 0) == 0);
  ibv_qp_init_attr attributes = pair_with(queue, {4, 4, 1, 1, 0});
  REQUIRE(ibv_create_qp(domain, &attributes) != nullptr);
  CHECK(ibv_close_device(device) == 0);
}
