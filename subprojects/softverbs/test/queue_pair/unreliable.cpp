// SPDX-License-Identifier: Apache-2.0
// Unreliable connections: which messages arrive, and which are silently lost.
#include "catch.hpp"
#include "support/fabric.hpp"
#include "support/registered_page.hpp"

#include <endian.h>

#include <algorithm>
#include <cerrno>

namespace {

options unreliable() { return {.type = IBV_QPT_UC}; }

struct unreliable_connection : connection {
  unreliable_connection() : connection(unreliable()) {}
};

bool arrived(const connection& link, std::size_t length) {
  return std::equal(link.left.memory.begin(),
                    link.left.memory.begin() + static_cast<std::ptrdiff_t>(length),
                    link.right.memory.begin() + half);
}

/// Checks that both ends behave as if nothing had been sent.
void nothing_happened(connection& link) {
  CHECK(link.right.quiet());
  CHECK(link.left.state() == IBV_QPS_RTS);
  CHECK(link.right.state() == IBV_QPS_RTS);
  CHECK(!has_event(link.left.context));
  CHECK(!has_event(link.right.context));
}

}  // namespace

TEST_CASE("UC: a message of any size arrives") {
  unreliable_connection link;
  for (const std::uint32_t size : {0U, 1U, 4096U, 32768U, 32769U, 500000U}) {
    fill(link.left, 0, size, size);
    REQUIRE(link.right.post_receive(1, {link.right.piece(half, half)}) == 0);
    REQUIRE(link.left.send(2, {link.left.piece(0, size)}) == 0);
    const ibv_wc received = link.right.wait();
    CHECK(received.status == IBV_WC_SUCCESS);
    CHECK(received.opcode == IBV_WC_RECV);
    CHECK(received.byte_len == size);
    CHECK(received.qp_num == link.right.pair->qp_num);
    const ibv_wc completed = link.left.wait();
    CHECK(completed.status == IBV_WC_SUCCESS);
    CHECK(completed.opcode == IBV_WC_SEND);
    CHECK(completed.wr_id == 2);
    CHECK(arrived(link, size));
  }
}

TEST_CASE("UC: remote memory is written with or without immediate data") {
  unreliable_connection link;
  for (const std::uint32_t size : {1U, 100000U}) {
    ibv_send_wr request{};
    request.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
    request.send_flags = IBV_SEND_SIGNALED;
    request.imm_data = htobe32(size);
    request.wr.rdma = {link.right.here().memory + half, link.right.region->rkey};
    fill(link.left, 0, size, size);
    REQUIRE(link.right.post_receive(1, {}) == 0);
    REQUIRE(link.left.post(request, {link.left.piece(0, size)}) == 0);
    CHECK(link.left.wait().opcode == IBV_WC_RDMA_WRITE);
    const ibv_wc received = link.right.wait();
    CHECK(received.opcode == IBV_WC_RECV_RDMA_WITH_IMM);
    CHECK(received.byte_len == size);
    CHECK(received.imm_data == htobe32(size));
    CHECK(arrived(link, size));

    fill(link.left, 0, size, size + 1);
    REQUIRE(link.left.write(2, {link.left.piece(0, size)}, link.right.here(), half) == 0);
    CHECK(link.left.wait().status == IBV_WC_SUCCESS);
    still_works(link);
  }
}

TEST_CASE("UC: there are no reads and no atomics") {
  unreliable_connection link;
  CHECK(link.left.read(1, {link.left.piece(0, 8)}, link.right.here()) == EINVAL);
  ibv_send_wr request{};
  for (const ibv_wr_opcode opcode : {IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_FETCH_AND_ADD}) {
    request.opcode = opcode;
    CHECK(link.left.post(request, {link.left.piece(0, 8)}) == EINVAL);
  }
}

TEST_CASE("UC: a message without a receive is lost") {
  unreliable_connection link;
  for (const std::uint32_t size : {8U, 100000U}) {
    REQUIRE(link.left.send(1, {link.left.piece(0, size)}) == 0);
    CHECK(link.left.wait().status == IBV_WC_SUCCESS);
    nothing_happened(link);
  }
  still_works(link);
}

TEST_CASE("UC: a write that isn't allowed is lost") {
  const auto attempt = [](int region_access, unsigned queue_pair_access, std::uint32_t key) {
    options right = unreliable();
    right.region_access = region_access;
    right.queue_pair_access = queue_pair_access;
    connection link(unreliable(), right);
    address peer = link.right.here();
    peer.rkey ^= key;
    REQUIRE(link.left.write(1, {link.left.piece(0, 100000)}, peer) == 0);
    CHECK(link.left.wait().status == IBV_WC_SUCCESS);
    nothing_happened(link);
    still_works(link);
  };
  attempt(IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_REMOTE_WRITE, 0);
  attempt(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE, 0, 0);
  attempt(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE, IBV_ACCESS_REMOTE_WRITE, 0x100);
}

TEST_CASE("UC: packets before the expected one do not break a connection") {
  endpoint left(unreliable());
  endpoint right(unreliable());
  address from_left = left.here();
  from_left.psn += 5;  // The receiver expects the sixth packet first.
  left.connect(right.here());
  right.connect(from_left);
  for (std::uint64_t id = 0; id < 3; ++id) {
    REQUIRE(right.post_receive(id, {right.piece(0, 100000)}) == 0);
    REQUIRE(left.send(id, {left.piece(0, 100000)}) == 0);
    CHECK(left.wait().status == IBV_WC_SUCCESS);
    CHECK(right.wait().wr_id == id);
  }
}

TEST_CASE("UC: a receive that is too short fails only at the receiver") {
  unreliable_connection link;
  REQUIRE(link.right.post_receive(1, {link.right.piece(0, 99)}) == 0);
  REQUIRE(link.right.post_receive(2, {}) == 0);
  REQUIRE(link.left.send(3, {link.left.piece(0, 100)}) == 0);
  CHECK(link.left.wait().status == IBV_WC_SUCCESS);
  const ibv_wc failed = link.right.wait();
  CHECK(failed.status == IBV_WC_LOC_LEN_ERR);
  CHECK(failed.wr_id == 1);
  CHECK(link.right.wait().status == IBV_WC_WR_FLUSH_ERR);
  CHECK(link.right.state() == IBV_QPS_ERR);
  CHECK(link.left.state() == IBV_QPS_RTS);
}

TEST_CASE("UC: bad memory of a receive fails only at the receiver") {
  options constant = unreliable();
  constant.region_access = 0;
  connection link(unreliable(), constant);
  REQUIRE(link.right.post_receive(1, {link.right.piece(0, 8)}) == 0);
  REQUIRE(link.left.send(2, {link.left.piece(0, 8)}) == 0);
  CHECK(link.left.wait().status == IBV_WC_SUCCESS);
  CHECK(link.right.wait().status == IBV_WC_LOC_PROT_ERR);
  CHECK(link.right.state() == IBV_QPS_ERR);
}

TEST_CASE("UC: a failed send stops the send queue until it is resumed") {
  unreliable_connection link;
  REQUIRE(link.left.post_receive(10, {link.left.piece(0, 100)}) == 0);
  ibv_sge wrong = link.left.piece(0, 8);
  wrong.lkey = 0;
  REQUIRE(link.left.send(1, {wrong}) == 0);
  const ibv_wc failed = link.left.wait();
  CHECK(failed.status == IBV_WC_LOC_PROT_ERR);
  CHECK(failed.wr_id == 1);
  CHECK(link.left.state() == IBV_QPS_SQE);
  // Sends that are posted in this state are flushed.
  REQUIRE(link.left.send(2, {link.left.piece(0, 8)}, 0) == 0);
  const ibv_wc flushed = link.left.wait();
  CHECK(flushed.status == IBV_WC_WR_FLUSH_ERR);
  CHECK(flushed.wr_id == 2);
  // The queue pair still receives.
  REQUIRE(link.right.send(3, {link.right.piece(0, 100)}) == 0);
  CHECK(link.right.wait().status == IBV_WC_SUCCESS);
  const ibv_wc received = link.left.wait();
  CHECK(received.status == IBV_WC_SUCCESS);
  CHECK(received.wr_id == 10);

  CHECK(link.left.change(IBV_QPS_SQD) == EINVAL);
  REQUIRE(link.left.change(IBV_QPS_RTS) == 0);
  CHECK(link.left.quiet());
  still_works(link);
}

TEST_CASE("UC: requests after a failed send are never executed") {
  unreliable_connection link;
  REQUIRE(link.right.post_receive(10, {link.right.piece(0, 8)}) == 0);
  ibv_sge wrong = link.left.piece(0, 8);
  wrong.lkey = 0;
  ibv_sge good = link.left.piece(0, 8);
  ibv_send_wr second{};
  second.wr_id = 2;
  second.opcode = IBV_WR_SEND;
  second.sg_list = &good;
  second.num_sge = 1;
  ibv_send_wr first = second;
  first.wr_id = 1;
  first.sg_list = &wrong;
  first.next = &second;
  ibv_send_wr* bad = nullptr;
  REQUIRE(ibv_post_send(link.left.pair, &first, &bad) == 0);
  while (link.left.state() != IBV_QPS_SQE) continue;
  REQUIRE(link.left.change(IBV_QPS_RTS) == 0);
  CHECK(link.left.wait().status == IBV_WC_LOC_PROT_ERR);
  CHECK(link.left.wait().status == IBV_WC_WR_FLUSH_ERR);
  CHECK(link.right.quiet());
}

TEST_CASE("UC: an incomplete message is not delivered") {
  unreliable_connection link;
  REQUIRE(link.right.post_receive(1, {link.right.piece(0, half)}) == 0);
  const registered_page page(link.left, 0, 1 << 16);
  page.take_away();
  // The device doesn't detect that the memory is missing until it reaches the end of the message.
  REQUIRE(link.left.send(2, {link.left.piece(0, 300000), page.piece(1 << 16)}) == 0);
  CHECK(link.left.wait().status == IBV_WC_LOC_PROT_ERR);
  CHECK(link.right.quiet());
  REQUIRE(link.left.change(IBV_QPS_RTS) == 0);
  REQUIRE(link.left.send(3, {link.left.piece(0, 8)}) == 0);
  CHECK(link.left.wait().status == IBV_WC_SUCCESS);
  CHECK(link.right.wait().byte_len == 8);
}

TEST_CASE("UC: packets of another transport are ignored") {
  const auto attempt = [](ibv_qp_type left_type, ibv_qp_type right_type) {
    options left;
    options right;
    left.type = left_type;
    right.type = right_type;
    left.timeout = 1;
    left.retry_count = 1;
    connection link(left, right);
    REQUIRE(link.right.post_receive(1, {link.right.piece(0, 8)}) == 0);
    REQUIRE(link.left.send(2, {link.left.piece(0, 8)}) == 0);
    CHECK(link.left.wait().status ==
          (left_type == IBV_QPT_RC ? IBV_WC_RETRY_EXC_ERR : IBV_WC_SUCCESS));
    CHECK(link.right.quiet());
  };
  attempt(IBV_QPT_UC, IBV_QPT_RC);
  attempt(IBV_QPT_RC, IBV_QPT_UC);
}

TEST_CASE("UC: a send to a nonexistent peer succeeds") {
  endpoint end(unreliable());
  address nowhere = end.here();
  nowhere.qpn ^= 1;
  end.connect(nowhere);
  REQUIRE(end.send(1, {end.piece(0, 8)}) == 0);
  CHECK(end.wait().status == IBV_WC_SUCCESS);
  nowhere.qpn = 1;
  REQUIRE(end.change(IBV_QPS_RESET) == 0);
  end.connect(nowhere);
  REQUIRE(end.send(1, {end.piece(0, 8)}) == 0);
  CHECK(end.wait().status == IBV_WC_SUCCESS);
}

TEST_CASE("UC: the first packet in RTR raises IBV_EVENT_COMM_EST") {
  endpoint left(unreliable());
  endpoint right(unreliable());
  left.connect(right.here());
  REQUIRE(right.initialize() == 0);
  REQUIRE(right.post_receive(1, {right.piece(0, 8)}) == 0);
  REQUIRE(right.ready_to_receive(left.here()) == 0);
  REQUIRE(left.send(2, {left.piece(0, 8)}) == 0);
  CHECK(right.event().event_type == IBV_EVENT_COMM_EST);
  CHECK(right.wait().wr_id == 1);
}
