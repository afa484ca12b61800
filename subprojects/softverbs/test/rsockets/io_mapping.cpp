// SPDX-License-Identifier: Apache-2.0
// Memory that the peer of an rsocket can write to. In these tests, the memory outlives the rsockets
// that have mapped it, because writes complete asynchronously.
#include "catch.hpp"
#include "support/rsocket_pair.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

namespace {

off_t map(const one_rsocket& end, std::vector<char>& memory, off_t offset,
          int protection = PROT_WRITE) {
  return riomap(end.descriptor, memory.data(), memory.size(), protection, 0, offset);
}

ssize_t write(const one_rsocket& end, const std::string& text, off_t offset) {
  return static_cast<ssize_t>(riowrite(end.descriptor, text.data(), text.size(), offset, 0));
}

}  // namespace

TEST_CASE("rsockets: a write to mapped memory arrives before later sends") {
  std::vector<char> memory(300000);
  const rsocket_pair pair(2);
  REQUIRE(map(pair.server, memory, 1000) == 1000);
  pair.server.send("mapped");
  REQUIRE(pair.client.receive(6) == "mapped");
  for (char round = 'a'; round <= 'z'; ++round) {
    const std::string text(200000, round);
    REQUIRE(write(pair.client, text, 1000 + 50000) == 200000);
    pair.client.send("x");
    REQUIRE(pair.server.receive(1) == "x");
    CHECK(std::equal(text.begin(), text.end(), memory.begin() + 50000));
    CHECK(std::count(memory.begin(), memory.end(), round) == 200000);
  }
}

TEST_CASE("rsockets: a write arrives even if the target's program makes no calls") {
  std::vector<char> memory(1);
  const rsocket_pair pair(1);
  const off_t offset = map(pair.client, memory, -1);
  CHECK(offset == static_cast<off_t>(reinterpret_cast<std::uintptr_t>(memory.data())));
  pair.client.send("m");
  REQUIRE(pair.server.receive(1) == "m");
  REQUIRE(write(pair.server, "!", offset) == 1);
  CHECK(eventually([&] { return std::atomic_ref(memory[0]).load() == '!'; }));
}

TEST_CASE("rsockets: a peer can have only as many mappings as the other end allows") {
  std::vector<char> memory(10);
  std::vector<char> more(10);
  std::vector<char> most(10);
  const rsocket_pair pair(2);
  const rsocket_pair without;
  CHECK(map(without.server, memory, 0) == -1);
  CHECK(errno == ENOMEM);
  CHECK(map(without.server, memory, 0, PROT_NONE) == 0);
  CHECK(map(pair.server, memory, 0, PROT_READ) == -1);
  CHECK(errno == EINVAL);
  CHECK(map(pair.server, memory, 0) == 0);
  CHECK(map(pair.server, more, 10) == 10);
  CHECK(map(pair.server, most, 20) == -1);
  CHECK(errno == ENOMEM);
  // A single write may span several mappings.
  pair.server.send("m");
  REQUIRE(pair.client.receive(1) == "m");
  CHECK(write(pair.client, "0123456789", 5) == 10);
  CHECK(write(pair.client, "0123456789", 15) == 5);
  CHECK(write(pair.client, "0123456789", 20) == 0);
  pair.client.send("w");
  REQUIRE(pair.server.receive(1) == "w");
  CHECK(std::string(memory.data() + 5, 5) == "01234");
  CHECK(std::string(more.data(), 10) == "5678901234");
  CHECK(riounmap(pair.server.descriptor, most.data(), most.size()) == -1);
  CHECK(errno == EINVAL);
  CHECK(riounmap(pair.server.descriptor, memory.data(), memory.size()) == 0);
  CHECK(map(pair.server, most, 20) == 20);
  pair.server.send("m");
  REQUIRE(pair.client.receive(1) == "m");
  CHECK(write(pair.client, "now", 20) == 3);
  CHECK(write(pair.client, "gone", 0) == 0);
}

TEST_CASE("rsockets: memory is mapped only on an open connection") {
  const one_rsocket idle;
  std::vector<char> memory(10);
  CHECK(map(idle, memory, 0) == -1);
  CHECK(errno == EINVAL);
  CHECK(write(idle, "x", 0) == -1);
  CHECK(errno == ENOTCONN);
  rsocket_pair pair(1);
  REQUIRE(map(pair.server, memory, 0) == 0);
  pair.server.send("m");
  REQUIRE(pair.client.receive(1) == "m");
  REQUIRE(rshutdown(pair.client.descriptor, SHUT_WR) == 0);
  CHECK(write(pair.client, "x", 0) == -1);
  CHECK(errno == ECONNRESET);
  rsocket_pair other(1);
  REQUIRE(map(other.server, memory, 0) == 0);
  other.server.send("m");
  REQUIRE(other.client.receive(1) == "m");
  other.server.close();
  CHECK(eventually([&] { return write(other.client, "x", 0) == -1; }));
  CHECK(errno == ECONNRESET);
  CHECK(std::ranges::all_of(memory, [](char each) { return each == 0 || each == 'x'; }));
}
