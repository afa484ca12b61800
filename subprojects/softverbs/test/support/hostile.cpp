// SPDX-License-Identifier: Apache-2.0
#include "support/hostile.hpp"

#include "machine/announcements.hpp"
#include "memory/published_tables.hpp"
#include "memory/region_table.hpp"
#include "support/fabric.hpp"
#include "support/peer.hpp"
#include "wire/greeting.hpp"
#include "wire/wire.hpp"

#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <functional>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <vector>

namespace hostile {
namespace {

using namespace softverbs;
using steady = std::chrono::steady_clock;

/// Returns the writable memory that the library shares with other processes. It is mapped a second
/// time here, because the library may remove its own mapping.
std::vector<std::span<std::byte>> shared_memories() {
  std::vector<std::span<std::byte>> all;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    unsigned long start = 0;
    unsigned long end = 0;
    if (line.find("memfd:softverbs") != std::string::npos &&
        std::sscanf(line.c_str(), "%lx-%lx rw-s", &start, &end) == 2 &&
        line.find(" rw-s ") != std::string::npos)
      all.emplace_back(reinterpret_cast<std::byte*>(start), end - start);
  }
  for (auto& each : all) {
    void* again = ::mremap(each.data(), 0, each.size(), MREMAP_MAYMOVE);
    if (again == MAP_FAILED) throw std::runtime_error("can't map memory again");
    each = {static_cast<std::byte*>(again), each.size()};
  }
  return all;
}

std::vector<std::span<std::byte>> pair_memories() {
  auto all = shared_memories();
  std::erase_if(all, [](const auto& each) { return each.size() != pair_memory::bytes; });
  return all;
}

published_tables& own_tables() {
  for (const auto& each : shared_memories())
    if (each.size() >= sizeof(published_tables))
      return *reinterpret_cast<published_tables*>(each.data());
  throw std::runtime_error("there are no tables");
}

/// An entry in a table, for a writer that ignores the rules for writing it.
template <typename Shown>
struct place {
  std::uint64_t version;
  std::uint64_t versions_so_far;
  Shown shown;
};
static_assert(sizeof(place<shown_region>) == sizeof(published<shown_region>));
static_assert(sizeof(place<shown_pair>) == sizeof(published<shown_pair>));

struct own {
  place<shown_region>& region;
  place<shown_pair>& pair;
  published_tables& tables;
  published_tables::pair_place& whole_pair;
};

constexpr std::uint64_t all_ones = ~std::uint64_t{0};

const std::vector<std::function<void(const own&)>>& all_lies() {
  static const std::vector<std::function<void(const own&)>> list{
      [](const own& my) { my.region.shown.memory = 0; },
      [](const own& my) { my.region.shown.memory = 1; },
      [](const own& my) { my.region.shown.memory = all_ones; },
      [](const own& my) { my.region.shown.memory = all_ones << 47; },
      [](const own& my) { my.region.shown.memory += 1 << 20; },
      [](const own& my) { my.region.shown.length = all_ones; },
      [](const own& my) { my.region.shown.length = 0; },
      [](const own& my) { my.region.shown.start = all_ones; },
      [](const own& my) {
        my.region.shown.start = 0;
        my.region.shown.length = all_ones;
        my.region.shown.memory = all_ones - 100;
      },
      [](const own& my) { my.region.shown.key ^= 1; },
      [](const own& my) { my.region.shown.domain = ~0U; },
      [](const own& my) { my.region.shown.pair = ~0U; },
      [](const own& my) { my.region.shown.access = 0; },
      [](const own& my) { my.region.shown.is_window = 1; },
      [](const own& my) { my.region.shown.is_window = 0xff; },
      [](const own& my) { my.region.version |= 1; },
      [](const own& my) { my.region.version = all_ones; },
      [](const own& my) { my.region.version = all_ones - 1; },
      [](const own& my) { my.pair.shown.number = ~0U; },
      [](const own& my) { my.pair.shown.peer ^= 1; },
      [](const own& my) { my.pair.shown.domain ^= 1; },
      [](const own& my) { my.pair.shown.access = ~0U; },
      [](const own& my) { my.pair.shown.service = 0xff; },
      [](const own& my) { my.pair.shown.network = 0xff; },
      [](const own& my) { my.pair.shown.here = my.pair.shown.there = 0xff; },
      [](const own& my) { my.pair.shown.fetches = 0; },
      [](const own& my) { my.pair.shown.has_atomics = 0xff; },
      [](const own& my) { my.pair.version |= 1; },
      [](const own& my) { my.whole_pair.expected_psn = ~0U; },
      [](const own& my) { my.whole_pair.expected_psn.fetch_add(1); },
      [](const own& my) { my.tables.faulty = ~0U; },
      [](const own& my) { my.tables.mark = 0; },
      [](const own& my) { my.tables.mark.fetch_add(1); },
      [](const own& my) { my.tables.address_of_mark = 0; },
      [](const own& my) { my.tables.address_of_mark = all_ones - 3; },
      [](const own& my) {
        std::memset(reinterpret_cast<std::byte*>(&my.tables), 0xff, sizeof(my.tables));
      },
      [](const own& my) {
        std::memset(reinterpret_cast<std::byte*>(&my.tables), 0, sizeof(my.tables));
      },
      [](const own& my) {
        for (const auto& each : pair_memories()) std::memset(each.data(), 0xff, each.size());
        my.region.version |= 1;
      },
      [](const own& my) {
        for (const auto& each : pair_memories()) std::memset(each.data(), 0, each.size());
        my.region.version |= 1;
      },
  };
  return list;
}

void announce(const order& asked) {
  for (const auto& each : pair_memories()) {
    const announcements said(each.subspan(pair_memory::hazards, pair_memory::hazard_bytes));
    for (std::size_t thread = 500; thread < 510; ++thread)
      announcements(said).begin(thread, {asked.pair, asked.region});
  }
}

std::vector<int> connections() {
  std::vector<int> all;
  for (int descriptor = 4; descriptor < 200; ++descriptor) {
    int kind = 0;
    socklen_t length = sizeof(kind);
    sockaddr_un other{};
    socklen_t other_length = sizeof(other);
    if (::getsockopt(descriptor, SOL_SOCKET, SO_TYPE, &kind, &length) == 0 &&
        kind == SOCK_SEQPACKET &&
        ::getpeername(descriptor, reinterpret_cast<sockaddr*>(&other), &other_length) == 0)
      all.push_back(descriptor);
  }
  return all;
}

void scribble(const order& asked) {
  std::mt19937_64 random(asked.number);
  const auto memories = shared_memories();
  const auto sockets = connections();
  const auto until = steady::now() + std::chrono::milliseconds(asked.milliseconds);
  std::vector<std::byte> noise(1000);
  while (steady::now() < until) {
    for (int count = 0; count < 200 && !memories.empty(); ++count) {
      const auto& memory = memories[random() % memories.size()];
      // Half of the writes go to the beginning, where a ring has its positions.
      const std::size_t within =
          random() % 2 == 0 ? std::min<std::size_t>(8192, memory.size()) : memory.size();
      const std::size_t at = random() % (within - 8) & ~std::size_t{7};
      const std::uint64_t value = random() % 3 == 0   ? random()
                                  : random() % 2 == 0 ? random() % 100000 * 64
                                                      : all_ones - random() % 2;
      std::memcpy(memory.data() + at, &value, sizeof(value));
    }
    if (random() % 50 != 0 || sockets.empty()) continue;
    for (auto& each : noise) each = static_cast<std::byte>(random());
    noise[0] = static_cast<std::byte>(0x80 + random() % 6);
    const std::size_t length = random() % 2 == 0 ? sizeof(notice) : random() % noise.size();
    ::send(sockets[random() % sockets.size()], noise.data(), length, MSG_DONTWAIT | MSG_NOSIGNAL);
  }
}

void chatter(const order& asked) {
  notice room{};
  room.what = notice::kind::room_to_write;
  const auto sockets = connections();
  const auto until = steady::now() + std::chrono::milliseconds(asked.milliseconds);
  // There are more threads that send than the peer has threads that receive.
  std::vector<std::thread> speakers;
  for (int number = 0; number < 3; ++number)
    speakers.emplace_back([&] {
      while (steady::now() < until)
        for (const int each : sockets)
          for (int count = 0; count < 100; ++count)
            ::send(each, &room, sizeof(room), MSG_DONTWAIT | MSG_NOSIGNAL);
    });
  for (std::thread& each : speakers) each.join();
}

/// Returns a socket that is connected to the process to which a queue pair belongs, or a negative
/// number if the connection fails.
int connection_to(std::uint32_t qpn) {
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  // steady: the name contains the number of a process that belongs to this test
  const int length = std::snprintf(name.sun_path + 1, sizeof(name.sun_path) - 1, "softverbs/7/%u",
                                   qpn >> wire::index_bits);
  const int socket = ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  if (::connect(socket, reinterpret_cast<const sockaddr*>(&name),
                static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 +
                                       static_cast<std::size_t>(length))) == 0)
    return socket;
  ::close(socket);
  return -1;
}

}  // namespace

std::size_t lies() { return all_lies().size(); }

int liar() {
  endpoint end(patient());
  const address there = with_test::meet(end);
  std::fill(end.memory.begin(), end.memory.end(), static_cast<unsigned char>(0x11));
  // Both ends must have completed the handshake before the attack begins.
  for (int round = 0; round < 10; ++round) {
    if (end.write(1, {end.piece(0, 64)}, there) != 0) return 2;
    if (end.wait().status != IBV_WC_SUCCESS) return 3;
  }
  with_test::tell('r');
  published_tables& tables = own_tables();
  auto& pair = tables.pairs[end.pair->qp_num & wire::index_mask];
  const std::uint32_t region = (end.region->rkey & ~remote_key_bit) >> 8;
  const own my{reinterpret_cast<place<shown_region>&>(tables.regions[region]),
               reinterpret_cast<place<shown_pair>&>(pair.shown), tables, pair};
  for (;;) {
    order asked{};
    with_test::hear(&asked, sizeof(asked));
    switch (asked.what) {
      case order::kind::leave:
        ::_exit(0);
      case order::kind::lie:
        all_lies().at(asked.number)(my);
        break;
      case order::kind::change_mark:
        tables.mark.fetch_add(1);
        break;
      case order::kind::announce:
        announce(asked);
        break;
      case order::kind::scribble:
        with_test::tell('b');
        scribble(asked);
        break;
      case order::kind::chatter:
        with_test::tell('b');
        chatter(asked);
        break;
    }
    with_test::tell('d');
  }
}

int caller() {
  order asked{};
  with_test::hear(&asked, sizeof(asked));
  with_test::tell('b');
  for (std::uint32_t called = 0; called < asked.number; ++called) {
    const int socket = connection_to(asked.pair);
    if (socket >= 0) ::close(socket);
  }
  return 0;
}

int holder() {
  order asked{};
  with_test::hear(&asked, sizeof(asked));
  rlimit all{};
  ::getrlimit(RLIMIT_NOFILE, &all);
  all.rlim_cur = all.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &all);
  // Each of the processes reports whether it has opened its connections.
  std::array<int, 2> ready{};
  if (::pipe(ready.data()) != 0) return 2;
  const auto hold = [&] {
    char opened = 'o';
    for (std::uint32_t count = 0; count < asked.number; ++count)
      if (connection_to(asked.pair) < 0) opened = 'n';
    return ::write(ready[1], &opened, 1) == 1;
  };
  if (asked.region == 1) hold();
  for (std::uint32_t started = 0; asked.region > 1 && started < asked.region; ++started) {
    const pid_t process = ::fork();
    if (process < 0) return 3;
    if (process > 0) continue;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    if (hold())
      for (;;) ::pause();
    ::_exit(1);
  }
  for (std::uint32_t count = 0; count < asked.region; ++count) {
    char opened = 0;
    if (::read(ready[0], &opened, 1) != 1 || opened != 'o') return 4;
  }
  with_test::tell('h');
  char leave = 0;
  with_test::hear(&leave, 1);
  return 0;
}

int forger() {
  for (;;) {
    packet_header header{};
    with_test::hear(&header, sizeof(header));
    if (header.target_qpn == 0) return 0;
    std::vector<std::byte> message(sizeof(header) + header.payload, std::byte{0x5a});
    std::memcpy(message.data(), &header, sizeof(header));
    const int socket = connection_to(header.target_qpn);
    const bool sent = ::send(socket, message.data(), message.size(), MSG_NOSIGNAL) > 0;
    with_test::tell(sent ? 's' : 'n');
    // A packet that was sent is received even if the socket is closed before the packet has been
    // read.
    ::close(socket);
  }
}

}  // namespace hostile
