// SPDX-License-Identifier: Apache-2.0
// Processes of the same user that send false data, most of them after a correct handshake. They may
// break or delay their own connections, but nothing else.
#include "support/hostile.hpp"

#include "memory/region_table.hpp"
#include "support/descriptors.hpp"
#include "support/intruder.hpp"
#include "support/peer.hpp"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <thread>
#include <utility>
#include <vector>

using hostile::order;

namespace {

/// Simulates an overloaded machine, on which a thread that yields gets a processor back only after
/// all other threads. Affects the thread that creates the object, and the threads that it starts.
class busy_processor {
 public:
  busy_processor() {
    REQUIRE(::sched_getaffinity(0, sizeof(before_), &before_) == 0);
    cpu_set_t one;
    CPU_ZERO(&one);
    int first = 0;
    while (CPU_ISSET(first, &before_) == 0) ++first;
    CPU_SET(first, &one);
    REQUIRE(::sched_setaffinity(0, sizeof(one), &one) == 0);
    for (int count = 0; count < 8; ++count)
      others_.emplace_back([this] {
        while (!stop_) {
        }
      });
  }
  busy_processor(const busy_processor&) = delete;
  busy_processor& operator=(const busy_processor&) = delete;
  ~busy_processor() {
    stop_ = true;
    for (std::thread& each : others_) each.join();
    ::sched_setaffinity(0, sizeof(before_), &before_);
  }

 private:
  cpu_set_t before_{};
  std::atomic<bool> stop_{false};
  std::vector<std::thread> others_;
};

/// A connection to a process that executes commands from the test, such as writing false data.
struct connection_to_liar {
  explicit connection_to_liar(const options& wanted = {}) : end(wanted) {
    there = other.meet(end);
    REQUIRE(other.hear() == 'r');
    // After some writes, the requests no longer need packets.
    for (int round = 0; round < 10; ++round) {
      REQUIRE(end.write(1, {end.piece(0, 8)}, there) == 0);
      REQUIRE(end.wait().status == IBV_WC_SUCCESS);
    }
  }
  void tell(const order& what) { other.tell(&what, sizeof(what)); }

  // The other process causes data races on purpose, so ThreadSanitizer must not report them.
  peer other{"liar", "TSAN_OPTIONS=report_bugs=0"};
  endpoint end;
  address there{};
};

/// A connection to another process, and one within this process. Both of them must keep working all
/// the time.
class healthy {
 public:
  healthy() : there_(other_.meet(end_)) {}
  healthy(const healthy&) = delete;
  healthy& operator=(const healthy&) = delete;
  ~healthy() {
    if (!left_) other_.tell('q');
  }

  void check() {
    for (const auto& [offset, length] : {std::pair{3U, 5U}, {1000U, 100000U}}) {
      std::fill_n(end_.memory.begin(), length + 1, static_cast<unsigned char>(0));
      REQUIRE(end_.read(7, {end_.piece(0, length)}, there_, offset) == 0);
      const ibv_wc completion = end_.wait();
      REQUIRE(completion.status == IBV_WC_SUCCESS);
      REQUIRE(completion.wr_id == 7);
      std::size_t wrong = 0;
      for (std::size_t at = 0; at < length; ++at)
        if (end_.memory[at] != static_cast<unsigned char>((at + offset) * 13)) ++wrong;
      REQUIRE(wrong == 0);
      REQUIRE(end_.memory[length] == 0);
    }
    // These requests are sent as packets.
    REQUIRE(link_.right.post_receive(1, {link_.right.piece(0, 1000)}) == 0);
    REQUIRE(link_.left.send(2, {link_.left.piece(0, 1000)}) == 0);
    REQUIRE(link_.right.wait().status == IBV_WC_SUCCESS);
    REQUIRE(link_.left.wait().status == IBV_WC_SUCCESS);
  }
  void leave() {
    left_ = true;
    other_.finish();
  }
  endpoint& end() { return end_; }
  connection& link() { return link_; }

 private:
  peer other_{"target"};
  endpoint end_;
  connection link_;
  address there_;
  bool left_ = false;
};

}  // namespace

TEST_CASE("a process that writes false data to shared memory breaks only its own connections") {
  if (!shares_memory()) return;
  healthy friendly;
  friendly.check();
  const std::ptrdiff_t before = descriptors_open();
  for (std::uint32_t number = 0; number < hostile::lies(); ++number) {
    CAPTURE(number);
    connection_to_liar link;
    link.tell({order::kind::lie, number, 0, 0, 0});
    REQUIRE(link.other.hear() == 'd');
    auto& memory = link.end.memory;
    std::fill(memory.begin(), memory.end(), static_cast<unsigned char>(0x22));
    // The connection may fail in any way, but each request must complete.
    for (std::uint64_t id = 1; id <= 6; ++id) {
      const int error = id % 2 == 0 ? link.end.read(id, {link.end.piece(4096, 1 << 16)}, link.there)
                                    : link.end.write(id, {link.end.piece(0, 4096)}, link.there);
      REQUIRE(error == 0);
      REQUIRE(link.end.wait().wr_id == id);
    }
    const auto all_are = [&](std::size_t from, std::size_t to) {
      return std::all_of(memory.begin() + static_cast<std::ptrdiff_t>(from),
                         memory.begin() + static_cast<std::ptrdiff_t>(to),
                         [](unsigned char each) { return each == 0x22; });
    };
    CHECK(all_are(0, 4096));
    CHECK(all_are(4096 + (1 << 16), memory.size()));
    friendly.check();
    // If this call waited for the peer in vain, it would return EBUSY.
    CHECK(link.end.change(IBV_QPS_RESET) == 0);
    link.other.kill();
  }
  CHECK(eventually([&] { return descriptors_open() <= before; }));
  friendly.leave();
}

TEST_CASE("a queue pair that is reset and connected again verifies the process of its new peer") {
  if (!shares_memory()) return;
  connection_to_liar link;
  endpoint& end = link.end;
  link.tell({order::kind::change_mark, 0, 0, 0, 0});
  REQUIRE(link.other.hear() == 'd');
  std::uint32_t psn_to_liar = next_psn_of(end);
  REQUIRE(end.change(IBV_QPS_RESET) == 0);
  peer honest("target");
  const address there = honest.meet(end);
  REQUIRE(becomes_direct(end, there));
  std::uint32_t psn_to_honest = next_psn_of(end);
  const auto write = [&end](const address& to, std::uint32_t psn) {
    REQUIRE(end.change(IBV_QPS_RESET) == 0);
    end.psn = psn;
    end.connect(to);
    REQUIRE(end.write(1, {end.piece(0, 8)}, to) == 0);
    REQUIRE(end.wait().status == IBV_WC_SUCCESS);
    return next_psn_of(end);
  };
  // A verification stays valid for a millisecond. Even if the queue pair is connected to another
  // process within that time, the new peer must be verified.
  for (int round = 0; round < 10; ++round) {
    psn_to_honest = write(there, psn_to_honest);
    // The write uses a packet, because the liar's tables can't be verified.
    const std::uint32_t before = std::exchange(psn_to_liar, write(link.there, psn_to_liar));
    REQUIRE(psn_to_liar != before);
  }
  link.other.kill();
  honest.finish();
}

TEST_CASE("a process that falsely announces that it uses objects of others delays only its peers") {
  if (!shares_memory()) return;
  connection_to_liar link;
  healthy friendly;
  friendly.check();
  connection own;
  const auto index_of = [](const ibv_mr* region) {
    return (region->rkey & ~softverbs::remote_key_bit) >> 8;
  };
  const auto number_of = [](const ibv_qp* pair) { return pair->qp_num & 0x3fff; };
  const auto says = [&](const endpoint& with, const endpoint& of) {
    link.tell({order::kind::announce, 0, number_of(with.pair), index_of(of.region), 0});
    REQUIRE(link.other.hear() == 'd');
  };
  ibv_qp_attr attributes{};
  SECTION("the region of another process is not affected, whatever the queue pair") {
    endpoint& chosen = GENERATE(0, 1) == 0 ? own.right : link.end;
    says(chosen, own.right);
    if (GENERATE(false, true)) {
      const busy_processor now;
      CHECK(ibv_dereg_mr(own.right.region) == 0);
    } else {
      CHECK(ibv_dereg_mr(own.right.region) == 0);
    }
    own.right.region = nullptr;
  }
  SECTION("the queue pair of another process is not affected") {
    says(own.right, own.right);
    says(friendly.end(), friendly.end());
    CHECK(ibv_modify_qp(own.right.pair, &attributes, IBV_QP_ACCESS_FLAGS) == 0);
    CHECK(ibv_modify_qp(friendly.end().pair, &attributes, IBV_QP_ACCESS_FLAGS) == 0);
    CHECK(ibv_destroy_qp(own.right.pair) == 0);
    own.right.pair = nullptr;
  }
  SECTION("announcements about nonexistent objects have no effect") {
    link.tell({order::kind::announce, 0, 0x3fff, 0xfffff, 0});
    REQUIRE(link.other.hear() == 'd');
    CHECK(own.right.change(IBV_QPS_RESET) == 0);
  }
  SECTION("its peer is delayed until the process is dead") {
    says(link.end, link.end);
    CHECK(ibv_dereg_mr(link.end.region) == EBUSY);
    CHECK(link.end.change(IBV_QPS_RESET) == EBUSY);
    CHECK(link.end.state() == IBV_QPS_RTS);
    link.other.kill();
    CHECK(link.end.change(IBV_QPS_RESET) == 0);
    CHECK(ibv_dereg_mr(link.end.region) == 0);
    link.end.region = nullptr;
  }
  friendly.check();
  friendly.leave();
}

// SOFTVERBS_FUZZ_SECONDS and SOFTVERBS_FUZZ_SEED set the duration and the seed.
TEST_CASE("a process may write anything to shared memory without affecting others") {
  if (!shares_memory()) return;
  const auto setting = [](const char* name, unsigned long otherwise) {
    const char* said = std::getenv(name);
    return said == nullptr ? otherwise : std::strtoul(said, nullptr, 10);
  };
  const auto until =
      std::chrono::steady_clock::now() + std::chrono::seconds(setting("SOFTVERBS_FUZZ_SECONDS", 2));
  auto seed = static_cast<std::uint32_t>(setting("SOFTVERBS_FUZZ_SEED", 1));
  healthy friendly;
  friendly.check();
  unsigned rounds = 0;
  for (; rounds < 3 || std::chrono::steady_clock::now() < until; ++rounds, ++seed) {
    CAPTURE(seed);
    connection_to_liar link;
    link.tell({order::kind::scribble, seed, 0, 0, 100});
    REQUIRE(link.other.hear() == 'b');
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(100);
    for (std::uint64_t id = 1; id < 4 || std::chrono::steady_clock::now() < end; ++id) {
      REQUIRE(link.end.write(id, {link.end.piece(0, 5000)}, link.there) == 0);
      REQUIRE(link.end.wait().wr_id == id);
      REQUIRE(link.end.send(id, {link.end.piece(0, 100)}) == 0);
      // The send may take a long time, because the peer may have no receive or may be in an invalid
      // state. For this reason, the loop below polls for the completion only a limited number of
      // times.
      friendly.check();
      ibv_wc completion{};
      for (int tries = 0; tries < 100 && ibv_poll_cq(link.end.queue, 1, &completion) == 0; ++tries)
        std::this_thread::yield();
      if (link.end.state() != IBV_QPS_RTS) break;
      if (completion.wr_id != id) break;
      completion = {};
    }
    friendly.check();
    {
      const connection own;
      CHECK(own.left.state() == IBV_QPS_RTS);
    }
    link.other.kill();
  }
  // Newly allocated device memory contains zeros, even if peers have written to it before.
  ibv_alloc_dm_attr all{4 << 20, 0, 0};
  ibv_dm* const memory = ibv_alloc_dm(friendly.end().context, &all);
  REQUIRE(memory != nullptr);
  std::vector<unsigned char> bytes(all.length, 1);
  CHECK(ibv_memcpy_from_dm(bytes.data(), memory, 0, bytes.size()) == 0);
  CHECK(std::ranges::count(bytes, 0) == std::ssize(bytes));
  CHECK(ibv_free_dm(memory) == 0);
  friendly.leave();
  if (std::getenv("SOFTVERBS_FUZZ_SECONDS") != nullptr) std::printf("fuzz: %u rounds\n", rounds);
}

TEST_CASE("a process that sends notices endlessly does not delay others") {
  if (!shares_memory()) return;
  connection_to_liar link;
  healthy friendly;
  // The peer sends notices for longer than the test runs.
  link.tell({order::kind::chatter, 0, 0, 0, 600'000});
  REQUIRE(link.other.hear() == 'b');
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(1300);
  for (unsigned rounds = 0; rounds < 3 || std::chrono::steady_clock::now() < end; ++rounds)
    friendly.check();
  link.other.kill();
  friendly.leave();
}

TEST_CASE("a process can't send packets in the name of another process") {
  peer forger("forger");
  const auto send = [&](const softverbs::packet_header& header) {
    forger.tell(&header, sizeof(header));
    REQUIRE(forger.hear() == 's');
  };
  connection link;
  const auto unchanged = [&] {
    CHECK(link.right.quiet());
    CHECK(std::count(link.right.memory.begin() + 5000, link.right.memory.end(), 0x5a) == 0);
    REQUIRE(link.left.write(1, {link.left.piece(0, 64)}, link.right.here(), 64) == 0);
    CHECK(link.left.wait().status == IBV_WC_SUCCESS);
    REQUIRE(link.right.post_receive(1, {link.right.piece(0, 1000)}) == 0);
    REQUIRE(link.left.send(2, {link.left.piece(0, 1000)}) == 0);
    CHECK(link.right.wait().status == IBV_WC_SUCCESS);
    CHECK(link.left.wait().status == IBV_WC_SUCCESS);
  };
  unchanged();
  SECTION("the packet claims to come from the test's own process") {
    softverbs::packet_header header = forged(link);
    header.psn = next_psn_of(link.left);
    header.payload = header.message = 64;
    header.key = link.right.region->rkey;
    header.address = link.right.here().memory + 5000;
    send(header);
    unchanged();
    header.key = 0;
    header.psn = next_psn_of(link.left);
    send(header);
    unchanged();
  }
  SECTION("the packet claims to come from another process") {
    peer other("target");
    endpoint end(patient());
    const address there = other.meet(end);
    REQUIRE(end.read(1, {end.piece(0, 100)}, there) == 0);
    CHECK(end.wait().status == IBV_WC_SUCCESS);
    softverbs::packet_header header = forged(link);
    header.target_qpn = end.pair->qp_num;
    header.source_qpn = there.qpn;
    header.psn = there.psn;
    header.payload = header.message = 64;
    // No region has this key, so the packet would break the connection if it were accepted.
    header.key = 0;
    send(header);
    REQUIRE(end.read(2, {end.piece(0, 100)}, there) == 0);
    CHECK(end.wait().status == IBV_WC_SUCCESS);
    CHECK(end.quiet());
    CHECK(end.state() == IBV_QPS_RTS);
    other.finish();
  }
  constexpr softverbs::packet_header nothing{};
  forger.tell(&nothing, sizeof(nothing));
  CHECK(forger.wait() == 0);
}
