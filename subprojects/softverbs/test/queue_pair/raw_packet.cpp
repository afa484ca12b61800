// SPDX-License-Identifier: Apache-2.0
// Raw packet queue pairs, which send and receive whole Ethernet frames.
#include "support/faults.hpp"
#include "support/frames.hpp"
#include "support/intruder.hpp"
#include "support/peer.hpp"
#include "wire/packet.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <numeric>
#include <random>
#include <string>

namespace {

frame content_of(std::size_t bytes) {
  frame result(bytes);
  std::iota(result.begin(), result.end(), std::uint8_t{1});
  return result;
}

int change_with(const endpoint& end, ibv_qp_state state, int mask) {
  ibv_qp_attr attributes{};
  attributes.qp_state = state;
  attributes.port_num = 1;
  return ibv_modify_qp(end.pair, &attributes, mask | IBV_QP_STATE);
}

/// Two ends, of which the right one receives the frames that are sent to its address.
struct two_frame_ends {
  explicit two_frame_ends(const char* device = "soft0") : right(device) {
    right.hear(rule().to(own_mac(2)));
  }
  frame to_right(std::size_t bytes) const {
    return frame_of(own_mac(2), own_mac(1), experimental_type, content_of(bytes));
  }
  void still_work() {
    const frame one = to_right(77);
    CHECK(left.send_frame(one) == IBV_WC_SUCCESS);
    CHECK(right.next() == one);
  }
  frame_end left;
  frame_end right;
};

}  // namespace

TEST_CASE("raw packets: the transitions of a queue pair need only a port") {
  if (!may_send_frames()) return;
  endpoint end(options{.type = IBV_QPT_RAW_PACKET});
  CHECK(change_with(end, IBV_QPS_INIT, 0) == EINVAL);
  CHECK(change_with(end, IBV_QPS_INIT, IBV_QP_PORT | IBV_QP_PKEY_INDEX) == EINVAL);
  CHECK(change_with(end, IBV_QPS_INIT, IBV_QP_PORT | IBV_QP_QKEY) == EINVAL);
  CHECK(change_with(end, IBV_QPS_INIT, IBV_QP_PORT) == 0);
  CHECK(change_with(end, IBV_QPS_RTR, IBV_QP_AV) == EINVAL);
  CHECK(change_with(end, IBV_QPS_RTR, 0) == 0);
  CHECK(change_with(end, IBV_QPS_RTS, IBV_QP_SQ_PSN) == EINVAL);
  CHECK(change_with(end, IBV_QPS_RTS, IBV_QP_RATE_LIMIT) == EOPNOTSUPP);
  CHECK(change_with(end, IBV_QPS_RTS, 0) == 0);
  CHECK(change_with(end, IBV_QPS_SQD, 0) == 0);
  CHECK(change_with(end, IBV_QPS_RTS, 0) == 0);
  ibv_qp_attr attributes{};
  ibv_qp_init_attr initial{};
  REQUIRE(ibv_query_qp(end.pair, &attributes, IBV_QP_STATE | IBV_QP_PORT, &initial) == 0);
  CHECK(attributes.qp_state == IBV_QPS_RTS);
  CHECK(attributes.port_num == 1);
  CHECK(initial.qp_type == IBV_QPT_RAW_PACKET);
  CHECK(change_with(end, IBV_QPS_ERR, 0) == 0);
  CHECK(change_with(end, IBV_QPS_RESET, 0) == 0);
}

TEST_CASE("raw packets: a frame arrives unchanged") {
  if (!may_send_frames()) return;
  two_frame_ends ends("soft1");
  // These sizes are below, at and above Ethernet's minimum, up to the maximum with a VLAN tag.
  for (const std::size_t bytes : {0, 1, 46, 60, 1500, 4192})
    for (const bool has_tag : {false, true}) {
      const frame plain = ends.to_right(bytes);
      const frame sent = has_tag ? tagged(plain, 0x2007) : plain;
      CHECK(ends.left.send_frame(sent) == IBV_WC_SUCCESS);
      CHECK(ends.right.next() == sent);
    }
}

TEST_CASE("raw packets: a frame is gathered and scattered and described") {
  if (!may_send_frames()) return;
  two_frame_ends ends;
  REQUIRE(ends.right.change(IBV_QPS_RESET) == 0);
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_INIT;
  attributes.port_num = 1;
  REQUIRE(ibv_modify_qp(ends.right.pair, &attributes, IBV_QP_STATE | IBV_QP_PORT) == 0);
  REQUIRE(ends.right.post_receive(5, {ends.right.piece(0, 14), ends.right.piece(100, 1000)}) == 0);
  REQUIRE(ends.right.change(IBV_QPS_RTR) == 0);
  const frame sent = ends.to_right(50);
  std::copy(sent.begin(), sent.end(), ends.left.memory.begin());
  for (const int flags : {int{IBV_SEND_SIGNALED}, IBV_SEND_SIGNALED | IBV_SEND_INLINE}) {
    REQUIRE(ends.left.send(7, {ends.left.piece(0, 6), ends.left.piece(6, 58)},
                           static_cast<unsigned>(flags)) == 0);
    const ibv_wc sending = ends.left.wait();
    CHECK(sending.status == IBV_WC_SUCCESS);
    CHECK(sending.opcode == IBV_WC_SEND);
    const ibv_wc receiving = ends.right.wait();
    CHECK(receiving.status == IBV_WC_SUCCESS);
    CHECK(receiving.opcode == IBV_WC_RECV);
    CHECK(receiving.byte_len == sent.size());
    CHECK(receiving.qp_num == ends.right.pair->qp_num);
    CHECK(receiving.src_qp == 0);
    CHECK(receiving.wc_flags == 0);
    CHECK(std::equal(sent.begin(), sent.begin() + 14, ends.right.memory.begin()));
    CHECK(std::equal(sent.begin() + 14, sent.end(), ends.right.memory.begin() + 100));
    REQUIRE(ends.right.post_receive(5, {ends.right.piece(0, 14), ends.right.piece(100, 1000)}) ==
            0);
  }
}

TEST_CASE("raw packets: an invalid frame is refused when it is posted") {
  if (!may_send_frames()) return;
  two_frame_ends ends;
  CHECK(ends.left.send(1, {ends.left.piece(0, 13)}) == EINVAL);
  CHECK(ends.left.send(1, {}) == EINVAL);
  CHECK(ends.left.send(1, {ends.left.piece(0, 64)}, IBV_SEND_IP_CSUM) == EINVAL);
  for (const ibv_wr_opcode opcode :
       {IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ, IBV_WR_ATOMIC_FETCH_AND_ADD,
        IBV_WR_LOCAL_INV, IBV_WR_BIND_MW, IBV_WR_TSO}) {
    ibv_send_wr request{};
    request.opcode = opcode;
    CHECK(ends.left.post(request, {ends.left.piece(0, 64)}) == EINVAL);
  }
  ends.still_work();
}

TEST_CASE("raw packets: a frame that is too long for Ethernet stops its sender") {
  if (!may_send_frames()) return;
  two_frame_ends ends;
  CHECK(ends.left.send_frame(frame(4096 + 96 + 19)) == IBV_WC_LOC_LEN_ERR);
  CHECK(ends.left.state() == IBV_QPS_SQE);
  REQUIRE(ends.left.change(IBV_QPS_RTS) == 0);
  ends.still_work();
  // A piece of memory with a wrong lkey stops the sender, too.
  ibv_sge stranger = ends.left.piece(0, 64);
  stranger.lkey ^= 1;
  REQUIRE(ends.left.send(1, {stranger}) == 0);
  CHECK(ends.left.wait().status == IBV_WC_LOC_PROT_ERR);
  CHECK(ends.left.state() == IBV_QPS_SQE);
}

TEST_CASE("raw packets: a frame that is too long for its receive is an error at the receiver") {
  if (!may_send_frames()) return;
  two_frame_ends ends;
  frame_end small;
  small.hear(rule().to(own_mac(3)));
  REQUIRE(small.change(IBV_QPS_RESET) == 0);
  REQUIRE(change_with(small, IBV_QPS_INIT, IBV_QP_PORT) == 0);
  REQUIRE(small.post_receive(1, {small.piece(0, 63)}) == 0);
  REQUIRE(small.post_receive(2, {small.piece(0, 64)}) == 0);
  REQUIRE(small.change(IBV_QPS_RTR) == 0);
  CHECK(ends.left.send_frame(frame_of(own_mac(3), own_mac(1), experimental_type, content_of(50))) ==
        IBV_WC_SUCCESS);
  CHECK(small.wait().status == IBV_WC_LOC_LEN_ERR);
  CHECK(small.wait().status == IBV_WC_WR_FLUSH_ERR);
  CHECK(small.state() == IBV_QPS_ERR);
  ends.still_work();
}

TEST_CASE("raw packets: a frame without a matching rule or a receive is lost") {
  if (!may_send_frames()) return;
  two_frame_ends ends;
  // Sends a frame to an address for which there is no rule, and then three more frames than the
  // right end has receives.
  CHECK(ends.left.send_frame(frame_of(own_mac(9), own_mac(1), experimental_type, {})) ==
        IBV_WC_SUCCESS);
  for (std::uint64_t count = 0; count < frame_end::receives + 3; ++count)
    CHECK(ends.left.send_frame(ends.to_right(count)) == IBV_WC_SUCCESS);
  // Frames are processed in order: once the last one has arrived, each earlier frame has been
  // delivered or dropped.
  frame_end other;
  other.hear(rule().to(own_mac(4)));
  const frame last = frame_of(own_mac(4), own_mac(1), experimental_type, {});
  CHECK(ends.left.send_frame(last) == IBV_WC_SUCCESS);
  CHECK(other.next() == last);
  for (std::uint64_t count = 0; count < frame_end::receives; ++count)
    CHECK(ends.right.next() == ends.to_right(count));
  ends.still_work();
}

TEST_CASE("raw packets: creating a queue pair requires a privilege") {
  if (!may_send_frames()) return;
  frame_end end;
  ibv_qp_init_attr attributes = pair_with(end.queue, {1, 1, 1, 1, 0}, IBV_QPT_RAW_PACKET);
  rule wanted;
  wanted.to(own_mac(1));
  {
    const without_privilege now;
    CHECK(refusal([&] { return ibv_create_qp(end.domain, &attributes); }) == EPERM);
    CHECK(refusal([&] { return ibv_create_flow(end.pair, &wanted.attributes()); }) == EPERM);
  }
  ibv_qp* pair = ibv_create_qp(end.domain, &attributes);
  REQUIRE(pair != nullptr);
  CHECK(ibv_destroy_qp(pair) == 0);
}

TEST_CASE("raw packets: InfiniBand has no raw packet queue pairs") {
  if (on_ethernet()) return;
  endpoint end;
  ibv_qp_init_attr attributes = pair_with(end.queue, {}, IBV_QPT_RAW_PACKET);
  errno = 0;
  CHECK(ibv_create_qp(end.domain, &attributes) == nullptr);
  CHECK((errno == EOPNOTSUPP || errno == EPERM));
  ibv_device_attr device{};
  REQUIRE(ibv_query_device(end.context, &device) == 0);
  CHECK(device.max_raw_ethy_qp == 0);
  CHECK((device.device_cap_flags & IBV_DEVICE_MANAGED_FLOW_STEERING) == 0);
}

TEST_CASE("raw packets: the device reports its features and refuses others") {
  if (!may_send_frames()) return;
  frame_end end;
  ibv_device_attr_ex device{};
  REQUIRE(ibv_query_device_ex(end.context, nullptr, &device) == 0);
  CHECK(device.raw_packet_caps == 0);
  CHECK(device.tso_caps.max_tso == 0);
  CHECK(device.orig_attr.max_raw_ethy_qp == device.orig_attr.max_qp);
  CHECK((device.orig_attr.device_cap_flags & IBV_DEVICE_MANAGED_FLOW_STEERING) != 0);

  const auto refused = [&](auto change) {
    ibv_qp_init_attr_ex attributes{};
    attributes.send_cq = attributes.recv_cq = end.queue;
    attributes.qp_type = IBV_QPT_RAW_PACKET;
    attributes.cap = {1, 1, 1, 1, 0};
    attributes.comp_mask = IBV_QP_INIT_ATTR_PD;
    attributes.pd = end.domain;
    change(attributes);
    CHECK(refusal([&] { return ibv_create_qp_ex(end.context, &attributes); }) == EOPNOTSUPP);
  };
  refused([](auto& to) {
    to.comp_mask |= IBV_QP_INIT_ATTR_CREATE_FLAGS;
    to.create_flags = IBV_QP_CREATE_CVLAN_STRIPPING;
  });
  refused([](auto& to) { to.comp_mask |= IBV_QP_INIT_ATTR_MAX_TSO_HEADER; });
  refused([](auto& to) {
    to.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    to.send_ops_flags = IBV_QP_EX_WITH_SEND_WITH_IMM;
  });
  ibv_counters_init_attr counters{};
  CHECK(refusal([&] { return ibv_create_counters(end.context, &counters); }) == EOPNOTSUPP);
  CHECK(refusal([&] { return ibv_create_flow_action_esp(end.context, nullptr); }) == EOPNOTSUPP);
}

TEST_CASE("raw packets: requests can also be built by function calls") {
  if (!may_send_frames()) return;
  two_frame_ends ends;
  ibv_qp_ex* const builder = build_requests_of(ends.left, IBV_QP_EX_WITH_SEND);
  REQUIRE(builder != nullptr);
  ends.left.start();
  const frame sent = ends.to_right(60);
  std::copy(sent.begin(), sent.end(), ends.left.memory.begin());
  ibv_wr_start(builder);
  builder->wr_id = 3;
  builder->wr_flags = IBV_SEND_SIGNALED;
  ibv_wr_send(builder);
  const ibv_sge piece = ends.left.piece(0, static_cast<std::uint32_t>(sent.size()));
  ibv_wr_set_sge(builder, piece.lkey, piece.addr, piece.length);
  CHECK(ibv_wr_complete(builder) == 0);
  CHECK(ends.left.wait().status == IBV_WC_SUCCESS);
  CHECK(ends.right.next() == sent);
  ibv_wr_start(builder);
  builder->wr_id = 4;
  ibv_wr_send(builder);
  ibv_wr_set_sge(builder, piece.lkey, piece.addr, 13);
  CHECK(ibv_wr_complete(builder) == EINVAL);
}

TEST_CASE("raw packets: members of a group receive its frames") {
  if (!may_send_frames()) return;
  frame_end sender;
  frame_end member("soft1");
  ibv_gid group{};
  const mac address = own_group(1);
  std::copy(address.begin(), address.end(), group.raw + 10);
  ibv_gid single = group;
  single.raw[10] = 0x02;
  CHECK(ibv_attach_mcast(member.pair, &single, 0) == EINVAL);
  single = group;
  single.raw[0] = 0xff;
  CHECK(ibv_attach_mcast(member.pair, &single, 0) == EINVAL);
  REQUIRE(ibv_attach_mcast(member.pair, &group, 0) == 0);
  CHECK(ibv_attach_mcast(sender.pair, &group, 0) == 0);
  CHECK(ibv_destroy_qp(member.pair) == EBUSY);
  const frame sent = frame_of(address, own_mac(1), experimental_type, content_of(60));
  std::copy(sent.begin(), sent.end(), sender.memory.begin() + (1 << 19));
  REQUIRE(sender.send(1, {sender.piece(1 << 19, static_cast<std::uint32_t>(sent.size()))}, 0) == 0);
  CHECK(member.next() == sent);
  // A member also receives the frames that it sends.
  CHECK(sender.next() == sent);
  CHECK(ibv_detach_mcast(sender.pair, &group, 0) == 0);
  CHECK(ibv_detach_mcast(member.pair, &group, 0) == 0);
  CHECK(ibv_detach_mcast(member.pair, &group, 0) == EINVAL);
}

TEST_CASE("raw packets: network faults lose, duplicate and reorder frames") {
  if (!may_send_frames() || faults_are_in_front()) return;
  two_frame_ends ends;
  const auto at_right = "@" + std::to_string(ends.right.pair->qp_num);
  {
    const faults bad("packet" + at_right + ":1=lost; packet" + at_right + ":2=doubled");
    for (const std::size_t bytes : {1, 2, 3})
      CHECK(ends.left.send_frame(ends.to_right(bytes)) == IBV_WC_SUCCESS);
    for (const std::size_t bytes : {2, 2, 3}) CHECK(ends.right.next() == ends.to_right(bytes));
    CHECK(softverbs_faults_struck() == 2);
  }
  const faults bad("packet" + at_right + ":1=swapped");
  for (const std::size_t bytes : {1, 2})
    CHECK(ends.left.send_frame(ends.to_right(bytes)) == IBV_WC_SUCCESS);
  for (const std::size_t bytes : {2, 1}) CHECK(ends.right.next() == ends.to_right(bytes));
}

TEST_CASE("raw packets: malformed frames crash nothing") {
  if (!may_send_frames()) return;
  two_frame_ends ends;
  ends.right.hear(rule(IBV_FLOW_ATTR_ALL_DEFAULT));
  ends.right.hear(rule(IBV_FLOW_ATTR_NORMAL, 1)
                      .with(IBV_FLOW_SPEC_UDP, ibv_flow_spec_tcp_udp{})
                      .with(IBV_FLOW_SPEC_VXLAN_TUNNEL, ibv_flow_spec_tunnel{}));
  std::mt19937 random(13);
  for (int round = 0; round < 2000; ++round) {
    struct {
      softverbs::packet_header header;
      std::uint8_t payload[5000];
    } message{};
    message.header.kind = softverbs::packet_kind::frame;
    message.header.flags = static_cast<std::uint8_t>(random());
    message.header.key = static_cast<std::uint32_t>(random());
    message.header.source_qpn = ends.left.pair->qp_num;
    message.header.target_qpn = random() % 2 == 0 ? ends.right.pair->qp_num : 0xffffff;
    // Some of the lengths are too short or too long for a frame.
    const std::size_t bytes = random() % 4 == 0 ? random() % 5000 : random() % 64;
    message.header.payload = static_cast<std::uint32_t>(bytes);
    for (std::size_t at = 0; at < bytes; ++at)
      message.payload[at] = static_cast<std::uint8_t>(random());
    message.payload[12] = 0x08;
    message.payload[13] = static_cast<std::uint8_t>(random() % 2);
    message.payload[14] = static_cast<std::uint8_t>(0x40 + random() % 16);
    intruder from(ends.right.pair->qp_num);
    from.send(&message, sizeof(message.header) + bytes);
    ibv_wc completion{};
    if (ibv_poll_cq(ends.right.queue, 1, &completion) != 1) continue;
    REQUIRE(completion.status == IBV_WC_SUCCESS);
    CHECK(completion.wc_flags == 0);
    CHECK(completion.byte_len >= 14);
    CHECK(completion.byte_len <= 4210);
    REQUIRE(ends.right.post_receive(
                completion.wr_id,
                {ends.right.piece(completion.wr_id * frame_end::room, frame_end::room)}) == 0);
  }
  // Earlier frames may occupy all receives, so this frame is sent repeatedly until it arrives.
  const frame one = ends.to_right(77);
  CHECK(eventually([&] {
    CHECK(ends.left.send_frame(one) == IBV_WC_SUCCESS);
    ibv_wc completion{};
    while (ibv_poll_cq(ends.right.queue, 1, &completion) == 1) {
      const auto place =
          ends.right.memory.begin() + static_cast<std::ptrdiff_t>(completion.wr_id * 8192);
      const bool found = frame(place, place + completion.byte_len) == one;
      ends.right.post_receive(completion.wr_id, {ends.right.piece(completion.wr_id * 8192, 8192)});
      if (found) return true;
    }
    return false;
  }));
}

TEST_CASE("raw packets: all processes are on the same Ethernet") {
  if (!may_send_frames()) return;
  frame_end end;
  peer other("frame echo");
  const mac there = [&] {
    mac result{};
    other.hear(result.data(), result.size());
    return result;
  }();
  const mac here = own_mac(1);
  other.tell(here.data(), here.size());
  end.hear(rule().to(here));
  CHECK(other.hear() == 'r');
  for (std::size_t bytes = 0; bytes < 100; ++bytes) {
    CHECK(end.send_frame(frame_of(there, here, experimental_type, content_of(bytes))) ==
          IBV_WC_SUCCESS);
    const ibv_wc back = end.wait();
    REQUIRE(back.status == IBV_WC_SUCCESS);
    CHECK(back.byte_len == 14 + bytes);
    const auto place = end.memory.begin() + static_cast<std::ptrdiff_t>(back.wr_id * end.room);
    CHECK(frame(place, place + back.byte_len) ==
          frame_of(here, there, experimental_type, content_of(bytes)));
    REQUIRE(end.post_receive(back.wr_id, {end.piece(back.wr_id * end.room, end.room)}) == 0);
  }
  other.finish();
}
