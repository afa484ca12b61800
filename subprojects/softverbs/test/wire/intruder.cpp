// SPDX-License-Identifier: Apache-2.0
// Connections to the device that are opened without the library. Data that arrives over such a
// connection never causes a crash, and affects another connection only if it is a packet that
// claims to belong to that connection.
#include "support/intruder.hpp"

#include "support/descriptors.hpp"

#include <fcntl.h>
#include <sys/mman.h>

#include <cstring>
#include <random>

namespace softverbs {
namespace {

/// Returns shared memory of the kind that is sent with a handshake. It has the given size and
/// seals.
int memory_of(std::size_t size, int seals) {
  const int made = ::memfd_create("intruder", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  REQUIRE(made >= 0);
  REQUIRE(::ftruncate(made, static_cast<off_t>(size)) == 0);
  REQUIRE(::fcntl(made, F_ADD_SEALS, seals) == 0);
  return made;
}

}  // namespace

TEST_CASE("a handshake without sealed memory of the right size is answered without memory") {
  connection link;
  still_works(link);
  const std::ptrdiff_t before = descriptors_open();
  const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  const std::vector<int> useless{-1, null, memory_of(pair_memory::bytes, 0),
                                 memory_of(pair_memory::bytes, F_SEAL_GROW),
                                 memory_of(4096, F_SEAL_SHRINK | F_SEAL_GROW)};
  for (const int descriptor : useless) {
    intruder from(link.right.pair->qp_num);
    from.greet(descriptor);
    const auto answer = from.hear();
    REQUIRE(answer);
    CHECK(answer->notice.what == notice::kind::answer);
    CHECK(answer->notice.accepted == 0);
    CHECK(answer->descriptors.empty());
    still_works(link);
    if (descriptor >= 0) ::close(descriptor);
  }
  CHECK(link.right.quiet());
  // The device detects on its own that the connections are closed.
  CHECK(eventually([&] { return descriptors_open() <= before; }));
}

TEST_CASE("unexpected file descriptors in messages are closed") {
  connection link;
  still_works(link);
  const std::ptrdiff_t before = descriptors_open();
  {
    const int good = memory_of(pair_memory::bytes, F_SEAL_SHRINK | F_SEAL_GROW);
    intruder from(link.right.pair->qp_num);
    notice greeting{};
    greeting.what = notice::kind::greeting;
    from.send_with(&greeting, sizeof(greeting), std::vector<int>(60, good));
    const auto answer = from.hear();
    REQUIRE(answer);
    for (const int each : answer->descriptors) ::close(each);
    // A second handshake closes the connection, and its descriptors are discarded.
    from.send_with(&greeting, sizeof(greeting), std::vector<int>(60, good));
    CHECK_FALSE(from.hear());
    ::close(good);
    still_works(link);
  }
  CHECK(link.right.quiet());
  // The device detects on its own that the connections are closed.
  CHECK(eventually([&] { return descriptors_open() <= before; }));
}

TEST_CASE("a connection is closed after an invalid handshake") {
  connection link;
  for (const int kind : {0, 1, 0x7f, 0x81, 0x82, 0xff}) {
    intruder from(link.right.pair->qp_num);
    notice nonsense{};
    nonsense.what = static_cast<notice::kind>(kind);
    from.send(&nonsense, sizeof(nonsense));
    CHECK_FALSE(from.hear());
    still_works(link);
  }
}

TEST_CASE("messages that aren't packets don't affect other connections") {
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

TEST_CASE("packets with wrong lengths don't affect other connections") {
  connection link;
  for (const std::uint32_t claimed : {1U, 16U, 0xffffffffU}) {
    intruder from(link.right.pair->qp_num);
    packet_header header = forged(link);
    header.payload = claimed;
    from.send(&header, sizeof(header));
    still_works(link);
  }
}

TEST_CASE("packets with wrong descriptions of data to pull don't affect other connections") {
  connection link;
  for (const std::uint32_t claimed : {0U, pulled_bytes + 1, 0xffffffffU}) {
    intruder from(link.right.pair->qp_num);
    struct {
      packet_header header;
      std::uint64_t address;
    } message{forged(link), 0};
    message.header.source_key = link.left.region->lkey;
    message.header.payload = claimed;
    from.send(&message, sizeof(message));
    CHECK(eventually([&] { return from.has_ended(); }));
    still_works(link);
  }
}

TEST_CASE("data in this process is not pulled") {
  connection link;
  set_word(link.left, half, large_word);
  struct {
    packet_header header;
    std::uint64_t address;
  } message{forged(link), link.left.here().memory + half};
  message.header.psn = link.left.psn;
  message.header.key = link.right.region->rkey;
  message.header.address = link.right.here().memory + half + 4096;
  message.header.message = message.header.payload = 64;
  message.header.source_key = link.left.region->lkey;
  intruder from(link.right.pair->qp_num);
  from.send(&message, sizeof(message));
  still_works(link);
  CHECK(word(link.right, half + 4096) == 0);
}

TEST_CASE("random packets crash nothing") {
  std::mt19937 random(42);
  const ibv_qp_type types[] = {IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD};
  for (int round = 0; round < 30; ++round) {
    options wanted{.type = types[round % 3]};
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
      header.kind = static_cast<packet_kind>(random() % 14);
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

TEST_CASE("a write whose last packet is too short is refused") {
  const bool is_long = GENERATE(false, true);
  connection link;
  struct {
    packet_header header;
    unsigned char payload[packet_bytes];
  } message{};
  intruder from(link.right.pair->qp_num);
  const std::uint32_t last_offset = is_long ? packet_bytes : 0;
  const auto send = [&](std::uint8_t flags, std::uint32_t number, std::uint32_t offset,
                        std::uint32_t payload) {
    message.header = forged(link);
    message.header.flags = flags;
    message.header.psn = (link.left.psn + number) & psn_mask;
    message.header.key = link.right.region->rkey;
    message.header.address = link.right.here().memory;
    message.header.message = last_offset + 64;
    message.header.offset = offset;
    message.header.payload = payload;
    from.send(&message, sizeof(packet_header) + payload);
  };
  if (is_long) send(packet_flag::first, 0, 0, packet_bytes);
  const std::uint8_t first = is_long ? 0 : packet_flag::first;
  send(first | packet_flag::last, is_long ? 1 : 0, last_offset, 63);
  CHECK(eventually([&] { return link.right.state() == IBV_QPS_ERR; }));
  REQUIRE(has_event(link.right.context));
  CHECK(link.right.event().event_type == IBV_EVENT_QP_REQ_ERR);
}

TEST_CASE("UC: a message with a gap is dropped as a whole") {
  const options unreliable{.type = IBV_QPT_UC};
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
  // If a message is incomplete, it is dropped when the next one begins.
  send(packet_flag::first, 23, 0);
  send(packet_flag::first | packet_flag::last, 40, 0);
  CHECK(link.right.wait().byte_len == packet_bytes);
}

}  // namespace softverbs
