// SPDX-License-Identifier: Apache-2.0
#include "catch.hpp"
#include "support/fabric.hpp"

#include <endian.h>

#include <algorithm>
#include <cerrno>
#include <numeric>
#include <thread>

TEST_CASE("a message of any size arrives") {
  connection link;
  for (const std::uint32_t size : {0U, 1U, 64U, 4095U, 32767U, 32768U, 32769U, 65536U, 500000U}) {
    fill(link.left, 0, size, size);
    REQUIRE(link.right.post_receive(1, {link.right.piece(half, half)}) == 0);
    REQUIRE(link.left.send(2, {link.left.piece(0, size)}) == 0);
    const ibv_wc received = link.right.wait();
    CHECK(received.status == IBV_WC_SUCCESS);
    CHECK(received.opcode == IBV_WC_RECV);
    CHECK(received.wr_id == 1);
    CHECK(received.byte_len == size);
    CHECK(received.qp_num == link.right.pair->qp_num);
    CHECK(received.src_qp == link.left.pair->qp_num);
    CHECK(received.wc_flags == 0);
    const ibv_wc completed = link.left.wait();
    CHECK(completed.status == IBV_WC_SUCCESS);
    CHECK(completed.opcode == IBV_WC_SEND);
    CHECK(completed.wr_id == 2);
    CHECK(same(link.left, 0, link.right, half, size));
  }
}

TEST_CASE("a queue pair can be connected to itself") {
  endpoint end;
  end.connect(end.here());
  fill(end, 0, 100, 1);
  REQUIRE(end.post_receive(1, {end.piece(half, 100)}) == 0);
  REQUIRE(end.send(2, {end.piece(0, 100)}) == 0);
  CHECK(end.wait().status == IBV_WC_SUCCESS);
  CHECK(end.wait().status == IBV_WC_SUCCESS);
  CHECK(same(end, 0, end, half, 100));
}

TEST_CASE("queue pairs of two devices can be connected") {
  connection link({}, options{.device = "soft1"});
  still_works(link);
}

TEST_CASE("data is gathered and scattered") {
  connection link;
  fill(link.left, 0, 100000, 9);
  REQUIRE(link.right.post_receive(
              1, {link.right.piece(10, 1), link.right.piece(100000, 0), link.right.piece(11, 59999),
                  link.right.piece(60010, half)}) == 0);
  REQUIRE(link.left.send(2, {link.left.piece(0, 3), link.left.piece(3, 50000),
                             link.left.piece(50003, 49997)}) == 0);
  CHECK(link.right.wait().byte_len == 100000);
  CHECK(link.left.wait().status == IBV_WC_SUCCESS);
  CHECK(same(link.left, 0, link.right, 10, 100000));
}

TEST_CASE("inline data may change as soon as it is posted") {
  connection link;
  fill(link.left, 0, 64, 3);
  const std::vector<unsigned char> before(link.left.memory.begin(), link.left.memory.begin() + 64);
  REQUIRE(link.right.post_receive(1, {link.right.piece(0, 64)}) == 0);
  // Inline data does not require a valid lkey, either.
  ibv_sge piece = link.left.piece(0, 64);
  piece.lkey = 0;
  REQUIRE(link.left.send(2, {piece}, IBV_SEND_SIGNALED | IBV_SEND_INLINE) == 0);
  std::fill_n(link.left.memory.begin(), 64, static_cast<unsigned char>(0));
  CHECK(link.right.wait().status == IBV_WC_SUCCESS);
  CHECK(std::equal(before.begin(), before.end(), link.right.memory.begin()));
}

TEST_CASE("immediate data arrives with a send or a write") {
  connection link;
  ibv_send_wr request{};
  request.wr_id = 5;
  request.send_flags = IBV_SEND_SIGNALED;
  request.imm_data = htobe32(0x01020304);
  request.opcode = IBV_WR_SEND_WITH_IMM;
  REQUIRE(link.right.post_receive(1, {link.right.piece(0, 64)}) == 0);
  REQUIRE(link.left.post(request, {link.left.piece(0, 10)}) == 0);
  ibv_wc received = link.right.wait();
  CHECK(received.opcode == IBV_WC_RECV);
  CHECK(received.wc_flags == IBV_WC_WITH_IMM);
  CHECK(received.imm_data == htobe32(0x01020304));
  CHECK(link.left.wait().opcode == IBV_WC_SEND);

  for (const std::uint32_t size : {0U, 10U, 100000U}) {
    fill(link.left, 0, size, 8);
    request.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
    request.wr.rdma = {link.right.here().memory + half, link.right.region->rkey};
    REQUIRE(link.right.post_receive(2, {}) == 0);
    REQUIRE(link.left.post(request, {link.left.piece(0, size)}) == 0);
    received = link.right.wait();
    CHECK(received.opcode == IBV_WC_RECV_RDMA_WITH_IMM);
    CHECK(received.byte_len == size);
    CHECK(received.imm_data == htobe32(0x01020304));
    CHECK(link.left.wait().opcode == IBV_WC_RDMA_WRITE);
    CHECK(same(link.left, 0, link.right, half, size));
  }
}

TEST_CASE("remote memory can be written and read") {
  connection link;
  const address peer = link.right.here();
  for (const std::uint32_t size : {1U, 4096U, 32769U, 400000U}) {
    fill(link.left, 0, size, size);
    REQUIRE(link.left.write(1, {link.left.piece(0, size)}, peer, half) == 0);
    ibv_wc completed = link.left.wait();
    CHECK(completed.status == IBV_WC_SUCCESS);
    CHECK(completed.opcode == IBV_WC_RDMA_WRITE);
    CHECK(same(link.left, 0, link.right, half, size));
    REQUIRE(
        link.left.read(
            2, {link.left.piece(half, size / 2), link.left.piece(half + size / 2, size - size / 2)},
            peer, half) == 0);
    completed = link.left.wait();
    CHECK(completed.status == IBV_WC_SUCCESS);
    CHECK(completed.opcode == IBV_WC_RDMA_READ);
    CHECK(completed.byte_len == size);
    CHECK(same(link.left, half, link.right, half, size));
  }
  CHECK(link.right.quiet());
}

TEST_CASE("an empty remote access needs no key") {
  connection link;
  address peer = link.right.here();
  peer.rkey = 0;
  REQUIRE(link.left.write(1, {}, peer) == 0);
  CHECK(link.left.wait().status == IBV_WC_SUCCESS);
  REQUIRE(link.left.read(2, {}, peer) == 0);
  CHECK(link.left.wait().status == IBV_WC_SUCCESS);
}

TEST_CASE("memory is addressed by its iova") {
  connection link;
  const auto page_offset = reinterpret_cast<std::uintptr_t>(link.right.memory.data()) & 4095;
  const std::uint64_t iova = 0x7000000 + page_offset;
  ibv_mr* region = ibv_reg_mr_iova(link.right.domain, link.right.memory.data(), 4096, iova,
                                   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
  REQUIRE(region != nullptr);
  fill(link.left, 0, 100, 4);
  address peer = link.right.here();
  peer.rkey = region->rkey;
  peer.memory = iova + 50;
  REQUIRE(link.left.write(1, {link.left.piece(0, 100)}, peer) == 0);
  CHECK(link.left.wait().status == IBV_WC_SUCCESS);
  CHECK(same(link.left, 0, link.right, 50, 100));
  CHECK(ibv_dereg_mr(region) == 0);
}

TEST_CASE("unsignaled requests have no completion unless all requests are signaled") {
  connection link;
  const address peer = link.right.here();
  REQUIRE(link.left.write(1, {link.left.piece(0, 8)}, peer, 0, 0) == 0);
  REQUIRE(link.left.write(2, {link.left.piece(0, 8)}, peer, 0, 0) == 0);
  REQUIRE(link.left.write(3, {link.left.piece(0, 8)}, peer) == 0);
  CHECK(link.left.wait().wr_id == 3);
  connection loud(options{.signal_all = 1});
  REQUIRE(loud.left.write(4, {loud.left.piece(0, 8)}, loud.right.here(), 0, 0) == 0);
  CHECK(loud.left.wait().wr_id == 4);
}

TEST_CASE("a send is executed even if its sender does not poll") {
  connection link;
  REQUIRE(link.right.post_receive(1, {link.right.piece(0, 8)}) == 0);
  link.left.memory[0] = 1;
  // The call may return before the message has been delivered. In that case, the device's thread or
  // the receiver's poll delivers it.
  REQUIRE(link.left.send(2, {link.left.piece(0, 8)}) == 0);
  CHECK(link.right.wait().status == IBV_WC_SUCCESS);
}

TEST_CASE("a list is posted up to the first bad request") {
  connection link(options{.send_requests = 4});
  REQUIRE(link.left.granted.max_send_wr == 4);
  ibv_sge piece = link.left.piece(0, 8);
  std::vector<ibv_send_wr> requests = list_of_writes(6, piece, link.right.here());
  ibv_send_wr* bad = nullptr;
  CHECK(ibv_post_send(link.left.pair, requests.data(), &bad) == ENOMEM);
  CHECK(bad == &requests[4]);
  for (std::uint64_t id = 1; id <= 4; ++id) CHECK(link.left.wait().wr_id == id);

  requests[1].opcode = IBV_WR_TSO;
  CHECK(ibv_post_send(link.left.pair, requests.data(), &bad) == EINVAL);
  CHECK(bad == &requests[1]);
  CHECK(link.left.wait().wr_id == 1);
  requests[0].num_sge = static_cast<int>(link.left.granted.max_send_sge) + 1;
  CHECK(ibv_post_send(link.left.pair, requests.data(), &bad) == EINVAL);
  CHECK(bad == &requests[0]);
  CHECK(link.left.send(1, {link.left.piece(0, 65)}, IBV_SEND_INLINE) == EINVAL);
  CHECK(link.left.quiet());
}

TEST_CASE("a slot of the send queue is free again when the request's completion has been polled") {
  options few;
  few.send_requests = few.receive_requests = 2;
  connection link(few);
  const auto depth = link.left.granted.max_send_wr;
  const address peer = link.right.here();
  for (std::uint32_t id = 0; id < depth; ++id)
    REQUIRE(link.left.write(id, {link.left.piece(0, 8)}, peer, 0,
                            id + 1 == depth ? unsigned{IBV_SEND_SIGNALED} : 0U) == 0);
  CHECK(link.left.write(9, {link.left.piece(0, 8)}, peer) == ENOMEM);
  CHECK(link.left.wait().wr_id == depth - 1);
  CHECK(link.left.write(9, {link.left.piece(0, 8)}, peer) == 0);
  CHECK(link.left.wait().wr_id == 9);
  for (std::uint32_t id = 0; id < link.right.granted.max_recv_wr; ++id)
    REQUIRE(link.right.post_receive(id, {}) == 0);
  CHECK(link.right.post_receive(9, {}) == ENOMEM);
}

TEST_CASE("messages arrive in the order of their sends") {
  connection link;
  constexpr unsigned count = 1000;
  unsigned posted = 0;
  unsigned completed = 0;
  unsigned received = 0;
  unsigned receives = 0;
  const auto deadline = std::chrono::steady_clock::now() + patience;
  while (received < count || completed < count) {
    REQUIRE(std::chrono::steady_clock::now() < deadline);
    while (receives < count &&
           link.right.post_receive(receives, {link.right.piece(receives % 64 * 8, 8)}) == 0)
      ++receives;
    while (posted < count && posted < receives &&
           link.left.send(posted, {link.left.piece(0, posted % 3 * 4)}) == 0)
      ++posted;
    ibv_wc completion{};
    while (ibv_poll_cq(link.right.queue, 1, &completion) == 1) {
      REQUIRE(completion.status == IBV_WC_SUCCESS);
      REQUIRE(completion.wr_id == received);
      REQUIRE(completion.byte_len == received % 3 * 4);
      ++received;
    }
    while (ibv_poll_cq(link.left.queue, 1, &completion) == 1) {
      REQUIRE(completion.status == IBV_WC_SUCCESS);
      REQUIRE(completion.wr_id == completed++);
    }
  }
}

TEST_CASE("a fenced request waits for the reads before it") {
  connection link;
  const address peer = link.right.here();
  fill(link.right, 0, 300000, 1);
  const std::vector<unsigned char> before(link.right.memory.begin(),
                                          link.right.memory.begin() + 300000);
  REQUIRE(link.left.read(1, {link.left.piece(half, 300000)}, peer) == 0);
  REQUIRE(link.left.write(2, {link.left.piece(0, 300000)}, peer, 0,
                          IBV_SEND_SIGNALED | IBV_SEND_FENCE) == 0);
  CHECK(link.left.wait().wr_id == 1);
  CHECK(link.left.wait().wr_id == 2);
  CHECK(std::equal(before.begin(), before.end(), link.left.memory.begin() + half));
}

TEST_CASE("reads that exceed the read depth are queued") {
  connection link(options{.reads = 1});
  fill(link.right, 0, 64 * 32, 5);
  for (std::uint32_t id = 0; id < 32; ++id)
    REQUIRE(link.left.read(id, {link.left.piece(half + id * 64, 64)}, link.right.here(), id * 64) ==
            0);
  for (std::uint32_t id = 0; id < 32; ++id) CHECK(link.left.wait().wr_id == id);
  CHECK(same(link.left, half, link.right, 0, 64 * 32));
}

TEST_CASE("both ends can send large amounts at the same time") {
  connection link;
  constexpr unsigned count = 40;
  for (unsigned id = 0; id < count; ++id) {
    REQUIRE(link.left.post_receive(1000 + id, {link.left.piece(half, 200000)}) == 0);
    REQUIRE(link.right.post_receive(1000 + id, {link.right.piece(half, 200000)}) == 0);
    REQUIRE(link.left.send(id, {link.left.piece(0, 200000)}) == 0);
    REQUIRE(link.right.send(id, {link.right.piece(0, 200000)}) == 0);
  }
  for (unsigned at = 0; at < 2 * count; ++at) {
    CHECK(link.left.wait().status == IBV_WC_SUCCESS);
    CHECK(link.right.wait().status == IBV_WC_SUCCESS);
  }
}

TEST_CASE("threads may use different queue pairs at the same time") {
  constexpr int rounds = 200;
  const auto exchange = [](connection& link, std::uint64_t base) {
    for (std::uint64_t round = 0; round < rounds; ++round) {
      if (link.right.post_receive(base + round, {link.right.piece(0, 1000)}) != 0) return false;
      if (link.left.send(round, {link.left.piece(0, 1000)}) != 0) return false;
      if (link.right.wait().status != IBV_WC_SUCCESS) return false;
      if (link.left.wait().status != IBV_WC_SUCCESS) return false;
    }
    return true;
  };
  connection one;
  connection two;
  bool first = false;
  bool second = false;
  std::thread other([&] { first = exchange(one, 0); });
  second = exchange(two, 0);
  other.join();
  CHECK(first);
  CHECK(second);
}

TEST_CASE("no request starts while the send queue is drained") {
  for (const ibv_qp_type type : {IBV_QPT_RC, IBV_QPT_UC}) {
    connection link(options{.type = type});
    REQUIRE(link.left.change(IBV_QPS_SQD) == 0);
    CHECK(link.left.state() == IBV_QPS_SQD);
    REQUIRE(link.left.write(1, {link.left.piece(0, 8)}, link.right.here()) == 0);
    CHECK(link.left.quiet());
    // The queue pair still receives.
    REQUIRE(link.left.post_receive(2, {link.left.piece(0, 8)}) == 0);
    REQUIRE(link.right.send(3, {link.right.piece(0, 8)}) == 0);
    CHECK(link.left.wait().wr_id == 2);
    REQUIRE(link.left.change(IBV_QPS_RTS) == 0);
    CHECK(link.left.wait().wr_id == 1);
  }
}

TEST_CASE("the path can be changed while the send queue is drained") {
  connection link({}, options{.device = "soft1"});
  address other = link.right.here();
  const std::uint8_t other_index = 5;
  if (on_ethernet()) REQUIRE(ibv_query_gid(link.right.context, 1, other_index, &other.gid) == 0);
  REQUIRE(link.left.change(IBV_QPS_SQD) == 0);
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_SQD;
  attributes.ah_attr = link.left.address_of(other);
  attributes.ah_attr.grh.sgid_index = on_ethernet() ? other_index : 0;
  CHECK(ibv_modify_qp(link.left.pair, &attributes, IBV_QP_STATE | IBV_QP_AV) == 0);
  REQUIRE(link.left.change(IBV_QPS_RTS) == 0);
  REQUIRE(link.left.write(1, {link.left.piece(0, 8)}, link.right.here()) == 0);
  CHECK(link.left.wait().status == IBV_WC_SUCCESS);

  // The kernel treats the port as a part of the path, and does not permit an unreliable connection
  // to change it.
  connection fixed(options{.type = IBV_QPT_UC});
  REQUIRE(fixed.left.change(IBV_QPS_SQD) == 0);
  attributes.ah_attr = fixed.left.address_of(fixed.right.here());
  CHECK(ibv_modify_qp(fixed.left.pair, &attributes, IBV_QP_STATE | IBV_QP_AV) == EINVAL);
}
