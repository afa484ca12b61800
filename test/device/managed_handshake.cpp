// SPDX-License-Identifier: Apache-2.0
/// \file
/// Handshakes with the attributes that a connection manager supplies.

#include "channels.hpp"
#include "failing_verb.hpp"
#include "transports.hpp"

#include <cstddef>
#include <cstring>

using namespace verbspp;
using namespace verbspp::test;

namespace {

/// Returns the attributes that a connection manager would supply to an RC queue pair that connects
/// to this peer.
managed_attributes attributes_for_peer(const testbed& bed, const endpoint& local,
                                       const endpoint& remote, const path& way) {
  managed_attributes made;
  made.init.attributes.qp_state = IBV_QPS_INIT;
  made.init.attributes.port_num = bed.port.number().value();
  made.init.attributes.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
  made.init.mask = IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS;

  ibv_qp_attr& receiving = made.ready_to_receive.attributes;
  receiving.qp_state = IBV_QPS_RTR;
  receiving.ah_attr = way.native(bed.port.number());
  receiving.path_mtu = IBV_MTU_1024;
  receiving.dest_qp_num = remote.number.value();
  receiving.rq_psn = 0x222;
  receiving.max_dest_rd_atomic = 200;
  receiving.min_rnr_timer = 0;
  made.ready_to_receive.mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                               IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;

  ibv_qp_attr& sending = made.ready_to_send.attributes;
  sending.qp_state = IBV_QPS_RTS;
  sending.sq_psn = 0x222;
  sending.timeout = 20;
  sending.retry_cnt = 1;
  sending.rnr_retry = 1;
  sending.max_rd_atomic = local.reads_as_initiator.value() > 1 ? 1 : 0;
  made.ready_to_send.mask = IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                            IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
  return made;
}

managed_attributes attributes_of_itself(const testbed& bed,
                                        const prepared_queue_pair<transport::rc>& pair) {
  const endpoint self = pair.endpoint();
  return attributes_for_peer(bed, self, self, must(pair.path_to(self)));
}

path way_on(const testbed& bed, const endpoint& remote) {
  return must(must(bed.left().build()).path_to(remote));
}

}  // namespace

TEST_CASE("a queue pair connects to the peer that a connection manager has found") {
  const testbed bed;
  auto pair = must(bed.left().min_rnr_timer(3).rnr_retry_count(5).ack_timeout(17).build());
  const managed_attributes by = attributes_of_itself(bed, pair);
  const read_depth reads = pair.endpoint().reads_as_target;
  auto connected = must(std::move(pair).handshake(by));
  CHECK(connected.endpoint().send_psn == packet_sequence_number(0x222));
  const auto status = must(connected.query());
  const ibv_qp_attr native = status.attributes();
  CHECK(native.min_rnr_timer == 3);
  CHECK(native.rnr_retry == 5);
  CHECK(native.timeout == 17);
  CHECK(native.path_mtu == IBV_MTU_1024);
  CHECK(native.max_dest_rd_atomic == reads.value());

  const buffer<> from(bed.domain, pattern(8, 1));
  const buffer<> to(bed.domain, 8);
  must(connected.post_receive({.elements = to.scatter()}, {.id = 1}));
  must(connected.post_send({.elements = from.gather()}, {.id = 2}));
  CHECK(take(bed.left_queue, 2).size() == 2);
  CHECK(to.bytes() == from.bytes());
}

TEST_CASE("the builder's rights take precedence over those of a connection manager") {
  const testbed bed;
  auto pair = must(bed.builder(bed.left_queue).access(access::local_write).build());
  managed_attributes by = attributes_of_itself(bed, pair);
  by.ready_to_receive.attributes.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
  by.ready_to_receive.mask |= IBV_QP_ACCESS_FLAGS;
  const auto connected = must(std::move(pair).handshake(by));
  CHECK_FALSE(must(connected.query()).access().contains(access::remote_write));
}

TEST_CASE("the attributes of a connection manager are checked before the device is called") {
  const testbed bed;
  const auto refused = [&](auto change, const char* operation, const char* words) {
    auto pair = must(bed.left().build());
    managed_attributes by = attributes_of_itself(bed, pair);
    change(by);
    const failing_verb asked("ibv_modify_qp", EIO);
    const error e = failure_of(std::move(pair).handshake(by));
    CHECK(e == error_kind::invalid_input);
    CHECK(std::string(e.operation()) == operation);
    CHECK_THAT(e.message(), Catch::EndsWith(words));
    CHECK(asked.calls() == 0);
  };
  refused([](auto& by) { by.ready_to_receive.mask &= ~IBV_QP_DEST_QPN; }, "modify INIT -> RTR",
          "missing: destination queue pair");
  refused([](auto& by) { by.ready_to_receive.mask |= IBV_QP_QKEY; }, "modify INIT -> RTR",
          "does not accept an attribute in the mask: queue key");
  refused([](auto& by) { by.ready_to_receive.attributes.qp_state = IBV_QPS_RTS; },
          "modify INIT -> RTR", "for a transition to another state: see their qp_state");

  refused(
      [](auto& by) {
        constexpr unsigned code = 40;  // not a value of the enumeration
        std::memcpy(&by.ready_to_receive.attributes.path_mtu, &code, sizeof code);
      },
      "handshake", "40 is out of range; the codes are 1 (256 bytes) to 5 (4096 bytes)");

  auto pair = must(bed.left().build());
  managed_attributes by = attributes_of_itself(bed, pair);
  by.ready_to_send.mask &= ~IBV_QP_SQ_PSN;
  CHECK(failure_of(std::move(pair).handshake(by)) == error_kind::invalid_input);
  CHECK(failure_of(std::move(pair).handshake(by)) ==  // NOLINT(bugprone-use-after-move)
        error_kind::invalid_input);
}

TEST_CASE("reserved mask bits that older kernels use for RoCE are ignored") {
  const testbed bed;
  auto pair = must(bed.left().build());
  managed_attributes by = attributes_of_itself(bed, pair);
  by.ready_to_receive.mask |= 0xf << 21;
  must(std::move(pair).handshake(by));
}

TEST_CASE("a requested path MTU must equal that of the connection manager") {
  const testbed bed;
  auto pair = must(bed.left().path_mtu(512).build());
  const error e = failure_of(std::move(pair).handshake(attributes_of_itself(bed, pair)));
  CHECK(e == error_kind::mismatch);
  CHECK_THAT(e.message(), Catch::Contains("512") && Catch::Contains("1024"));
}

TEST_CASE("channels connect to the peers that a connection manager has found") {
  const testbed bed;
  prepared_channel left = must(bed.domain.build_channel().build());
  channel right(must(bed.domain.build_channel().build()));
  const endpoint left_end = left.endpoint();
  const endpoint right_end = right.endpoint();
  const managed_attributes to_right =
      attributes_for_peer(bed, left_end, right_end, way_on(bed, right_end));
  const managed_attributes to_left =
      attributes_for_peer(bed, right_end, left_end, way_on(bed, left_end));
  channel connected = must(std::move(left).handshake(to_right));
  must(right.handshake(to_left));
  CHECK(connected.endpoint().generation == left_end.generation);

  const buffer<> from(bed.domain, pattern(8, 2));
  const buffer<> to(bed.domain, 8);
  auto received = must(right.post_receive({.elements = to.scatter()}));
  must(connected.send({.elements = from.gather()}));
  must(received.wait());
  CHECK(to.bytes() == from.bytes());

  CHECK(failure_of(right.handshake(to_left)) == error_kind::busy);
  CHECK(failure_of(std::move(left).handshake(to_right)) ==  // NOLINT(bugprone-use-after-move)
        error_kind::not_connected);
}

TEST_CASE("a channel whose managed handshake fails is broken and reports the reason") {
  const testbed bed;
  channel one(must(bed.domain.build_channel().build()));
  const endpoint self = one.endpoint();
  managed_attributes by = attributes_for_peer(bed, self, self, way_on(bed, self));
  by.ready_to_send.mask = 0;
  CHECK(failure_of(one.handshake(by)) == error_kind::invalid_input);
  CHECK(one.state() == channel_state::broken);
  must(one.renew());
  CHECK(one.state() == channel_state::prepared);
}
