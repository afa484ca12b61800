// SPDX-License-Identifier: Apache-2.0
// How a process serves its peers, especially when descriptors or places in a backlog run out.
#include "support/descriptors.hpp"
#include "support/faults.hpp"
#include "support/hostile.hpp"
#include "support/intruder.hpp"
#include "support/peer.hpp"
#include <softverbs/softverbs.h>

#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

namespace {

/// While an object of this class exists, the process can't open more descriptors.
class no_more_descriptors {
 public:
  no_more_descriptors() {
    REQUIRE(::getrlimit(RLIMIT_NOFILE, &before_) == 0);
    const rlimit none{3, before_.rlim_max};
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &none) == 0);
  }
  no_more_descriptors(const no_more_descriptors&) = delete;
  no_more_descriptors& operator=(const no_more_descriptors&) = delete;
  ~no_more_descriptors() { ::setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_{};
};

double processor_seconds() {
  timespec used{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return static_cast<double>(used.tv_sec) + static_cast<double>(used.tv_nsec) * 1e-9;
}

void sleep_for(int milliseconds) {
  // steady: each caller has a comment with the reason for its pause
  std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
}

template <typename Action>
double processor_seconds_of(const Action& action) {
  const double before = processor_seconds();
  action();
  return processor_seconds() - before;
}

/// A listener that looks like another softverbs process, but accepts connections only on request.
class closed_door {
 public:
  closed_door() : socket_(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)) {
    constexpr std::uint32_t last = 1022;
    for (std::uint32_t slot = last; slot > 0; --slot) {
      const process_name here(qpn_ = slot << 14);
      if (::bind(socket_, here.get(), here.length) == 0) break;
    }
    REQUIRE(::listen(socket_, 1) == 0);
  }
  closed_door(const closed_door&) = delete;
  closed_door& operator=(const closed_door&) = delete;
  ~closed_door() { ::close(socket_); }

  /// Returns a queue pair number that seems to belong to that other process.
  std::uint32_t qpn() const { return qpn_; }
  /// Connects until the backlog is full.
  void fill() const {
    while (intruder::takes_a_place(qpn_)) {
    }
  }
  /// Accepts the next connection that is still open. Returns its descriptor, or a negative number
  /// if there is none.
  int let_in() const {
    pollfd own{socket_, POLLIN, 0};
    constexpr std::chrono::milliseconds limit = patience;
    while (::poll(&own, 1, limit.count()) == 1) {
      const int accepted = ::accept4(socket_, nullptr, nullptr, SOCK_CLOEXEC);
      REQUIRE(accepted >= 0);
      std::byte first{};
      if (::recv(accepted, &first, sizeof(first), MSG_PEEK | MSG_DONTWAIT) != 0) return accepted;
      ::close(accepted);
    }
    return -1;
  }

 private:
  int socket_;
  std::uint32_t qpn_ = 0;
};

}  // namespace

TEST_CASE("no descriptors are kept for peers that have exited") {
  const auto serves = [](endpoint& end, const address& there) {
    REQUIRE(end.read(1, {end.piece(0, 100)}, there) == 0);
    CHECK(end.wait().status == IBV_WC_SUCCESS);
  };
  // This peer stays connected, so that both counts include the descriptors that the device opens
  // for its first peer.
  peer first("target");
  endpoint end_of_first;
  const address at_first = first.meet(end_of_first);
  serves(end_of_first, at_first);
  REQUIRE((!shares_memory() || becomes_direct(end_of_first, at_first)));
  const std::ptrdiff_t before = descriptors_open();
  for (int round = 0; round < 6; ++round) {
    peer other("target");
    endpoint end;
    serves(end, other.meet(end));
    other.kill();
    other.wait();
  }
  // The program neither polls nor sends, so the device's own thread must detect that the peers have
  // exited.
  CHECK(eventually([&] { return descriptors_open() <= before; }));
  first.finish();
}

// SOFTVERBS_CLIENTS sets the number of clients, and SOFTVERBS_DESCRIPTORS sets the limit on
// descriptors. Values such as 4100 and 1024 are suitable.
TEST_CASE("a server can serve more clients over time than it has free descriptors") {
  const auto setting = [](const char* name, unsigned long otherwise) {
    const char* said = std::getenv(name);
    return said == nullptr ? otherwise : std::strtoul(said, nullptr, 10);
  };
  endpoint witness;
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
  const auto open = static_cast<unsigned long>(descriptors_open());
  const unsigned long most = setting("SOFTVERBS_DESCRIPTORS", open + 30);
  const rlimit few{most, before.rlim_max};
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &few) == 0);
  const unsigned long clients = setting("SOFTVERBS_CLIENTS", 40);
  unsigned long served = 0;
  for (; served < clients; ++served) {
    peer other("target");
    // The endpoint waits patiently, because descriptors that belong to earlier clients may still be
    // open.
    endpoint end(patient());
    const address there = other.meet(end);
    if (end.read(1, {end.piece(0, 100)}, there) != 0 || end.wait().status != IBV_WC_SUCCESS) break;
    if (served % 2 == 0) {
      other.kill();
    } else {
      other.tell('q');
    }
    other.wait();
  }
  CHECK(served == clients);
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &before) == 0);
}

TEST_CASE("a message is received even if its sender exits without reading the answer") {
  connection link;
  struct {
    softverbs::packet_header header;
    std::array<unsigned char, 64> payload;
  } message{};
  message.header = forged(link);
  message.header.psn = link.left.psn;
  message.header.payload = message.header.message = sizeof(message.payload);
  message.header.key = link.right.region->rkey;
  message.header.address = link.right.here().memory + 5000;
  message.payload.fill(0x5a);
  {
    intruder from(link.right.pair->qp_num);
    from.greet(-1);
    REQUIRE(from.is_answered());
    // The sender disconnects before its message is received.
    softverbs_hold(1);
    from.send(&message, sizeof(message));
  }
  softverbs_go_on();
  const auto* written = static_cast<volatile unsigned char*>(&link.right.memory[5000]);
  CHECK(eventually([&] { return *written == 0x5a; }));
}

TEST_CASE("connections that lack descriptors wait without keeping a processor busy") {
  peer other("echo");
  endpoint end(patient());
  other.meet(end);
  REQUIRE(end.post_receive(1, {end.piece(1 << 19, 64)}) == 0);
  // Sanitizers need descriptors for their own checks, so the results are checked only after this
  // process can open descriptors again.
  int posted = -1;
  double used = 0;
  bool quiet = false;
  {
    const no_more_descriptors now;
    posted = end.send(2, {end.piece(0, 64)});
    // steady: processor time is measured during this period
    used = processor_seconds_of([] { sleep_for(400); });
    quiet = end.quiet();
  }
  CHECK(posted == 0);
  CHECK(used < 0.2);
  CHECK(quiet);
  for (int left = 2; left > 0; --left) CHECK(end.wait().status == IBV_WC_SUCCESS);
  REQUIRE(end.send(3, {}) == 0);
  CHECK(end.wait().status == IBV_WC_SUCCESS);
  CHECK(other.wait() == 0);
}

TEST_CASE("a live peer that lacks descriptors isn't considered dead") {
  peer other("echo");
  endpoint end(patient());
  // In the first round, this process has no descriptors left for a while, so it can't accept the
  // connection from its peer.
  other.meet(end);
  for (int round = 0; round < 3; ++round) {
    REQUIRE(end.post_receive(1, {end.piece(1 << 19, 64)}) == 0);
    REQUIRE(end.send(2, {end.piece(0, 64)}) == 0);
    double used = 0;
    if (round == 0) {
      const no_more_descriptors now;
      // steady: processor time is measured during this period
      used = processor_seconds_of([] { sleep_for(300); });
    }
    CHECK(used < 0.15);
    for (int left = 2; left > 0; --left) CHECK(end.wait().status == IBV_WC_SUCCESS);
  }
  REQUIRE(end.send(3, {}) == 0);
  CHECK(end.wait().status == IBV_WC_SUCCESS);
  CHECK(other.wait() == 0);
}

TEST_CASE("a client that opens many connections doesn't exclude other clients") {
  connection link;
  REQUIRE(link.right.post_receive(0, {}) == 0);
  REQUIRE(link.left.send(0, {}) == 0);
  CHECK(link.left.wait().status == IBV_WC_SUCCESS);
  CHECK(link.right.wait().status == IBV_WC_SUCCESS);
  const std::ptrdiff_t before = descriptors_open();
  std::vector<std::unique_ptr<intruder>> strangers;
  for (int count = 0; count < 300; ++count)
    strangers.push_back(std::make_unique<intruder>(link.right.pair->qp_num));
  peer other("target");
  endpoint end;
  const address there = other.meet(end);
  REQUIRE(end.read(1, {end.piece(0, 100)}, there) == 0);
  CHECK(end.wait().status == IBV_WC_SUCCESS);
  const auto kept = [&] { return descriptors_open() - before - 300; };
  CHECK(eventually([&] { return kept() <= 20; }));
  REQUIRE(link.right.post_receive(1, {}) == 0);
  REQUIRE(link.left.send(1, {}) == 0);
  CHECK(link.left.wait().status == IBV_WC_SUCCESS);
  CHECK(link.right.wait().status == IBV_WC_SUCCESS);
  other.finish();
}

TEST_CASE("two thousand silent connections don't exclude another client") {
  const auto [processes, of_each] =
      GENERATE(std::pair{1U, 2000U}, std::pair{4U, 500U}, std::pair{400U, 5U});
  CAPTURE(processes, of_each);
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
  if (before.rlim_max < 2100) {
    WARN("the limit of descriptors doesn't allow 2,000 connections here");
    return;
  }
  const rlimit few{1024, before.rlim_max};
  {
    connection link;
    peer old("target");
    endpoint end(patient());
    const address there = old.meet(end);
    const auto serves = [](endpoint& from, const address& at) {
      REQUIRE(from.read(1, {from.piece(0, 100)}, at) == 0);
      CHECK(from.wait().status == IBV_WC_SUCCESS);
    };
    const auto old_ones_are_served = [&] {
      serves(end, there);
      REQUIRE(link.right.post_receive(1, {}) == 0);
      REQUIRE(link.left.send(1, {}) == 0);
      CHECK(link.left.wait().status == IBV_WC_SUCCESS);
      CHECK(link.right.wait().status == IBV_WC_SUCCESS);
    };
    old_ones_are_served();
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &few) == 0);
    const std::ptrdiff_t alone = descriptors_open();
    peer stranger("holder");
    const hostile::order asked{{}, of_each, link.right.pair->qp_num, processes, 0};
    stranger.tell(&asked, sizeof(asked));
    std::future<char> all_are_open =
        std::async(std::launch::async, [&] { return stranger.hear(); });
    do old_ones_are_served();
    while (all_are_open.wait_for(std::chrono::seconds(0)) != std::future_status::ready);
    CHECK(all_are_open.get() == 'h');
    for (int count = 0; count < 3; ++count) {
      old_ones_are_served();
      peer newcomer("echo");
      endpoint own(patient());
      newcomer.meet(own);
      REQUIRE(own.post_receive(1, {own.piece(1 << 19, 64)}) == 0);
      REQUIRE(own.send(2, {own.piece(0, 64)}) == 0);
      for (int left = 2; left > 0; --left) CHECK(own.wait().status == IBV_WC_SUCCESS);
      REQUIRE(own.send(3, {}) == 0);
      CHECK(own.wait().status == IBV_WC_SUCCESS);
      CHECK(newcomer.wait() == 0);
    }
    stranger.finish();
    CHECK(eventually([&] { return descriptors_open() <= alone + 2; }));
    old.finish();
  }
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &before) == 0);
}

TEST_CASE("connections are accepted at a rate that leaves time for others") {
  connection link;
  constexpr int count = 300;
  // The device keeps at most four connections from one process, and closes the others. The
  // strangers belong to this process, so one of the four may be the process's own connection.
  constexpr int kept = 4;
  std::vector<std::unique_ptr<intruder>> strangers;
  let_everybody_in(link.right.pair->qp_num);
  standstill held;
  for (int made = 0; made < count; ++made)
    strangers.push_back(std::make_unique<intruder>(link.right.pair->qp_num));
  const auto start = std::chrono::steady_clock::now();
  held.go_on();
  const auto have_ended = [&] {
    return std::ranges::count_if(strangers, [](const auto& each) { return each->has_ended(); });
  };
  ibv_wc completion{};
  while (have_ended() < count - kept &&
         std::chrono::steady_clock::now() - start < std::chrono::seconds(60))
    CHECK(ibv_poll_cq(link.left.queue, 1, &completion) == 0);
  const auto still_there = count - have_ended();
  CHECK((still_there == kept || still_there == kept - 1));
  // At most sixteen connections are accepted per millisecond. The first and the last few may have
  // been accepted just before or after the time that is measured.
  CHECK(std::chrono::steady_clock::now() - start > std::chrono::milliseconds((count - 50) / 16));
}

TEST_CASE("a peer whose answer waits to be accepted is not considered dead") {
  peer other("target", "SOFTVERBS_SHARED_MEMORY=no");
  options wanted;
  wanted.timeout = 1;
  wanted.retry_count = 1;
  endpoint end(wanted);
  const address there = other.meet(end);
  let_everybody_in(end.pair->qp_num);
  // The connections below are accepted before the one from the peer, which must connect in order to
  // send its answer. The device accepts at most 16 connections per millisecond.
  standstill held;
  // The backlog has less room if it still holds connections from an earlier test.
  int in_line = 0;
  while (in_line < 2000 && intruder::takes_a_place(end.pair->qp_num)) ++in_line;
  held.go_on();
  REQUIRE(end.read(1, {end.piece(0, 100)}, there) == 0);
  CHECK(end.wait().status == IBV_WC_SUCCESS);
  other.finish();
}

TEST_CASE("a process that finds the backlog full waits for room") {
  peer other("target");
  endpoint end(patient());
  const address there = other.meet(end);
  other.stop();
  // A connection that was closed still occupies a place in the backlog.
  int in_line = 0;
  while (in_line < 1'000'000 && intruder::takes_a_place(there.qpn)) ++in_line;
  CAPTURE(in_line);
  REQUIRE_FALSE(intruder::takes_a_place(there.qpn));
  REQUIRE(end.read(1, {end.piece(0, 100)}, there) == 0);
  CHECK(end.quiet());
  other.resume();
  CHECK(end.wait().status == IBV_WC_SUCCESS);
  other.finish();
}

TEST_CASE("a new process that finds the backlog full is served eventually") {
  const connection link;
  endpoint end(patient());
  standstill held;
  int in_line = 0;
  while (in_line < 1'000'000 && intruder::takes_a_place(end.pair->qp_num)) ++in_line;
  CAPTURE(in_line);
  // The newcomer sends packets, so the device must accept its connection.
  peer newcomer("writer", "SOFTVERBS_SHARED_MEMORY=no");
  newcomer.meet(end);
  newcomer.tell('w');
  CHECK_FALSE(intruder::takes_a_place(end.pair->qp_num));
  held.go_on();
  CHECK(newcomer.hear() == '+');
  CHECK(end.memory.front() == 0x77);
  newcomer.finish();
}

TEST_CASE("a sender that can't be identified while a backlog is full is accepted later") {
  const closed_door other;
  const options unreliable{.type = IBV_QPT_UC};
  endpoint end(unreliable);
  address there = end.here();
  there.qpn = other.qpn();
  end.connect(there);
  struct {
    softverbs::packet_header header;
    std::array<unsigned char, 64> payload;
  } message{};
  message.header.kind = softverbs::packet_kind::write;
  message.header.flags = softverbs::packet_flag::first | softverbs::packet_flag::last |
                         softverbs::packet_flag::unreliable;
  message.header.network = on_ethernet() ? 2 : 0;
  message.header.target_qpn = end.pair->qp_num;
  message.header.source_qpn = there.qpn;
  message.header.payload = message.header.message = sizeof(message.payload);
  message.header.key = end.region->rkey;
  message.header.address = end.here().memory;
  message.payload.fill(0x5a);
  intruder from(end.pair->qp_num);
  // The device must accept this connection before the standstill.
  from.greet(-1);
  REQUIRE(from.is_answered());
  other.fill();
  {
    const standstill held;
    from.send(&message, sizeof(message));
    while (softverbs_step() != 0) {
    }
  }
  // Without needing another packet, the process waits for room in the backlog, and then identifies
  // the sender.
  const int found = other.let_in();
  REQUIRE(found >= 0);
  CHECK(end.memory.front() != 0x5a);
  other.fill();
  from.send(&message, sizeof(message));
  const auto* written = static_cast<volatile unsigned char*>(end.memory.data());
  CHECK(eventually([&] { return *written == 0x5a; }));
  ::close(found);
}

// SOFTVERBS_CALLS sets the number of connections, for example to 330000. The test then also prints
// and limits the delay of messages, which is meaningful only on an idle machine.
TEST_CASE("a client that reconnects repeatedly doesn't keep others from being served") {
  const char* said = std::getenv("SOFTVERBS_CALLS");
  const auto calls =
      static_cast<std::uint32_t>(said == nullptr ? 2000 : std::strtoul(said, nullptr, 10));
  connection link;
  const auto seconds_of_message = [&] {
    constexpr int count = 50;
    const auto start = std::chrono::steady_clock::now();
    for (int done = 0; done < count; ++done) {
      REQUIRE(link.right.post_receive(1, {}) == 0);
      REQUIRE(link.left.send(1, {}) == 0);
      REQUIRE(link.left.wait().status == IBV_WC_SUCCESS);
      REQUIRE(link.right.wait().status == IBV_WC_SUCCESS);
    }
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() / count;
  };
  seconds_of_message();
  const double quiet = seconds_of_message();
  peer stranger("caller");
  const hostile::order asked{{}, calls, link.right.pair->qp_num, 0, 0};
  stranger.tell(&asked, sizeof(asked));
  REQUIRE(stranger.hear() == 'b');
  std::future<int> all_called = std::async(std::launch::async, [&] { return stranger.wait(); });
  const auto start = std::chrono::steady_clock::now();
  int rounds = 0;
  double sum = 0;
  do {
    sum += seconds_of_message();
    ++rounds;
  } while (all_called.wait_for(std::chrono::seconds(0)) != std::future_status::ready);
  const std::chrono::duration<double> whole = std::chrono::steady_clock::now() - start;
  CHECK(all_called.get() == 0);
  if (said == nullptr) return;
  std::printf("%u connections in %.1f s: a message takes %.1f us, %.1f us without them\n", calls,
              whole.count(), sum / rounds * 1e6, quiet * 1e6);
  CHECK(sum / rounds < 10 * quiet);
}

TEST_CASE("a peer with another version of softverbs is reported as such") {
  // Uses a new process, because a process checks for other versions only once per second, and
  // reports them only once.
  peer seeker("seeker");
  CHECK(seeker.wait() == 0);
}

TEST_CASE("a posted request is executed without further polling") {
  connection link;
  ibv_wc completion{};
  const auto* arrived = static_cast<volatile unsigned char*>(&link.right.memory[7]);
  for (int round = 1; round <= 20; ++round) {
    // Polls so frequently that the device relies on the program to make progress.
    const auto start = std::chrono::steady_clock::now();
    while (std::chrono::steady_clock::now() - start < std::chrono::milliseconds(3))
      CHECK(ibv_poll_cq(link.left.queue, 1, &completion) == 0);
    link.left.memory[0] = static_cast<unsigned char>(round);
    address there = link.right.here();
    there.memory += 7;
    REQUIRE(link.left.write(1, {link.left.piece(0, 1)}, there) == 0);
    CHECK(eventually([&] { return *arrived == round; }));
    CHECK(link.left.wait().status == IBV_WC_SUCCESS);
  }
}
