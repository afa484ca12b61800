// SPDX-License-Identifier: Apache-2.0
// One-sided requests between processes that are killed and stopped at random.
#include "support/soak.hpp"

#include "catch.hpp"
#include "support/descriptors.hpp"
#include "support/peer.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace {

using steady = std::chrono::steady_clock;

/// The time limit for actions that take no noticeable time on an idle machine.
constexpr auto generous = std::chrono::seconds(180);

unsigned long setting(const char* name, unsigned long otherwise) {
  const char* said = std::getenv(name);
  return said == nullptr ? otherwise : std::strtoul(said, nullptr, 10);
}

/// Memory that this process shares with the workers. They inherit its descriptor, which keeps its
/// number.
class shared_board {
 public:
  shared_board() {
    const int made = ::memfd_create("soak", 0);
    REQUIRE(made >= 0);
    REQUIRE(::ftruncate(made, sizeof(soak::board)) == 0);
    // The descriptor's number is high, and it has no close-on-exec flag.
    descriptor = ::fcntl(made, F_DUPFD, 200);
    ::close(made);
    void* memory =
        ::mmap(nullptr, sizeof(soak::board), PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    REQUIRE(memory != MAP_FAILED);
    all = static_cast<soak::board*>(memory);
    for (auto& row : all->lanes)
      for (soak::lane& each : row) {
        each.before.fill(soak::guard);
        each.behind.fill(soak::guard);
        each.end.fill(soak::guard);
      }
  }
  shared_board(const shared_board&) = delete;
  shared_board& operator=(const shared_board&) = delete;
  ~shared_board() {
    ::munmap(all, sizeof(soak::board));
    ::close(descriptor);
  }

  int descriptor = -1;
  soak::board* all = nullptr;
};

std::unique_ptr<peer> start(const shared_board& board, std::size_t number, std::uint32_t seed) {
  board.all->seeds[number] = seed;
  const std::string said =
      "SOFTVERBS_SOAKER=" + std::to_string(board.descriptor) + ":" + std::to_string(number);
  return std::make_unique<peer>("soaker", said.c_str());
}

/// Returns the number of anonymous pages that a process has in memory.
long own_pages(pid_t process) {
  long total = 0;
  long resident = 0;
  long shared = 0;
  std::ifstream("/proc/" + std::to_string(process) + "/statm") >> total >> resident >> shared;
  return resident - shared;
}

std::ptrdiff_t mappings(pid_t process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/maps");
  return std::count(std::istreambuf_iterator<char>(file), {}, '\n');
}

bool listens(std::uint32_t slot) {
  std::ifstream sockets("/proc/net/unix");
  const std::string name = "@softverbs/7/" + std::to_string(slot);
  for (std::string line; std::getline(sockets, line);)
    if (line.size() >= name.size() && line.ends_with(name)) return true;
  return false;
}

/// Waits until each worker has made progress with each of the others. Returns false after a
/// timeout, or if a worker has found an error.
bool all_go_on(const soak::board& all) {
  soak::board::table<std::uint64_t> before{};
  for (std::size_t one = 0; one < soak::workers; ++one)
    for (std::size_t other = 0; other < soak::workers; ++other)
      before[one][other] = all.known[one][other].done;
  const auto latest = steady::now() + generous;
  for (;;) {
    bool all_did = true;
    for (std::size_t one = 0; one < soak::workers; ++one)
      for (std::size_t other = 0; other < soak::workers; ++other)
        all_did = all_did && (one == other || all.known[one][other].done > before[one][other] + 10);
    if (all_did || all.wrong) return !all.wrong;
    if (steady::now() > latest) return false;
    // steady: this pause is not critical, because the loop polls until its deadline
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool memory_tells_something = false;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
constexpr bool memory_tells_something = false;
#else
constexpr bool memory_tells_something = true;
#endif
#else
constexpr bool memory_tells_something = true;
#endif

}  // namespace

// SOFTVERBS_SOAK_SECONDS and SOFTVERBS_SOAK_SEED set the duration and the seed. If the duration is
// set, the test prints its figures.
TEST_CASE("one-sided traffic stays correct while processes are killed and stopped") {
  const unsigned long seconds = setting("SOFTVERBS_SOAK_SECONDS", 4);
  const unsigned long seed = setting("SOFTVERBS_SOAK_SEED", 1);
  const std::ptrdiff_t descriptors_before = descriptors_open();
  unsigned long kills = 0;
  unsigned long stops = 0;
  long pages_before = 0;
  long pages_after = 0;
  {
    const shared_board board;
    soak::board& all = *board.all;
    std::mt19937 random(static_cast<std::mt19937::result_type>(seed));
    const auto pause = [&](unsigned most) {
      // steady: this pause spreads the kills and stops, which may come at any point
      std::this_thread::sleep_for(std::chrono::microseconds(random() % (most * 1000)));
    };
    std::vector<std::unique_ptr<peer>> others;
    for (std::size_t number = 0; number < soak::workers; ++number)
      others.push_back(start(board, number, static_cast<std::uint32_t>(random())));
    REQUIRE(all_go_on(all));

    const auto begun = steady::now();
    const auto until = begun + std::chrono::seconds(seconds);
    std::ptrdiff_t mappings_before = 0;
    while (steady::now() < until && !all.wrong) {
      // Worker 0 may be stopped, but it is never killed. Its use of resources therefore shows
      // whether the resources for dead workers are released.
      if (mappings_before == 0 && steady::now() > begun + std::chrono::seconds(seconds) / 4) {
        REQUIRE(all_go_on(all));
        mappings_before = mappings(others[0]->process());
        pages_before = own_pages(others[0]->process());
      }
      const std::size_t number = random() % soak::workers;
      peer& chosen = *others[number];
      const bool kill = number != 0 && random() % 2 == 0;
      if (random() % 2 == 0) {
        chosen.stop();
        // In runs longer than a minute, a process is sometimes stopped for longer than any call
        // waits for it.
        pause(random() % 20 != 0 ? 20 : seconds > 60 && random() % 8 == 0 ? 7000 : 400);
        if (!kill || random() % 2 == 0) chosen.resume();
        ++stops;
      }
      if (kill) {
        chosen.kill();
        if (chosen.wait() != 1000 + SIGKILL) {
          FAIL_CHECK("a worker exited before it was killed");
          break;
        }
        ++kills;
        if (random() % 2 == 0) pause(20);
        others[number] = start(board, number, static_cast<std::uint32_t>(random()));
      }
      pause(20);
    }
    if (all.wrong) FAIL_CHECK(all.complaint.data());
    CHECK(all_go_on(all));
    if (memory_tells_something && mappings_before != 0) {
      pages_after = own_pages(others[0]->process());
      CHECK(mappings(others[0]->process()) <= mappings_before + 16);
      CHECK(pages_after <= pages_before + 512);
    }
    // The connections to a process that was killed are closed shortly after its death.
    const auto kept = [&] { return all.descriptors[0] - all.descriptors_alone[0]; };
    CHECK(eventually([&] { return kept() <= std::ptrdiff_t{2 * (soak::workers - 1) + 1}; }));
    all.stops = true;
    for (const auto& each : others) CHECK(each->wait() == 0);
    for (std::size_t one = 0; one < soak::workers; ++one) {
      // For a while, another process may occupy the worker's slot.
      CHECK(eventually([&] { return !listens(all.slots[one]); }));
      for (std::size_t other = 0; other < soak::workers; ++other) {
        CHECK(soak::has_guards(all.lanes[one][other]));
        CHECK(soak::agrees(all.lanes[one][other], all.known[other][one]));
      }
    }
    if (std::getenv("SOFTVERBS_SOAK_SECONDS") != nullptr) {
      const auto count = [](const std::atomic<std::uint64_t>& of) {
        return static_cast<unsigned long long>(of.load());
      };
      std::printf(
          "soak: seed %lu, %lu s: %lu kills, %lu stops; %llu writes, %llu reads, %llu atomics, "
          "%llu MB; %llu requests failed; regions withdrawn %llu times, EBUSY %llu times; own "
          "pages %ld, then %ld\n",
          seed, seconds, kills, stops, count(all.total.writes), count(all.total.reads),
          count(all.total.atomics), count(all.total.bytes) / 1'000'000, count(all.total.failed),
          count(all.total.withdrawn), count(all.total.busy), pages_before, pages_after);
    }
  }
  // In the meantime, the device may have closed descriptors for peers from an earlier test.
  CHECK(eventually([&] { return descriptors_open() <= descriptors_before; }));
}
