// SPDX-License-Identifier: Apache-2.0
// The ring of packets in shared memory, with two correct ends, and with an end that writes false
// data.
#include "wire/ring.hpp"

#include "support/intruder.hpp"
#include "support/peer.hpp"

#include <fcntl.h>
#include <sys/mman.h>

#include <array>
#include <cstring>
#include <memory>
#include <random>
#include <span>
#include <thread>
#include <vector>

namespace softverbs {
namespace {

struct alignas(4096) ring_memory {
  std::array<std::byte, ring_end::bytes> bytes{};
};

ring_state& state_of(std::span<std::byte> memory) {
  return *reinterpret_cast<ring_state*>(memory.data());
}

/// An intruder that the device has accepted as a peer, and with which it shares memory.
class sharing_intruder : public intruder {
 public:
  explicit sharing_intruder(std::uint32_t qpn) : intruder(qpn) {
    const int made = ::memfd_create("intruder", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    REQUIRE(made >= 0);
    REQUIRE(::ftruncate(made, pair_memory::bytes) == 0);
    REQUIRE(::fcntl(made, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0);
    void* start = ::mmap(nullptr, pair_memory::bytes, PROT_READ | PROT_WRITE, MAP_SHARED, made, 0);
    REQUIRE(start != MAP_FAILED);
    bytes = {static_cast<std::byte*>(start), pair_memory::bytes};
    greet(made);
    ::close(made);
    const auto answer = hear();
    REQUIRE(answer);
    for (const int each : answer->descriptors) ::close(each);
    REQUIRE(answer->notice.accepted == 1);
    tell(notice::kind::changed_to_ring);
  }
  ~sharing_intruder() { ::munmap(bytes.data(), bytes.size()); }

  void tell(notice::kind what) {
    notice message{};
    message.what = what;
    send(&message, sizeof(message));
  }

  std::span<std::byte> bytes;
};

}  // namespace

TEST_CASE("ring: messages of any length arrive in order") {
  const auto memory = std::make_unique<ring_memory>();
  constexpr int count = 20000;
  const auto length_of = [](std::uint32_t number) {
    return 1 + number * 2654435761U % (number % 7 == 0 ? 32000U : 300U);
  };
  std::thread writer([&] {
    ring_writer out(memory->bytes);
    for (std::uint32_t number = 0; number < count; ++number) {
      std::byte* to = nullptr;
      while ((to = out.prepare(length_of(number))) == nullptr) std::this_thread::yield();
      std::memset(to, static_cast<int>(number), length_of(number));
      out.publish();
    }
    CHECK_FALSE(out.broken());
  });
  ring_reader in(memory->bytes);
  std::uint32_t wrong = 0;
  for (std::uint32_t number = 0; number < count; ++number) {
    bool open = true;
    std::span<const std::byte> message;
    while (open && (message = in.next(open)).empty()) std::this_thread::yield();
    if (!open) break;
    // All bytes of a message are equal.
    const bool same = message.size() == length_of(number) &&
                      message.front() == static_cast<std::byte>(number) &&
                      std::memcmp(message.data(), message.data() + 1, message.size() - 1) == 0;
    if (!same) ++wrong;
    in.release();
  }
  writer.join();
  CHECK(wrong == 0);
  CHECK(in.is_empty());
}

TEST_CASE("ring: an end that sleeps or waits for room gets one notice") {
  const auto memory = std::make_unique<ring_memory>();
  ring_writer out(memory->bytes);
  ring_reader in(memory->bytes);
  const auto put = [&] { return out.prepare(30000) != nullptr && out.publish(); };
  CHECK(in.sleep());
  CHECK(put());
  CHECK_FALSE(put());
  CHECK_FALSE(in.sleep());
  while (out.prepare(30000) != nullptr) out.publish();
  CHECK_FALSE(out.has_room());
  bool open = true;
  int told = 0;
  int messages = 0;
  while (!in.next(open).empty()) {
    ++messages;
    told += in.release() ? 1 : 0;
  }
  CHECK(open);
  CHECK(messages >= 6);
  CHECK(told == 1);
  CHECK(out.has_room());
  CHECK_FALSE(out.is_unread());
}

TEST_CASE("ring: messages before the end of a connection are delivered and later ones are not") {
  const auto memory = std::make_unique<ring_memory>();
  ring_writer out(memory->bytes);
  ring_reader in(memory->bytes);
  REQUIRE(out.prepare(10) != nullptr);
  out.publish();
  in.end();
  REQUIRE(out.prepare(10) != nullptr);
  out.publish();
  bool open = true;
  CHECK(in.next(open).size() == 10);
  CHECK(in.next(open).empty());
  CHECK(in.is_empty());
}

TEST_CASE("ring: the reader stays within the ring whatever the memory contains") {
  std::mt19937 random(7);
  const auto memory = std::make_unique<ring_memory>();
  const std::byte* const end = memory->bytes.data() + memory->bytes.size();
  std::vector<std::uint32_t> lengths{0, 1, 8, 56, 57, 64, 120, 32768, 262136, 262144, 0xffffffff};
  for (int round = 0; round < 20000; ++round) {
    ring_reader in(memory->bytes);
    for (int step = 0; step < 8; ++step) {
      for (std::size_t at = ring_end::state_bytes; at < ring_end::bytes;
           at += 64 * (1 + random() % 512)) {
        const std::uint32_t length = random() % 8 == 0 ? static_cast<std::uint32_t>(random())
                                                       : lengths[random() % lengths.size()];
        std::memcpy(memory->bytes.data() + at, &length, sizeof(length));
      }
      state_of(memory->bytes).filled =
          random() % 4 == 0 ? (std::uint64_t{random()} << 32 | random()) : random() % 8192 * 64;
      bool open = true;
      const auto message = in.next(open);
      if (!open) break;
      if (message.empty()) continue;
      REQUIRE(message.data() >= memory->bytes.data() + ring_end::state_bytes);
      REQUIRE(message.data() + message.size() <= end);
    }
  }
}

TEST_CASE("ring: the writer stays within the ring whatever the reader writes") {
  std::mt19937 random(8);
  const auto memory = std::make_unique<ring_memory>();
  const std::byte* const end = memory->bytes.data() + memory->bytes.size();
  for (int round = 0; round < 2000; ++round) {
    ring_writer out(memory->bytes);
    for (int step = 0; step < 100 && !out.broken(); ++step) {
      state_of(memory->bytes).emptied = random() % 2 == 0 ? random() : random() % 8192 * 64;
      const std::size_t length = 1 + random() % 32768;
      std::byte* to = out.prepare(length);
      if (out.broken()) REQUIRE(to == nullptr);
      if (to == nullptr) continue;
      REQUIRE(to >= memory->bytes.data() + ring_end::state_bytes);
      REQUIRE(to + length <= end);
      out.publish();
    }
  }
}

TEST_CASE("packets arrive through a ring that an intruder has created") {
  if (!shares_memory()) return;
  connection link;
  still_works(link);
  sharing_intruder from(link.right.pair->qp_num);
  ring_writer out(from.bytes.subspan(pair_memory::ring, ring_end::bytes));
  struct {
    packet_header header;
    std::array<unsigned char, 64> payload;
  } message{};
  message.header = forged(link);
  message.header.psn = (link.left.psn + 1) & psn_mask;
  message.header.payload = message.header.message = sizeof(message.payload);
  message.header.key = link.right.region->rkey;
  message.header.address = link.right.here().memory + 5000;
  message.payload.fill(0x5a);
  std::byte* to = out.prepare(sizeof(message));
  REQUIRE(to != nullptr);
  std::memcpy(to, &message, sizeof(message));
  if (out.publish()) from.tell(notice::kind::something_to_read);
  const auto* written = static_cast<volatile unsigned char*>(&link.right.memory[5000]);
  for (int tries = 0; *written != 0x5a && tries < 10000; ++tries) {
    ibv_wc completion{};
    ibv_poll_cq(link.right.queue, 1, &completion);
    std::this_thread::yield();
  }
  CHECK(*written == 0x5a);
}

TEST_CASE("random data in shared memory breaks only its own connection") {
  if (!shares_memory()) return;
  std::mt19937 random(43);
  connection link;
  still_works(link);
  for (int round = 0; round < 300; ++round) {
    sharing_intruder from(link.right.pair->qp_num);
    const auto ring = from.bytes.subspan(pair_memory::ring, ring_end::bytes);
    // Some of the data looks like packets.
    std::uint64_t position = 0;
    for (int count = 0; count < 20; ++count) {
      packet_header header = forged(link);
      header.kind = static_cast<packet_kind>(random() % 14);
      header.flags = static_cast<std::uint8_t>(random() % 128);
      header.psn = (link.left.psn + random() % 5 - 1) & psn_mask;
      header.payload = random() % 4 == 0 ? static_cast<std::uint32_t>(random()) : random() % 100;
      header.key =
          random() % 2 == 0 ? link.right.region->rkey : static_cast<std::uint32_t>(random());
      header.address = random() % 2 == 0 ? link.right.here().memory : random();
      // The packet is for neither end of this connection, because a packet for one of them may
      // break that end.
      header.target_qpn = random() % 2 == 0 ? header.target_qpn + 1 : 0xffffff;
      const std::uint32_t length =
          random() % 10 == 0 ? static_cast<std::uint32_t>(random())
                             : static_cast<std::uint32_t>(sizeof(header) + header.payload);
      std::byte* to = ring.data() + ring_end::state_bytes + position;
      std::memcpy(to, &length, sizeof(length));
      std::memcpy(to + 8, &header, sizeof(header));
      position += 64 * (1 + random() % 4);
    }
    ring_state& state = state_of(ring);
    state.filled = random() % 4 == 0 ? random() : position;
    from.tell(random() % 8 == 0 ? notice::kind::answer : notice::kind::something_to_read);
    for (int writes = 0; writes < 50; ++writes) {
      state.filled = random() % 3 == 0 ? random() : state.filled + 64;
      state.emptied = random();
      state.reader_sleeps = static_cast<std::uint32_t>(random() % 2);
      state.writer_waits = static_cast<std::uint32_t>(random() % 2);
      for (int some = 0; some < 8; ++some)
        ring[random() % ring.size()] = static_cast<std::byte>(random());
      ibv_wc completion{};
      CHECK(ibv_poll_cq(link.right.queue, 1, &completion) == 0);
    }
    if (round % 20 == 0) still_works(link);
  }
  still_works(link);
}

}  // namespace softverbs
