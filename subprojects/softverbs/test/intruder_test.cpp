// SPDX-License-Identifier: Apache-2.0
// Whoever may open a socket may send anything to a process that uses the device.
#include "intruder.hpp"

#include <cstring>
#include <random>

using namespace softverbs;

namespace {

void still_works(connection& link) {
  REQUIRE(link.right.post_receive(1, {link.right.piece(0, 1000)}) == 0);
  REQUIRE(link.left.send(2, {link.left.piece(0, 1000)}) == 0);
  CHECK(link.right.wait().status == IBV_WC_SUCCESS);
  CHECK(link.left.wait().status == IBV_WC_SUCCESS);
}

}  // namespace

TEST_CASE("messages that aren't packets are dropped") {
  connection link;
  still_works(link);
  std::vector<unsigned char> noise(100000, 0xff);
  for (const std::size_t length : {1U, 47U, 48U, 49U, 100U, 32816U, 32817U, 100000U}) {
    intruder from(link.right.pair->qp_num);
    from.send(noise.data(), length);
    from.send(noise.data(), length);
    still_works(link);
  }
}

TEST_CASE("packets with wrong lengths are dropped") {
  connection link;
  for (const std::uint32_t claimed : {1U, 16U, 0xffffffffU}) {
    intruder from(link.right.pair->qp_num);
    packet_header header = forged(link);
    header.payload = claimed;
    from.send(&header, sizeof(header));
    still_works(link);
  }
}

TEST_CASE("random packets crash nothing") {
  std::mt19937 random(42);
  const ibv_qp_type types[] = {IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD};
  for (int round = 0; round < 30; ++round) {
    options wanted;
    wanted.type = types[round % 3];
    connection link(wanted);
    REQUIRE(link.right.post_receive(1, {link.right.piece(0, 1000)}) == 0);
    for (int count = 0; count < 200; ++count) {
      struct {
        packet_header header;
        unsigned char payload[64];
      } message{};
      static_assert(sizeof(message) == sizeof(packet_header) + 64);
      message.header = forged(link);
      packet_header& header = message.header;
      header.kind = static_cast<packet_kind>(random() % 12);
      header.flags = static_cast<std::uint8_t>(random() % 64);
      header.reason = static_cast<refusal>(random() % 7);
      header.rnr_timer = static_cast<std::uint8_t>(random() % 40);
      header.psn = (link.left.psn + random() % 5 - 1) & psn_mask;
      header.offset = random() % 3 == 0 ? static_cast<std::uint32_t>(random()) : 0;
      header.message = random() % 3 == 0 ? static_cast<std::uint32_t>(random()) : 64;
      const std::uint32_t key = wanted.type == IBV_QPT_UD ? wanted.qkey : link.right.region->rkey;
      header.key = random() % 2 == 0 ? key : static_cast<std::uint32_t>(random());
      if (random() % 8 == 0) header.target_qpn = 0xffffff;
      header.address = random() % 2 == 0 ? link.right.here().memory : random();
      header.payload = random() % 2 == 0 ? 64 : 0;
      if (random() % 2 == 0) std::swap(header.target_qpn, header.source_qpn);
      intruder from(link.right.pair->qp_num);
      from.send(&message, sizeof(header) + header.payload);
      ibv_wc completion{};
      ibv_poll_cq(link.left.queue, 1, &completion);
      ibv_poll_cq(link.right.queue, 1, &completion);
    }
  }
  connection link;
  still_works(link);
}

TEST_CASE("UC: a message with a gap is dropped as a whole") {
  options unreliable;
  unreliable.type = IBV_QPT_UC;
  connection link(unreliable);
  struct {
    packet_header header;
    unsigned char payload[packet_bytes];
  } message{};
  intruder from(link.right.pair->qp_num);
  const auto send = [&](std::uint8_t flags, std::uint32_t number, std::uint32_t offset) {
    message.header = forged(link);
    message.header.kind = packet_kind::send;
    message.header.flags = flags | packet_flag::unreliable;
    message.header.psn = (link.left.psn + number) & psn_mask;
    message.header.offset = offset;
    message.header.payload = packet_bytes;
    from.send(&message, sizeof(message));
  };
  const std::uint32_t whole = 3 * packet_bytes;
  REQUIRE(link.right.post_receive(1, {link.right.piece(0, whole)}) == 0);
  REQUIRE(link.right.post_receive(2, {link.right.piece(0, whole)}) == 0);
  send(packet_flag::first, 0, 0);
  send(packet_flag::last, 2, 2 * packet_bytes);
  CHECK(link.right.quiet());
  send(packet_flag::first, 10, 0);
  send(0, 12, 2 * packet_bytes);
  send(0, 11, packet_bytes);
  send(packet_flag::last, 12, 2 * packet_bytes);
  CHECK(link.right.quiet());
  send(packet_flag::first, 20, 0);
  send(0, 21, packet_bytes);
  send(packet_flag::last, 22, 2 * packet_bytes);
  const ibv_wc received = link.right.wait();
  CHECK(received.wr_id == 1);
  CHECK(received.byte_len == whole);
  // A message that never ended is forgotten when the next one begins.
  send(packet_flag::first, 23, 0);
  send(packet_flag::first | packet_flag::last, 40, 0);
  CHECK(link.right.wait().byte_len == packet_bytes);
}
