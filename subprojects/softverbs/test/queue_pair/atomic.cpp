// SPDX-License-Identifier: Apache-2.0
#include "catch.hpp"
#include "support/fabric.hpp"
#include "support/intruder.hpp"
#include "support/peer.hpp"
#include "support/registered_page.hpp"
#include "wire/packet.hpp"

#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>

namespace {

struct atomic_connection : connection {
  atomic_connection() : connection(with_atomics()) {}
};

}  // namespace

TEST_CASE("fetch and add returns the previous value") {
  atomic_connection link;
  const address peer = link.right.here();
  set_word(link.right, 64, large_word);
  REQUIRE(link.left.fetch_and_add(1, link.left.piece(0, 8), peer, 0x123456789, 64) == 0);
  const ibv_wc completed = link.left.wait();
  CHECK(completed.status == IBV_WC_SUCCESS);
  CHECK(completed.opcode == IBV_WC_FETCH_ADD);
  CHECK(completed.wr_id == 1);
  CHECK(completed.byte_len == 8);
  CHECK(word(link.left, 0) == large_word);
  CHECK(word(link.right, 64) == large_word + 0x123456789);
  // The sum wraps around.
  REQUIRE(link.left.fetch_and_add(2, link.left.piece(0, 8), peer, ~std::uint64_t{0}, 64) == 0);
  CHECK(link.left.wait().status == IBV_WC_SUCCESS);
  CHECK(word(link.right, 64) == large_word + 0x123456788);
  CHECK(link.right.quiet());
}

TEST_CASE("compare and swap only swaps equal values") {
  atomic_connection link;
  const address peer = link.right.here();
  set_word(link.right, 8, large_word);
  REQUIRE(link.left.compare_and_swap(1, link.left.piece(0, 8), peer, large_word + 1, 5, 8) == 0);
  CHECK(link.left.wait().opcode == IBV_WC_COMP_SWAP);
  CHECK(word(link.left, 0) == large_word);
  CHECK(word(link.right, 8) == large_word);
  REQUIRE(link.left.compare_and_swap(2, link.left.piece(0, 8), peer, large_word, 5, 8) == 0);
  CHECK(link.left.wait().status == IBV_WC_SUCCESS);
  CHECK(word(link.left, 0) == large_word);
  CHECK(word(link.right, 8) == 5);
}

TEST_CASE("the previous value is scattered over the elements of the request") {
  atomic_connection link;
  set_word(link.right, 0, large_word);
  ibv_send_wr request{};
  request.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
  request.send_flags = IBV_SEND_SIGNALED;
  request.wr.atomic = {link.right.here().memory, 1, 0, link.right.region->rkey};
  REQUIRE(link.left.post(request, {link.left.piece(0, 3), link.left.piece(100, 5)}) == 0);
  CHECK(link.left.wait().status == IBV_WC_SUCCESS);
  CHECK(std::memcmp(link.left.memory.data(), &large_word, 3) == 0);
  CHECK(std::memcmp(link.left.memory.data() + 100, reinterpret_cast<const char*>(&large_word) + 3,
                    5) == 0);
}

TEST_CASE("an invalid atomic fails in the same way as on hardware") {
  const auto attempt = [](const options& right, std::uint64_t offset, std::uint32_t key,
                          ibv_wc_status status, ibv_event_type event) {
    connection link(with_atomics(), right);
    address peer = link.right.here();
    peer.rkey ^= key;
    set_word(link.right, 64, large_word);
    REQUIRE(link.left.fetch_and_add(1, link.left.piece(0, 8), peer, 1, offset) == 0);
    CHECK(link.left.wait().status == status);
    CHECK(link.left.state() == IBV_QPS_ERR);
    CHECK(link.right.event().event_type == event);
    CHECK(word(link.right, 64) == large_word);
  };
  options no_right = with_atomics();
  no_right.queue_pair_access &= ~unsigned{IBV_ACCESS_REMOTE_ATOMIC};
  attempt(no_right, 64, 0, IBV_WC_REM_INV_REQ_ERR, IBV_EVENT_QP_REQ_ERR);
  no_right = with_atomics();
  no_right.region_access &= ~IBV_ACCESS_REMOTE_ATOMIC;
  attempt(no_right, 64, 0, IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR);
  attempt(with_atomics(), 64, 0x100, IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR);
  attempt(with_atomics(), 1 << 20, 0, IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR);
  for (const std::uint64_t offset : {60, 65, 68})
    attempt(with_atomics(), offset, 0, IBV_WC_REM_INV_REQ_ERR, IBV_EVENT_QP_REQ_ERR);
}

TEST_CASE("an atomic needs eight writable bytes of local memory and a read depth") {
  const auto attempt = [](const options& left, std::uint32_t length, ibv_wc_status status) {
    connection link(left, with_atomics());
    REQUIRE(link.left.fetch_and_add(1, link.left.piece(0, length), link.right.here(), 1) == 0);
    CHECK(link.left.wait().status == status);
    CHECK(word(link.right, 0) == 0);
  };
  attempt(with_atomics(), 7, IBV_WC_LOC_LEN_ERR);
  attempt(with_atomics(), 16, IBV_WC_LOC_LEN_ERR);
  options wanted = with_atomics();
  wanted.region_access = 0;
  attempt(wanted, 8, IBV_WC_LOC_PROT_ERR);
  wanted = with_atomics();
  wanted.reads = 0;
  attempt(wanted, 8, IBV_WC_LOC_QP_OP_ERR);
  atomic_connection link;
  CHECK(link.left.fetch_and_add(1, link.left.piece(0, 8), link.right.here(), 1, 0,
                                IBV_SEND_INLINE) == EINVAL);
}

TEST_CASE("an atomic on unmapped or read-only memory fails") {
  for (const bool unmaps : {true, false}) {
    atomic_connection link;
    const registered_page page(link.right, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_ATOMIC);
    if (unmaps)
      page.take_away();
    else
      page.forbid_writes();
    REQUIRE(link.left.fetch_and_add(1, link.left.piece(0, 8), page.there(), 1) == 0);
    CHECK(link.left.wait().status == IBV_WC_REM_ACCESS_ERR);
  }
}

TEST_CASE("atomics count as reads for the read depth and for fences") {
  options one = with_atomics();
  one.reads = 1;
  connection link(one);
  const address peer = link.right.here();
  for (std::uint32_t id = 0; id < 32; id += 2) {
    REQUIRE(link.left.fetch_and_add(id, link.left.piece(id * 8, 8), peer, 1) == 0);
    REQUIRE(link.left.read(id + 1, {link.left.piece(id * 8 + 8, 8)}, peer) == 0);
  }
  REQUIRE(link.left.write(32, {link.left.piece(0, 8)}, peer, 8,
                          IBV_SEND_SIGNALED | IBV_SEND_FENCE) == 0);
  for (std::uint32_t id = 0; id < 33; ++id) CHECK(link.left.wait().wr_id == id);
  for (std::uint32_t id = 0; id < 32; id += 2) {
    CHECK(word(link.left, id * 8) == id / 2);
    CHECK(word(link.left, id * 8 + 8) == id / 2 + 1);
  }
}

TEST_CASE("a retransmitted atomic is not executed again") {
  atomic_connection link;
  struct {
    softverbs::packet_header header;
    softverbs::atomic_operands operands;
  } message{};
  message.header = forged(link);
  message.header.kind = softverbs::packet_kind::fetch_add;
  message.header.key = link.right.region->rkey;
  message.header.address = link.right.here().memory;
  message.header.payload = sizeof(message.operands);
  message.operands.compare_or_add = 1;
  intruder from(link.right.pair->qp_num);
  for (std::uint32_t number = 0; number < 4; ++number)
    for (int round = 0; round < (number < 3 ? 3 : 1); ++round) {
      message.header.psn = (link.left.psn + number) & softverbs::psn_mask;
      from.send(&message, sizeof(message));
    }
  // Each of the four sequence numbers increases the word once, and packets that are repeated have
  // no effect.
  CHECK(eventually([&] { return changing_word(link.right, 0) >= 4; }));
  CHECK(link.right.quiet());
  CHECK(word(link.right, 0) == 4);
}

TEST_CASE("atomics of processes and of the processor are atomic with respect to each other") {
  endpoint one(with_atomics());
  endpoint two(with_atomics());
  // Both endpoints use the same memory, through two regions.
  ibv_mr* shared = ibv_reg_mr(two.domain, one.memory.data(), 4096, two.wanted.region_access);
  REQUIRE(shared != nullptr);
  std::swap(shared, two.region);
  two.memory.swap(one.memory);
  peer first("adder");
  peer second("adder");
  second.meet(two);
  two.memory.swap(one.memory);
  std::swap(shared, two.region);
  first.meet(one);
  std::atomic_ref<std::uint64_t> value(*reinterpret_cast<std::uint64_t*>(one.memory.data()));
  for (int count = 0; count < 100000; ++count) value.fetch_add(1);
  CHECK(first.wait() == 0);
  CHECK(second.wait() == 0);
  CHECK(value.load() == 102000);
  CHECK(ibv_dereg_mr(shared) == 0);
}

TEST_CASE("a device that supports atomics reports this") {
  open_context device;
  ibv_device_attr attributes{};
  REQUIRE(ibv_query_device(device.verbs, &attributes) == 0);
  CHECK(attributes.atomic_cap == IBV_ATOMIC_HCA);
}
