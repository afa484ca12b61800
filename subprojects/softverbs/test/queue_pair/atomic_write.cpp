// SPDX-License-Identifier: Apache-2.0
#include "base/newer_verbs.hpp"
#include "catch.hpp"
#include "support/fabric.hpp"
#include "support/intruder.hpp"
#include "support/registered_page.hpp"
#include "wire/packet.hpp"

#include <atomic>
#include <cerrno>
#include <cstring>
#include <thread>

namespace {

namespace newer = softverbs::newer;

constexpr std::uint64_t written_operations =
    newer::qp_ex_with_atomic_write | IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_READ;

struct writing_connection : building_connection {
  explicit writing_connection(const options& left_wants = {}, const options& right_wants = {})
      : building_connection(written_operations, left_wants, right_wants) {}

  void add(std::uint64_t id, const address& peer, std::uint64_t offset, std::uint64_t value,
           unsigned flags = IBV_SEND_SIGNALED) const {
    build->wr_id = id;
    build->wr_flags = flags;
    newer::functions_of(*build).wr_atomic_write(build, peer.rkey, peer.memory + offset, &value);
  }
  int write(std::uint64_t id, const address& peer, std::uint64_t offset,
            std::uint64_t value) const {
    ibv_wr_start(build);
    add(id, peer, offset, value);
    return ibv_wr_complete(build);
  }
};

}  // namespace

TEST_CASE("an atomic write writes eight bytes without a completion at the peer") {
  writing_connection link;
  REQUIRE(link.write(1, link.right.here(), 64, large_word) == 0);
  const ibv_wc completed = link.left.wait();
  CHECK(completed.status == IBV_WC_SUCCESS);
  CHECK(completed.opcode == newer::wc_atomic_write);
  CHECK(completed.wr_id == 1);
  CHECK(word(link.right, 56) == 0);
  CHECK(word(link.right, 64) == large_word);
  CHECK(word(link.right, 72) == 0);
  CHECK(link.right.quiet());
}

TEST_CASE("an atomic write is executed in order with writes and reads") {
  writing_connection link;
  const address peer = link.right.here();
  const std::uint64_t first = 5;
  std::memcpy(link.left.memory.data(), &first, sizeof(first));
  ibv_wr_start(link.build);
  link.build->wr_flags = IBV_SEND_SIGNALED;
  link.build->wr_id = 1;
  ibv_wr_rdma_write(link.build, peer.rkey, peer.memory);
  ibv_wr_set_sge(link.build, link.left.region->lkey, link.left.piece(0, 8).addr, 8);
  link.build->wr_id = 2;
  ibv_wr_rdma_read(link.build, peer.rkey, peer.memory);
  ibv_wr_set_sge(link.build, link.left.region->lkey, link.left.piece(8, 8).addr, 8);
  link.add(3, peer, 0, 6, 0);
  link.build->wr_flags = IBV_SEND_SIGNALED;
  link.build->wr_id = 4;
  ibv_wr_rdma_read(link.build, peer.rkey, peer.memory);
  ibv_wr_set_sge(link.build, link.left.region->lkey, link.left.piece(16, 8).addr, 8);
  REQUIRE(ibv_wr_complete(link.build) == 0);
  for (const std::uint64_t id : {1, 2, 4}) CHECK(link.left.wait().wr_id == id);
  CHECK(word(link.left, 8) == 5);
  CHECK(word(link.left, 16) == 6);
}

TEST_CASE("the processor never sees a part of an atomic write") {
  writing_connection link;
  std::atomic<bool> done{false};
  std::atomic<bool> torn{false};
  std::atomic_ref<std::uint64_t> there(*reinterpret_cast<std::uint64_t*>(link.right.memory.data()));
  std::thread looks([&] {
    while (!done) {
      const std::uint64_t value = there.load();
      if (value != 0 && value != ~std::uint64_t{0}) torn = true;
    }
  });
  for (std::uint64_t round = 0; round < 500; ++round) {
    REQUIRE(link.write(round, link.right.here(), 0, round % 2 == 0 ? ~std::uint64_t{0} : 0) == 0);
    CHECK(link.left.wait().status == IBV_WC_SUCCESS);
  }
  done = true;
  looks.join();
  CHECK_FALSE(torn);
}

TEST_CASE("an invalid atomic write fails in the same way as on hardware") {
  const auto attempt = [](const options& right, std::uint64_t offset, std::uint32_t key,
                          ibv_wc_status status, ibv_event_type event) {
    writing_connection link({}, right);
    address peer = link.right.here();
    peer.rkey ^= key;
    REQUIRE(link.write(1, peer, offset, large_word) == 0);
    CHECK(link.left.wait().status == status);
    CHECK(link.left.state() == IBV_QPS_ERR);
    CHECK(link.right.event().event_type == event);
    CHECK(word(link.right, 64) == 0);
  };
  options no_right;
  no_right.queue_pair_access &= ~unsigned{IBV_ACCESS_REMOTE_WRITE};
  attempt(no_right, 64, 0, IBV_WC_REM_INV_REQ_ERR, IBV_EVENT_QP_REQ_ERR);
  no_right = {};
  no_right.region_access &= ~IBV_ACCESS_REMOTE_WRITE;
  attempt(no_right, 64, 0, IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR);
  attempt({}, 64, 0x100, IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR);
  attempt({}, 1 << 20, 0, IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR);
  attempt({}, (1 << 20) - 4, 0, IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR);
  for (const std::uint64_t offset : {60, 65, 68})
    attempt({}, offset, 0, IBV_WC_REM_INV_REQ_ERR, IBV_EVENT_QP_REQ_ERR);
  writing_connection link({}, options{.reads = 0});
  REQUIRE(link.write(1, link.right.here(), 0, large_word) == 0);
  CHECK(link.left.wait().status == IBV_WC_REM_INV_REQ_ERR);
}

TEST_CASE("an atomic write counts as a read") {
  writing_connection without_depth(options{.reads = 0});
  REQUIRE(without_depth.write(1, without_depth.right.here(), 0, large_word) == 0);
  CHECK(without_depth.left.wait().status == IBV_WC_LOC_QP_OP_ERR);

  writing_connection link(options{.reads = 1});
  const address peer = link.right.here();
  ibv_wr_start(link.build);
  for (std::uint32_t id = 0; id < 16; ++id) link.add(id, peer, id * std::uint64_t{8}, id + 1);
  REQUIRE(ibv_wr_complete(link.build) == 0);
  for (std::uint32_t id = 0; id < 16; ++id) {
    const ibv_wc completed = link.left.wait();
    CHECK(completed.wr_id == id);
    CHECK(completed.status == IBV_WC_SUCCESS);
    CHECK(word(link.right, id * std::size_t{8}) == id + 1);
  }
}

TEST_CASE("an atomic write on unmapped or read-only memory fails") {
  for (const bool unmaps : {true, false}) {
    writing_connection link;
    const registered_page page(link.right);
    if (unmaps)
      page.take_away();
    else
      page.forbid_writes();
    REQUIRE(link.write(1, page.there(), 0, large_word) == 0);
    CHECK(link.left.wait().status == IBV_WC_REM_ACCESS_ERR);
  }
}

TEST_CASE("a retransmitted atomic write is not executed again") {
  connection link;
  struct {
    softverbs::packet_header header;
    softverbs::atomic_operands operands;
  } message{};
  message.header = forged(link);
  message.header.kind = softverbs::packet_kind::atomic_write;
  message.header.key = link.right.region->rkey;
  message.header.address = link.right.here().memory;
  message.header.payload = sizeof(message.operands);
  message.header.psn = link.left.psn;
  message.operands.compare_or_add = large_word;
  intruder from(link.right.pair->qp_num);
  from.send(&message, sizeof(message));
  CHECK(eventually([&] { return changing_word(link.right, 0) == large_word; }));
  const std::uint64_t own = 7;
  std::memcpy(link.right.memory.data(), &own, sizeof(own));
  from.send(&message, sizeof(message));
  // The next atomic write goes to the next word.
  message.header.psn = link.left.psn + 1;
  message.header.address += sizeof(own);
  from.send(&message, sizeof(message));
  CHECK(eventually([&] { return changing_word(link.right, 8) == large_word; }));
  CHECK(word(link.right, 0) == own);
}

TEST_CASE(
    "the data of an atomic write is passed by value and only to the function for atomic writes") {
  writing_connection link;
  const address peer = link.right.here();
  ibv_send_wr request{};
  request.opcode = newer::wr_atomic_write;
  request.send_flags = IBV_SEND_SIGNALED;
  request.wr.atomic = {peer.memory, large_word, 0, peer.rkey};
  CHECK(link.left.post(request, {}) == EINVAL);

  ibv_wr_start(link.build);
  link.add(1, peer, 0, large_word);
  ibv_wr_set_sge(link.build, link.left.region->lkey, link.left.piece(0, 8).addr, 8);
  CHECK(ibv_wr_complete(link.build) == EINVAL);
  CHECK(link.left.quiet());

  ibv_qp_init_attr_ex unreliable{};
  unreliable.send_cq = unreliable.recv_cq = link.left.queue;
  unreliable.qp_type = IBV_QPT_UC;
  unreliable.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  unreliable.pd = link.left.domain;
  unreliable.send_ops_flags = newer::qp_ex_with_atomic_write;
  CHECK(refusal([&] { return ibv_create_qp_ex(link.left.context, &unreliable); }) == EOPNOTSUPP);
  endpoint other;
  CHECK(newer::functions_of(*build_requests_of(other, IBV_QP_EX_WITH_SEND)).wr_atomic_write ==
        nullptr);
}

TEST_CASE("a device that supports atomic writes reports this") {
  open_context device;
  ibv_device_attr_ex attributes{};
  REQUIRE(ibv_query_device_ex(device.verbs, nullptr, &attributes) == 0);
  CHECK((attributes.device_cap_flags_ex & newer::device_atomic_write) != 0);
}
