// SPDX-License-Identifier: Apache-2.0
// Unreliable datagrams, address handles and multicast.
#include "catch.hpp"
#include "support/fabric.hpp"

#include <arpa/inet.h>
#include <endian.h>
#include <linux/capability.h>
#include <netinet/ip.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

namespace {

constexpr std::uint32_t multicast_qpn = 0xffffff;

options datagrams(std::uint8_t gid_index = 3, const char* device = "soft0") {
  return {.device = device, .type = IBV_QPT_UD, .gid_index = gid_index};
}

/// Two ends that can send datagrams to each other.
struct datagram_connection : connection {
  explicit datagram_connection(std::uint8_t gid_index = 3)
      : datagram_connection(datagrams(gid_index)) {}
  explicit datagram_connection(const options& wanted) : connection(wanted) { meet(); }
  datagram_connection(const options& left_wants, const options& right_wants)
      : connection(left_wants, right_wants) {
    meet();
  }
  datagram_connection(const datagram_connection&) = delete;
  datagram_connection& operator=(const datagram_connection&) = delete;
  ~datagram_connection() {
    ibv_destroy_ah(to_right);
    ibv_destroy_ah(to_left);
  }

  int send(std::uint64_t id, const std::vector<ibv_sge>& pieces,
           unsigned flags = IBV_SEND_SIGNALED) {
    return left.send_to(to_right, right.pair->qp_num, id, pieces, flags);
  }
  int receive(std::uint64_t id, std::uint32_t length) {
    return right.post_receive(id, {right.piece(half, header_bytes + length)});
  }
  /// Returns true if the right end has received the first `length` bytes of the left end's memory.
  bool arrived(std::uint32_t length) const {
    return std::equal(left.memory.begin(), left.memory.begin() + length,
                      right.memory.begin() + half + header_bytes);
  }
  void still_work() {
    std::fill_n(left.memory.begin(), 100, static_cast<unsigned char>(left.memory[0] + 1));
    REQUIRE(receive(77, 100) == 0);
    REQUIRE(send(78, {left.piece(0, 100)}) == 0);
    CHECK(left.wait().status == IBV_WC_SUCCESS);
    const ibv_wc received = right.wait();
    CHECK(received.status == IBV_WC_SUCCESS);
    CHECK(received.wr_id == 77);
    CHECK(arrived(100));
  }

  ibv_ah* to_right = nullptr;
  ibv_ah* to_left = nullptr;

 private:
  void meet() {
    ibv_ah_attr attributes = left.address_of(right.here());
    to_right = ibv_create_ah(left.domain, &attributes);
    attributes = right.address_of(left.here());
    to_left = ibv_create_ah(right.domain, &attributes);
    REQUIRE(to_right != nullptr);
    REQUIRE(to_left != nullptr);
  }
};

ibv_grh* header_of(endpoint& end, std::size_t offset) {
  return reinterpret_cast<ibv_grh*>(end.memory.data() + offset);
}

ibv_gid gid_of(const char* text) {
  ibv_gid result{};
  REQUIRE(::inet_pton(AF_INET6, text, result.raw) == 1);
  return result;
}

/// Returns a multicast group that no other process joins.
ibv_gid group_of_process(std::uint8_t number, bool ipv4 = false) {
  // steady: the GID is unique, because it contains the process ID and the number of the group
  ibv_gid result = gid_of(ipv4 ? "::ffff:239.0.0.0" : "ff0e::");
  const std::uint32_t name = htobe32(static_cast<std::uint32_t>(::getpid()) << 2U | number);
  const auto* const bytes = reinterpret_cast<const unsigned char*>(&name);
  std::copy(bytes + (ipv4 ? 1 : 0), bytes + sizeof(name), &result.raw[ipv4 ? 13 : 12]);
  return result;
}

/// Returns the attributes of an address handle that sends to a group. Only InfiniBand uses the LID.
ibv_ah_attr group_address(const ibv_gid& gid, std::uint16_t lid = 0xc001) {
  ibv_ah_attr result{};
  result.port_num = 1;
  result.is_global = 1;
  result.grh.dgid = gid;
  const bool ipv4 = gid.raw[0] == 0;
  result.grh.sgid_index = !on_ethernet() ? 0 : ipv4 ? 3 : 5;
  result.grh.hop_limit = 1;
  result.dlid = on_ethernet() ? 0 : lid;
  return result;
}

bool is_privileged() {
  __user_cap_header_struct process{_LINUX_CAPABILITY_VERSION_3, 0};
  std::array<__user_cap_data_struct, 2> capabilities{};
  REQUIRE(::syscall(SYS_capget, &process, capabilities.data()) == 0);
  return (capabilities[0].effective & (1U << CAP_NET_RAW)) != 0;
}

/// An endpoint that is a member of a group.
struct multicast_member {
  explicit multicast_member(const ibv_gid& gid, const options& wanted = datagrams())
      : end(wanted), group(gid) {
    REQUIRE(end.initialize() == 0);
    REQUIRE(ibv_attach_mcast(end.pair, &group, 0xc001) == 0);
    end.change(IBV_QPS_RESET);
    end.connect(end.here());
  }
  ~multicast_member() { CHECK(ibv_detach_mcast(end.pair, &group, 0xc001) == 0); }

  endpoint end;
  ibv_gid group;
};

}  // namespace

TEST_CASE("UD: a datagram is placed behind 40 bytes, which always contain a header on Ethernet") {
  for (std::uint8_t index = 0; index < (on_ethernet() ? 6 : 1); ++index) {
    datagram_connection ends(index);
    INFO("GID " << int{index});
    for (const std::uint32_t size : {0U, 1U, 100U, 4096U}) {
      for (std::size_t at = 0; at < size; ++at)
        ends.left.memory[at] = static_cast<unsigned char>(at * 7 + size);
      std::fill_n(ends.right.memory.begin() + half, header_bytes, static_cast<unsigned char>(0xee));
      REQUIRE(ends.receive(1, size) == 0);
      REQUIRE(ends.send(2, {ends.left.piece(0, size)}) == 0);
      const ibv_wc completed = ends.left.wait();
      CHECK(completed.status == IBV_WC_SUCCESS);
      CHECK(completed.opcode == IBV_WC_SEND);
      CHECK(completed.wr_id == 2);
      const ibv_wc received = ends.right.wait();
      CHECK(received.status == IBV_WC_SUCCESS);
      CHECK(received.opcode == IBV_WC_RECV);
      CHECK(received.byte_len == header_bytes + size);
      CHECK(received.src_qp == ends.left.pair->qp_num);
      CHECK(received.qp_num == ends.right.pair->qp_num);
      CHECK(received.pkey_index == 0);
      CHECK(received.slid == ends.left.here().lid);
      CHECK(received.wc_flags == (on_ethernet() ? unsigned{IBV_WC_GRH} : 0U));
      CHECK(ends.arrived(size));
      const unsigned char* header = ends.right.memory.data() + half;
      if (!on_ethernet())
        CHECK(std::count(header, header + header_bytes, 0xee) == header_bytes);
      else if (index == 3)
        CHECK(header[20] == 0x45);
      else
        CHECK(header[0] == 0x60);
    }
  }
}

TEST_CASE("UD: the receiver of a datagram can reply") {
  for (std::uint8_t index = 0; index < (on_ethernet() ? 6 : 1); ++index) {
    datagram_connection ends(datagrams(index), datagrams(index, "soft1"));
    INFO("GID " << int{index});
    REQUIRE(ends.receive(1, 8) == 0);
    REQUIRE(ends.send(2, {ends.left.piece(0, 8)}) == 0);
    CHECK(ends.left.wait().status == IBV_WC_SUCCESS);
    ibv_wc received = ends.right.wait();
    ibv_ah_attr attributes{};
    REQUIRE(ibv_init_ah_from_wc(ends.right.context, 1, &received, header_of(ends.right, half),
                                &attributes) == 0);
    const ibv_ah_attr expected = ends.right.address_of(ends.left.here());
    CHECK(attributes.is_global == expected.is_global);
    CHECK(attributes.grh.sgid_index == expected.grh.sgid_index);
    CHECK(std::memcmp(attributes.grh.dgid.raw, expected.grh.dgid.raw, 16) == 0);
    CHECK(attributes.grh.hop_limit == expected.grh.hop_limit);
    CHECK(attributes.dlid == expected.dlid);
    ibv_ah* back =
        ibv_create_ah_from_wc(ends.right.domain, &received, header_of(ends.right, half), 1);
    REQUIRE(back != nullptr);
    REQUIRE(ends.left.post_receive(3, {ends.left.piece(0, 100)}) == 0);
    REQUIRE(ends.right.send_to(back, received.src_qp, 4, {ends.right.piece(0, 60)}) == 0);
    CHECK(ends.right.wait().status == IBV_WC_SUCCESS);
    CHECK(ends.left.wait().byte_len == header_bytes + 60);
    CHECK(ibv_destroy_ah(back) == 0);
  }
}

TEST_CASE("UD: traffic class, flow label, hop limit and service level are transmitted") {
  datagram_connection ends(std::uint8_t{5});
  ibv_ah_attr attributes = ends.left.address_of(ends.right.here());
  attributes.is_global = 1;
  attributes.grh.dgid = ends.right.here().gid;
  attributes.grh.traffic_class = 0xab;
  attributes.grh.flow_label = 0x12345;
  attributes.grh.hop_limit = 7;
  attributes.sl = 5;
  const address_handle handle(ends.left, attributes);
  REQUIRE(ends.receive(1, 5) == 0);
  REQUIRE(ends.left.send_to(handle, ends.right.pair->qp_num, 2, {ends.left.piece(0, 5)}) == 0);
  const ibv_wc received = ends.right.wait();
  // RoCE packets have no service level. On RoCE, completions use this field to report the type of
  // the header, which is IPv6 with UDP here.
  CHECK(received.sl == (on_ethernet() ? 9 : 5));
  CHECK((received.wc_flags & IBV_WC_GRH) != 0);
  const ibv_grh& header = *header_of(ends.right, half);
  CHECK(header.version_tclass_flow == htobe32(0x6ab12345));
  CHECK(header.hop_limit == 7);
  CHECK(header.next_hdr == (on_ethernet() ? 17 : 0x1b));
  // The length includes the UDP header of RoCE v2, the base and datagram headers, the padded
  // payload, and the checksum.
  CHECK(be16toh(header.paylen) == 12 + 8 + 8 + 4 + (on_ethernet() ? 8 : 0));
  CHECK(std::memcmp(header.dgid.raw, attributes.grh.dgid.raw, 16) == 0);
}

TEST_CASE("UD: a completion reports the type of its header") {
  if (!on_ethernet()) return;
  const struct {
    std::uint8_t index;
    std::uint8_t type;
  } headers[] = {{0, 0}, {1, 9}, {2, 0}, {3, 10}, {4, 0}, {5, 9}};
  for (const auto& each : headers) {
    datagram_connection ends(each.index);
    ibv_ah_attr attributes = ends.left.address_of(ends.right.here());
    attributes.sl = 3;
    const address_handle handle(ends.left, attributes);
    REQUIRE(ends.receive(1, 5) == 0);
    REQUIRE(ends.left.send_to(handle, ends.right.pair->qp_num, 2, {ends.left.piece(0, 5)}) == 0);
    ibv_wc received = ends.right.wait();
    CHECK(received.sl == each.type);
    ibv_ah_attr back{};
    REQUIRE(ibv_init_ah_from_wc(ends.right.context, 1, &received, header_of(ends.right, half),
                                &back) == 0);
    CHECK(back.sl == 0);
  }
}

TEST_CASE("UD: no sender address can be read from a header with invalid contents") {
  endpoint end(datagrams());
  ibv_wc completion{};
  completion.wc_flags = IBV_WC_GRH;
  ibv_grh header{};
  ibv_ah_attr attributes{};
  CHECK(ibv_init_ah_from_wc(end.context, 1, &completion, &header, &attributes) == -1);
  header.version_tclass_flow = htobe32(0x60000000);
  header.next_hdr = 17;
  header.dgid = gid_of("2001:db8::1");
  CHECK(ibv_init_ah_from_wc(end.context, 1, &completion, &header, &attributes) == -1);
  CHECK(ibv_create_ah_from_wc(end.domain, &completion, &header, 1) == nullptr);
  completion.wc_flags = 0;
  CHECK(ibv_init_ah_from_wc(end.context, 2, &completion, &header, &attributes) == -1);
}

TEST_CASE("UD: data is gathered and scattered, even if the header spans several elements") {
  datagram_connection ends;
  std::fill_n(ends.left.memory.begin(), 300, static_cast<unsigned char>(9));
  REQUIRE(ends.right.post_receive(1, {ends.right.piece(0, 30), ends.right.piece(100, 20),
                                      ends.right.piece(200, 1000)}) == 0);
  REQUIRE(ends.send(2, {ends.left.piece(0, 3), ends.left.piece(3, 297)}) == 0);
  CHECK(ends.right.wait().byte_len == header_bytes + 300);
  const auto data = ends.right.memory.begin();
  CHECK(std::count(data + 110, data + 120, 9) == 10);
  CHECK(std::count(data + 200, data + 490, 9) == 290);
}

TEST_CASE("UD: immediate data and inline data arrive and unsignaled sends have no completion") {
  datagram_connection ends;
  ibv_send_wr request{};
  request.opcode = IBV_WR_SEND_WITH_IMM;
  request.send_flags = IBV_SEND_INLINE;
  request.imm_data = htobe32(0x01020304);
  request.wr.ud = {ends.to_right, ends.right.pair->qp_num, ends.left.wanted.qkey};
  std::fill_n(ends.left.memory.begin(), 64, static_cast<unsigned char>(3));
  ibv_sge piece = ends.left.piece(0, 64);
  piece.lkey = 0;
  REQUIRE(ends.receive(1, 64) == 0);
  REQUIRE(ends.left.post(request, {piece}) == 0);
  std::fill_n(ends.left.memory.begin(), 64, static_cast<unsigned char>(4));
  const ibv_wc received = ends.right.wait();
  CHECK((received.wc_flags & IBV_WC_WITH_IMM) != 0);
  CHECK(received.imm_data == htobe32(0x01020304));
  CHECK(ends.right.memory[half + header_bytes] == 3);
  CHECK(ends.left.quiet());
}

TEST_CASE("UD: only sends with an address handle are allowed") {
  datagram_connection ends;
  ibv_send_wr request{};
  request.wr.ud = {ends.to_right, ends.right.pair->qp_num, ends.left.wanted.qkey};
  for (const ibv_wr_opcode opcode :
       {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_RDMA_READ,
        IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_ATOMIC_CMP_AND_SWP}) {
    request.opcode = opcode;
    CHECK(ends.left.post(request, {}) == EINVAL);
  }
  CHECK(ends.left.send_to(nullptr, ends.right.pair->qp_num, 1, {}) == EINVAL);
}

TEST_CASE("UD: a datagram longer than the MTU fails and later ones are flushed") {
  datagram_connection ends;
  REQUIRE(ends.receive(1, 4096) == 0);
  ibv_sge long_piece = ends.left.piece(0, 4097);
  ibv_sge short_piece = ends.left.piece(0, 8);
  ibv_send_wr second{};
  second.wr_id = 3;
  second.opcode = IBV_WR_SEND;
  second.sg_list = &short_piece;
  second.num_sge = 1;
  second.wr.ud = {ends.to_right, ends.right.pair->qp_num, ends.left.wanted.qkey};
  ibv_send_wr first = second;
  first.wr_id = 2;
  first.sg_list = &long_piece;
  first.next = &second;
  ibv_send_wr* bad = nullptr;
  REQUIRE(ibv_post_send(ends.left.pair, &first, &bad) == 0);
  ibv_wc completion = ends.left.wait();
  CHECK(completion.status == IBV_WC_LOC_LEN_ERR);
  CHECK(completion.wr_id == 2);
  completion = ends.left.wait();
  CHECK(completion.status == IBV_WC_WR_FLUSH_ERR);
  CHECK(completion.wr_id == 3);
  CHECK(ends.left.state() == IBV_QPS_SQE);
  CHECK(ends.right.quiet());
  // The end can still receive.
  REQUIRE(ends.left.post_receive(4, {ends.left.piece(half, 100)}) == 0);
  REQUIRE(ends.right.send_to(ends.to_left, ends.left.pair->qp_num, 5, {ends.right.piece(0, 8)}) ==
          0);
  CHECK(ends.left.wait().wr_id == 4);
  CHECK(ends.right.wait().wr_id == 5);
  REQUIRE(ends.left.change(IBV_QPS_RTS) == 0);
  REQUIRE(ends.send(6, {ends.left.piece(0, 4096)}) == 0);
  CHECK(ends.left.wait().status == IBV_WC_SUCCESS);
  CHECK(ends.right.wait().wr_id == 1);
}

TEST_CASE("UD: bad memory or an address handle of another domain fails the send") {
  datagram_connection ends;
  ibv_sge wrong = ends.left.piece(0, 8);
  wrong.lkey ^= 0x100;
  REQUIRE(ends.send(1, {wrong}) == 0);
  CHECK(ends.left.wait().status == IBV_WC_LOC_PROT_ERR);
  CHECK(ends.left.state() == IBV_QPS_SQE);
  REQUIRE(ends.left.change(IBV_QPS_RTS) == 0);
  ends.still_work();

  ibv_pd* domain = ibv_alloc_pd(ends.left.context);
  ibv_ah_attr attributes = ends.left.address_of(ends.right.here());
  ibv_ah* handle = ibv_create_ah(domain, &attributes);
  REQUIRE(handle != nullptr);
  CHECK(ibv_dealloc_pd(domain) == EBUSY);
  REQUIRE(ends.left.send_to(handle, ends.right.pair->qp_num, 1, {ends.left.piece(0, 8)}) == 0);
  CHECK(ends.left.wait().status == IBV_WC_LOC_QP_OP_ERR);
  CHECK(ibv_destroy_ah(handle) == 0);
  CHECK(ibv_dealloc_pd(domain) == 0);
}

TEST_CASE("UD: posted sends are transmitted before their queue pair is destroyed") {
  datagram_connection link;
  for (std::uint64_t id = 0; id < 10; ++id) REQUIRE(link.receive(id, 100) == 0);
  for (std::uint64_t id = 0; id < 10; ++id)
    REQUIRE(link.send(id, {link.left.piece(0, 100)}, 0) == 0);
  REQUIRE(ibv_destroy_qp(link.left.pair) == 0);
  link.left.pair = nullptr;
  for (std::uint64_t id = 0; id < 10; ++id) CHECK(link.right.wait().wr_id == id);
}

TEST_CASE("UD: an address handle may be destroyed as soon as the send is posted") {
  datagram_connection ends;
  REQUIRE(ends.receive(1, 8) == 0);
  REQUIRE(ends.left.change(IBV_QPS_SQD) == 0);
  REQUIRE(ends.send(2, {ends.left.piece(0, 8)}) == 0);
  REQUIRE(ibv_destroy_ah(ends.to_right) == 0);
  CHECK(ends.left.quiet());
  REQUIRE(ends.left.change(IBV_QPS_RTS) == 0);
  CHECK(ends.right.wait().wr_id == 1);
  CHECK(ends.left.wait().wr_id == 2);
  ibv_ah_attr attributes = ends.left.address_of(ends.right.here());
  ends.to_right = ibv_create_ah(ends.left.domain, &attributes);
}

TEST_CASE("UD: a datagram without a receive or with another qkey is lost") {
  datagram_connection ends;
  REQUIRE(ends.send(1, {ends.left.piece(0, 8)}) == 0);
  CHECK(ends.left.wait().status == IBV_WC_SUCCESS);
  CHECK(ends.right.quiet());
  REQUIRE(ends.receive(2, 8) == 0);
  ends.left.wanted.qkey ^= 1;
  REQUIRE(ends.send(3, {ends.left.piece(0, 8)}) == 0);
  CHECK(ends.left.wait().status == IBV_WC_SUCCESS);
  CHECK(ends.right.quiet());
  ends.left.wanted.qkey ^= 1;
  REQUIRE(ends.send(4, {ends.left.piece(0, 8)}) == 0);
  CHECK(ends.left.wait().status == IBV_WC_SUCCESS);
  CHECK(ends.right.wait().wr_id == 2);
}

TEST_CASE("UD: a qkey with the highest bit set is replaced by the queue pair's own") {
  datagram_connection ends;
  REQUIRE(ends.receive(1, 8) == 0);
  ends.left.wanted.qkey = 0x80000000;
  REQUIRE(ends.send(2, {ends.left.piece(0, 8)}) == 0);
  CHECK(ends.left.wait().status == IBV_WC_SUCCESS);
  CHECK(ends.right.wait().wr_id == 1);

  options controlled = datagrams();
  controlled.qkey = 0x80010000;
  endpoint end(controlled);
  CHECK(end.initialize() == (is_privileged() ? 0 : EPERM));
}

TEST_CASE("UD: a receive that is too short for its datagram fails") {
  for (const std::uint32_t room : {0U, 39U, 47U}) {
    datagram_connection ends;
    REQUIRE(ends.right.post_receive(1, {ends.right.piece(0, room)}) == 0);
    REQUIRE(ends.send(2, {ends.left.piece(0, 8)}) == 0);
    CHECK(ends.left.wait().status == IBV_WC_SUCCESS);
    CHECK(ends.right.wait().status == IBV_WC_LOC_LEN_ERR);
    CHECK(ends.right.state() == IBV_QPS_ERR);
    CHECK(ends.left.state() == IBV_QPS_RTS);
  }
  datagram_connection ends;
  ibv_sge wrong = ends.right.piece(0, 100);
  wrong.lkey = 0;
  REQUIRE(ends.right.post_receive(1, {wrong}) == 0);
  REQUIRE(ends.send(2, {ends.left.piece(0, 8)}) == 0);
  CHECK(ends.right.wait().status == IBV_WC_LOC_PROT_ERR);
}

TEST_CASE("UD: a receive that exceeds its region accepts datagrams that fit in the region") {
  datagram_connection ends;
  const std::size_t room = ends.right.memory.size();
  REQUIRE(ends.right.post_receive(1, {ends.right.piece(room - header_bytes - 8, 4096)}) == 0);
  REQUIRE(ends.right.post_receive(2, {ends.right.piece(room - header_bytes - 8, 4096)}) == 0);
  REQUIRE(ends.send(3, {ends.left.piece(0, 8)}) == 0);
  CHECK(ends.left.wait().status == IBV_WC_SUCCESS);
  const ibv_wc received = ends.right.wait();
  CHECK(received.status == IBV_WC_SUCCESS);
  CHECK(received.byte_len == header_bytes + 8);
  REQUIRE(ends.send(4, {ends.left.piece(0, 9)}) == 0);
  CHECK(ends.left.wait().status == IBV_WC_SUCCESS);
  CHECK(ends.right.wait().status == IBV_WC_LOC_PROT_ERR);
  CHECK(ends.right.state() == IBV_QPS_ERR);
}

TEST_CASE("UD: a datagram to a nonexistent peer completes successfully") {
  datagram_connection ends;
  for (const std::uint32_t qpn : {0U, 1U, ends.right.pair->qp_num ^ 1, 0xffffffU}) {
    REQUIRE(ends.left.send_to(ends.to_right, qpn, 1, {ends.left.piece(0, 8)}) == 0);
    CHECK(ends.left.wait().status == IBV_WC_SUCCESS);
  }
  ends.still_work();
}

TEST_CASE("UD: transitions require and accept the attributes of UD") {
  endpoint end(datagrams());
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_INIT;
  attributes.port_num = 1;
  attributes.qkey = 5;
  constexpr int initial = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY;
  CHECK(ibv_modify_qp(end.pair, &attributes, initial & ~IBV_QP_QKEY) == EINVAL);
  CHECK(ibv_modify_qp(end.pair, &attributes, initial | IBV_QP_ACCESS_FLAGS) == EINVAL);
  attributes.pkey_index = 1;
  CHECK(ibv_modify_qp(end.pair, &attributes, initial) == EINVAL);
  attributes.pkey_index = 0;
  CHECK(ibv_modify_qp(end.pair, &attributes, initial) == 0);
  attributes.qp_state = IBV_QPS_RTR;
  CHECK(ibv_modify_qp(end.pair, &attributes, IBV_QP_STATE | IBV_QP_PATH_MTU) == EINVAL);
  CHECK(ibv_modify_qp(end.pair, &attributes, IBV_QP_STATE) == 0);
  attributes.qp_state = IBV_QPS_RTS;
  CHECK(ibv_modify_qp(end.pair, &attributes, IBV_QP_STATE) == EINVAL);
  CHECK(ibv_modify_qp(end.pair, &attributes, IBV_QP_STATE | IBV_QP_SQ_PSN) == 0);
  attributes.qkey = 6;
  CHECK(ibv_modify_qp(end.pair, &attributes, IBV_QP_QKEY) == 0);
  ibv_qp_init_attr made{};
  REQUIRE(ibv_query_qp(end.pair, &attributes, IBV_QP_QKEY, &made) == 0);
  CHECK(attributes.qkey == 6);
  CHECK(made.qp_type == IBV_QPT_UD);
}

TEST_CASE("the transition from SQE accepts only the right attributes") {
  constexpr int bits = IBV_QP_RATE_LIMIT << 1;
  for (const ibv_qp_type type : {IBV_QPT_UC, IBV_QPT_UD}) {
    const int taken =
        IBV_QP_CUR_STATE | (type == IBV_QPT_UC ? IBV_QP_ACCESS_FLAGS : int{IBV_QP_QKEY});
    options wanted = datagrams();
    wanted.type = type;
    datagram_connection ends(wanted);
    for (int bit = 2; bit != bits; bit <<= 1) {
      INFO("type " << type << " bit " << bit);
      ibv_sge wrong = ends.left.piece(0, 8);
      wrong.lkey = 0;
      REQUIRE((type == IBV_QPT_UD ? ends.send(1, {wrong}) : ends.left.send(1, {wrong})) == 0);
      REQUIRE(ends.left.wait().status == IBV_WC_LOC_PROT_ERR);
      REQUIRE(ends.left.state() == IBV_QPS_SQE);
      ibv_qp_attr attributes{};
      attributes.qp_state = IBV_QPS_RTS;
      attributes.cur_qp_state = IBV_QPS_SQE;
      attributes.qkey = wanted.qkey;
      attributes.port_num = 1;
      for (const ibv_qp_state to : {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_SQD, IBV_QPS_SQE}) {
        attributes.qp_state = to;
        CHECK(ibv_modify_qp(ends.left.pair, &attributes, IBV_QP_STATE) == EINVAL);
      }
      attributes.qp_state = IBV_QPS_RTS;
      const bool legal = (taken & bit) != 0;
      CHECK(ibv_modify_qp(ends.left.pair, &attributes, IBV_QP_STATE | bit) == (legal ? 0 : EINVAL));
      CHECK(ends.left.state() == (legal ? IBV_QPS_RTS : IBV_QPS_SQE));
      if (!legal) REQUIRE(ends.left.change(IBV_QPS_RTS) == 0);
    }
    REQUIRE(ends.left.change(IBV_QPS_ERR) == 0);
  }
}

TEST_CASE("an address handle with an invalid address is refused") {
  endpoint end(datagrams());
  const auto attempt = [&](auto change) {
    ibv_ah_attr attributes = end.address_of(end.here());
    change(attributes);
    errno = 0;
    ibv_ah* handle = ibv_create_ah(end.domain, &attributes);
    if (handle == nullptr) return errno;
    CHECK(ibv_destroy_ah(handle) == 0);
    return 0;
  };
  CHECK(attempt([](ibv_ah_attr&) {}) == 0);
  CHECK(attempt([](ibv_ah_attr& a) { a.port_num = 0; }) == EINVAL);
  CHECK(attempt([](ibv_ah_attr& a) { a.port_num = 2; }) == EINVAL);
  if (on_ethernet()) {
    CHECK(attempt([](ibv_ah_attr& a) { a.is_global = 0; }) == EINVAL);
    CHECK(attempt([](ibv_ah_attr& a) { a.grh.sgid_index = 16; }) == EINVAL);
    CHECK(attempt([](ibv_ah_attr& a) { a.grh.sgid_index = 6; }) == ENODATA);
    CHECK(attempt([](ibv_ah_attr& a) { a.grh.dgid = gid_of("2001:db8::1"); }) == EINVAL);
    CHECK(attempt([](ibv_ah_attr& a) {
            a.grh.sgid_index = 5;
            a.grh.dgid = gid_of("2001:db8::1");
          }) == ETIMEDOUT);
    CHECK(attempt([](ibv_ah_attr& a) { a.grh.dgid = gid_of("::ffff:10.1.2.3"); }) == ETIMEDOUT);
  } else {
    CHECK(attempt([](ibv_ah_attr& a) { a.dlid = 0xbfff; }) == 0);
    CHECK(attempt([](ibv_ah_attr& a) { a.is_global = 1; }) == 0);
    CHECK(attempt([](ibv_ah_attr& a) {
            a.is_global = 1;
            a.grh.sgid_index = 1;
          }) == ENODATA);
  }
  // steady: this fixed address is used only for an address handle, to which nothing is sent
  CHECK(attempt([](ibv_ah_attr& a) { a = group_address(gid_of("ff0e::7")); }) == 0);
  // steady: this fixed address is used only for an address handle, to which nothing is sent
  CHECK(attempt([](ibv_ah_attr& a) { a = group_address(gid_of("::ffff:239.1.2.3")); }) == 0);
}

TEST_CASE("only multicast groups can be joined and connected queue pairs can't join any") {
  endpoint end(datagrams());
  // steady: nothing is sent to this fixed group, so its members in other processes are not
  // disturbed
  ibv_gid group = gid_of("ff0e::1");
  constexpr std::uint16_t lid = 0xc000;
  // steady: nothing is sent to this fixed group, so its members in other processes are not
  // disturbed
  ibv_gid other = gid_of("ff0e::2");
  ibv_gid single = gid_of("fe80::1");
  CHECK(ibv_attach_mcast(end.pair, &single, lid) == EINVAL);
  CHECK(ibv_detach_mcast(end.pair, &group, lid) == EINVAL);
  CHECK(ibv_attach_mcast(end.pair, &group, 1) == (on_ethernet() ? 0 : EINVAL));
  if (on_ethernet()) CHECK(ibv_detach_mcast(end.pair, &group, 1) == 0);
  CHECK(ibv_attach_mcast(end.pair, &group, lid) == 0);
  CHECK(ibv_attach_mcast(end.pair, &group, lid) ==
        0);  // as in Linux, a repeated call has no effect
  CHECK(ibv_detach_mcast(end.pair, &other, lid) == EINVAL);
  CHECK(ibv_destroy_qp(end.pair) == EBUSY);
  CHECK(ibv_detach_mcast(end.pair, &group, lid) == 0);
  CHECK(ibv_detach_mcast(end.pair, &group, lid) == EINVAL);
  endpoint connected;
  CHECK(ibv_attach_mcast(connected.pair, &group, lid) == EINVAL);
}

TEST_CASE("the number of groups is limited") {
  endpoint end(datagrams());
  ibv_device_attr limits{};
  REQUIRE(ibv_query_device(end.context, &limits) == 0);
  CHECK(limits.max_total_mcast_qp_attach == limits.max_mcast_grp * limits.max_mcast_qp_attach);
  // steady: nothing is sent to this fixed group, so its members in other processes are not
  // disturbed
  ibv_gid group = gid_of("ff0e::");
  const auto number = [&group](int at) {
    group.raw[15] = static_cast<std::uint8_t>(at);
    group.raw[14] = static_cast<std::uint8_t>(at >> 8);
    return &group;
  };
  for (int at = 0; at < limits.max_mcast_grp; ++at)
    REQUIRE(ibv_attach_mcast(end.pair, number(at), 0xc000) == 0);
  CHECK(ibv_attach_mcast(end.pair, number(limits.max_mcast_grp), 0xc000) == ENOMEM);
  for (int at = 0; at < limits.max_mcast_grp; ++at)
    REQUIRE(ibv_detach_mcast(end.pair, number(at), 0xc000) == 0);
}

TEST_CASE("all members of a group including the sender receive its messages") {
  for (const bool ipv4 : {false, true}) {
    const ibv_gid group = group_of_process(0, ipv4);
    multicast_member one(group);
    multicast_member two(group, datagrams(3, "soft1"));
    options deaf = datagrams();
    deaf.qkey = 0x222;
    multicast_member other_key(group, deaf);
    multicast_member other_group(group_of_process(1));
    endpoint stranger(datagrams());
    stranger.connect(stranger.here());
    for (endpoint* end : {&one.end, &two.end, &other_key.end, &other_group.end, &stranger})
      REQUIRE(end->post_receive(1, {end->piece(half, 100)}) == 0);

    ibv_ah_attr attributes = group_address(group);
    ibv_ah* handle = ibv_create_ah(one.end.domain, &attributes);
    REQUIRE(handle != nullptr);
    one.end.memory[0] = 42;
    REQUIRE(one.end.send_to(handle, multicast_qpn, 2, {one.end.piece(0, 60)}) == 0);
    const ibv_wc received = two.end.wait();
    CHECK(received.status == IBV_WC_SUCCESS);
    CHECK(received.byte_len == header_bytes + 60);
    CHECK(received.src_qp == one.end.pair->qp_num);
    CHECK((received.wc_flags & IBV_WC_GRH) != 0);
    CHECK(two.end.memory[half + header_bytes] == 42);
    ibv_wc own = one.end.wait();
    CHECK(own.status == IBV_WC_SUCCESS);
    CHECK(one.end.wait().wr_id + own.wr_id == 3);
    CHECK(other_key.end.quiet());
    CHECK(other_group.end.quiet());
    CHECK(stranger.quiet());

    // A datagram reaches the members only if it is sent both to the group's address and to the
    // multicast queue pair number.
    REQUIRE(two.end.post_receive(1, {two.end.piece(half, 100)}) == 0);
    REQUIRE(one.end.send_to(handle, two.end.pair->qp_num, 2, {}) == 0);
    CHECK(one.end.wait().status == IBV_WC_SUCCESS);
    CHECK(two.end.quiet());
    CHECK(ibv_destroy_ah(handle) == 0);
    if (!on_ethernet()) {
      attributes = group_address(group, 0xc002);
      handle = ibv_create_ah(one.end.domain, &attributes);
      REQUIRE(one.end.send_to(handle, multicast_qpn, 2, {}) == 0);
      CHECK(one.end.wait().status == IBV_WC_SUCCESS);
      CHECK(two.end.quiet());
      CHECK(ibv_destroy_ah(handle) == 0);
    }
  }
}

TEST_CASE("a group can be reached from addresses of the other IP version") {
  if (!on_ethernet()) return;
  const struct {
    bool to_ipv4;
    std::uint8_t from;
  } mixed[] = {{false, 3}, {true, 5}, {false, 2}, {true, 4}};
  for (const auto& each : mixed) {
    const ibv_gid group = group_of_process(2, each.to_ipv4);
    multicast_member one(group, datagrams(each.from));
    multicast_member two(group, datagrams(each.from, "soft1"));
    for (endpoint* end : {&one.end, &two.end})
      REQUIRE(end->post_receive(1, {end->piece(half, 100)}) == 0);
    ibv_ah_attr attributes = group_address(group);
    attributes.grh.sgid_index = each.from;
    const address_handle handle(one.end, attributes);
    one.end.memory[0] = 43;
    REQUIRE(one.end.send_to(handle, multicast_qpn, 2, {one.end.piece(0, 60)}, 0) == 0);
    CHECK(two.end.wait().byte_len == header_bytes + 60);
    CHECK(two.end.memory[half + header_bytes] == 43);
    // Only an IPv6 header has room for both addresses.
    const ibv_grh& header = *header_of(two.end, half);
    CHECK(be32toh(header.version_tclass_flow) >> 28 == 6);
    CHECK(std::memcmp(header.dgid.raw, group.raw, sizeof(group.raw)) == 0);
    ibv_gid source{};
    REQUIRE(ibv_query_gid(one.end.context, 1, each.from, &source) == 0);
    CHECK(std::memcmp(header.sgid.raw, source.raw, sizeof(source.raw)) == 0);
  }
}

TEST_CASE("the completion of a multicast datagram yields no address of the sender") {
  const ibv_gid group = group_of_process(3);
  multicast_member one(group);
  REQUIRE(one.end.post_receive(1, {one.end.piece(half, 100)}) == 0);
  ibv_ah_attr attributes = group_address(group);
  const address_handle handle(one.end, attributes);
  REQUIRE(one.end.send_to(handle, multicast_qpn, 2, {}, 0) == 0);
  ibv_wc received = one.end.wait();
  REQUIRE(received.status == IBV_WC_SUCCESS);
  CHECK(ibv_init_ah_from_wc(one.end.context, 1, &received, header_of(one.end, half), &attributes) ==
        -1);
  CHECK(errno == EINVAL);
}
