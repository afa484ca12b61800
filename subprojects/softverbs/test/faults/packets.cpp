// SPDX-License-Identifier: Apache-2.0
// Lost, duplicated and reordered packets.
#include "support/faults.hpp"

#include <algorithm>
#include <string>

TEST_CASE("a lost packet is retransmitted if the transport is reliable") {
  for (const char* which : {"1", "2", "3", "4"}) {
    connection link;
    const faults set("packet:" + std::string(which) + "=lost");
    link.left.memory[99999] = 7;
    REQUIRE(link.left.write(1, {link.left.piece(0, 100000)}, link.right.here()) == 0);
    completes(link.left, 1, IBV_WC_SUCCESS);
    CHECK(link.right.memory[99999] == 7);
    CHECK(softverbs_faults_struck() == 1);
  }
  {
    connection link(of_type(IBV_QPT_UC));
    const faults set("packet=lost");
    for (std::uint64_t id = 1; id <= 2; ++id)
      REQUIRE(link.right.post_receive(id, {link.right.piece(0, 8)}) == 0);
    for (std::uint64_t id = 3; id <= 4; ++id) {
      link.left.memory[0] = static_cast<unsigned char>(id);
      REQUIRE(link.left.send(id, {link.left.piece(0, 8)}) == 0);
      completes(link.left, id, IBV_WC_SUCCESS);
    }
    // The first receive gets the second message, so the second receive stays posted.
    completes(link.right, 1, IBV_WC_SUCCESS);
    CHECK(link.right.memory[0] == 4);
    CHECK(link.right.quiet());
  }
  endpoint end(of_type(IBV_QPT_UD));
  end.connect(end.here());
  const address_handle handle(end, end.here());
  const faults set("packet=lost");
  for (std::uint64_t id = 1; id <= 2; ++id)
    REQUIRE(end.post_receive(id, {end.piece(100, 100)}) == 0);
  for (std::uint64_t id = 3; id <= 4; ++id) {
    // The sends are unsignaled, so nothing reports when a byte may be reused. Therefore, each
    // message is sent from a different byte.
    end.memory[id] = static_cast<unsigned char>(id);
    REQUIRE(end.send_to(handle, end.pair->qp_num, id, {end.piece(id, 1)}, 0) == 0);
  }
  completes(end, 1, IBV_WC_SUCCESS);
  CHECK(end.memory[140] == 4);
  CHECK(end.quiet());
}

TEST_CASE(
    "if a peer's packets are lost, requests to it exhaust their retries unless the loss ends") {
  {
    connection link(impatient());
    const faults set("peer-lost" + at(link.right));
    REQUIRE(link.left.write(1, {link.left.piece(0, 8)}, link.right.here()) == 0);
    completes(link.left, 1, IBV_WC_RETRY_EXC_ERR);
  }
  connection link(patient());
  const faults set("peer-lost" + at(link.left));
  REQUIRE(link.right.write(1, {link.right.piece(0, 8)}, link.left.here()) == 0);
  CHECK(link.right.quiet());
  faults::add("peer-back" + at(link.left));
  completes(link.right, 1, IBV_WC_SUCCESS);
  faults::add("peer-lost");
  REQUIRE(link.right.write(2, {link.right.piece(0, 8)}, link.left.here()) == 0);
  CHECK(link.right.quiet());
  faults::add("peer_back");
  completes(link.right, 2, IBV_WC_SUCCESS);
}

TEST_CASE("a duplicated packet arrives twice") {
  {
    connection link(of_type(IBV_QPT_UC));
    const faults set("packet=doubled");
    for (std::uint64_t id = 1; id <= 2; ++id)
      REQUIRE(link.right.post_receive(id, {link.right.piece(0, 8)}) == 0);
    REQUIRE(link.left.send(3, {link.left.piece(0, 8)}) == 0);
    completes(link.left, 3, IBV_WC_SUCCESS);
    // UC takes each of the two packets for the start of a message.
    completes(link.right, 1, IBV_WC_SUCCESS);
    completes(link.right, 2, IBV_WC_SUCCESS);
    CHECK(link.right.quiet());
  }
  {
    endpoint end(of_type(IBV_QPT_UD));
    end.connect(end.here());
    const address_handle handle(end, end.here());
    const faults set("packet=doubled");
    for (std::uint64_t id = 1; id <= 2; ++id)
      REQUIRE(end.post_receive(id, {end.piece(id * 100, 100)}) == 0);
    end.memory[0] = 77;
    REQUIRE(end.send_to(handle, end.pair->qp_num, 3, {end.piece(0, 8)}, 0) == 0);
    completes(end, 1, IBV_WC_SUCCESS);
    completes(end, 2, IBV_WC_SUCCESS);
    CHECK(end.memory[140] == 77);
    CHECK(end.memory[240] == 77);
  }
  connection link;
  const faults set("packet:*=doubled");
  for (std::uint64_t id = 1; id <= 2; ++id)
    REQUIRE(link.right.post_receive(id, {link.right.piece(0, 8)}) == 0);
  REQUIRE(link.left.send(3, {link.left.piece(0, 8)}) == 0);
  completes(link.left, 3, IBV_WC_SUCCESS);
  completes(link.right, 1, IBV_WC_SUCCESS);
  CHECK(link.right.quiet());
}

TEST_CASE("a reordered packet arrives after the next one") {
  {
    endpoint end(of_type(IBV_QPT_UD));
    end.connect(end.here());
    const address_handle handle(end, end.here());
    const faults set("packet=swapped");
    for (std::uint64_t id = 1; id <= 2; ++id)
      REQUIRE(end.post_receive(id, {end.piece(id * 100, 100)}) == 0);
    end.memory[0] = 1;
    end.memory[1] = 2;
    REQUIRE(end.send_to(handle, end.pair->qp_num, 3, {end.piece(0, 1)}, 0) == 0);
    CHECK(end.quiet());
    REQUIRE(end.send_to(handle, end.pair->qp_num, 4, {end.piece(1, 1)}, 0) == 0);
    completes(end, 1, IBV_WC_SUCCESS);
    completes(end, 2, IBV_WC_SUCCESS);
    CHECK(end.memory[140] == 2);
    CHECK(end.memory[240] == 1);
  }
  {
    connection link(of_type(IBV_QPT_UC));
    const faults set("packet=swapped");
    for (std::uint64_t id = 1; id <= 2; ++id)
      REQUIRE(link.right.post_receive(id, {link.right.piece(id * 100, 8)}) == 0);
    for (std::uint64_t id = 3; id <= 4; ++id) {
      link.left.memory[0] = static_cast<unsigned char>(id);
      REQUIRE(link.left.send(id, {link.left.piece(0, 8)}) == 0);
      completes(link.left, id, IBV_WC_SUCCESS);
    }
    completes(link.right, 1, IBV_WC_SUCCESS);
    completes(link.right, 2, IBV_WC_SUCCESS);
    CHECK(link.right.memory[100] == 4);
    CHECK(link.right.memory[200] == 3);
  }
  // A reliable connection restores the order of packets.
  connection link;
  const faults set("packet" + at(link.right) + ":30%=swapped");
  for (std::size_t byte = 0; byte < 300'000; ++byte)
    link.left.memory[byte] = static_cast<unsigned char>(byte * 7);
  REQUIRE(link.left.write(1, {link.left.piece(0, 300'000)}, link.right.here()) == 0);
  completes(link.left, 1, IBV_WC_SUCCESS);
  CHECK(std::equal(link.left.memory.begin(), link.left.memory.begin() + 300'000,
                   link.right.memory.begin()));
}
