// SPDX-License-Identifier: Apache-2.0
// Limits, and the errors that are reported when they are reached.
#include "catch.hpp"
#include "support/allocations.hpp"
#include "support/descriptors.hpp"
#include "support/fabric.hpp"
#include "support/peer.hpp"

#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <string>
#include <vector>

TEST_CASE("reaching the limit of queue pairs per process is reported as such") {
  std::vector<std::unique_ptr<open_context>> contexts;
  std::vector<ibv_qp*> pairs;
  std::vector<ibv_pd*> domains;
  std::vector<ibv_cq*> queues;
  int granted = 0;
  std::FILE* said = std::tmpfile();
  REQUIRE(said != nullptr);
  const int before = ::dup(STDERR_FILENO);
  ::dup2(::fileno(said), STDERR_FILENO);
  // Opens contexts until the process's own limit, rather than the device's, keeps it from creating
  // more queue pairs.
  for (int last = 0; contexts.size() < 70; last = granted) {
    granted = 0;
    contexts.push_back(std::make_unique<open_context>());
    ibv_context* device = contexts.back()->verbs;
    ibv_device_attr attributes{};
    REQUIRE(ibv_query_device(device, &attributes) == 0);
    domains.push_back(ibv_alloc_pd(device));
    queues.push_back(ibv_create_cq(device, 1, nullptr, nullptr, 0));
    ibv_qp_init_attr wanted = pair_with(queues.back(), {1, 1, 1, 1, 0});
    while (ibv_qp* pair = ibv_create_qp(domains.back(), &wanted)) {
      pairs.push_back(pair);
      ++granted;
    }
    CHECK(errno == ENOMEM);
    if (granted != attributes.max_qp) break;
    CHECK((last == 0 || last == granted));
  }
  ::dup2(before, STDERR_FILENO);
  ::close(before);
  CHECK(pairs.size() == 16384);
  std::rewind(said);
  std::array<char, 300> line{};
  CHECK(std::fgets(line.data(), line.size(), said) != nullptr);
  CHECK(std::string(line.data()).find("all 16384 queue pairs") != std::string::npos);
  std::fclose(said);
  for (ibv_qp* each : pairs) CHECK(ibv_destroy_qp(each) == 0);
  for (ibv_cq* each : queues) CHECK(ibv_destroy_cq(each) == 0);
  for (ibv_pd* each : domains) CHECK(ibv_dealloc_pd(each) == 0);
}

TEST_CASE("a process above the maximum number of processes is refused with a message") {
  // Uses its own configuration, so that no other process shares the device.
  char name[] = "/tmp/softverbs-limits-XXXXXX";
  const int file = ::mkstemp(name);
  REQUIRE(file >= 0);
  const std::string text =
      "[soft0]\nmax-regions = " + std::to_string(1000 + ::getpid() % 100000) + "\n";
  REQUIRE(::write(file, text.data(), text.size()) == static_cast<ssize_t>(text.size()));
  ::close(file);
  {
    // SOFTVERBS_CONFIG also sets the number of devices, so SOFTVERBS_DEVICES must not be set at the
    // same time.
    const char* devices = std::getenv("SOFTVERBS_DEVICES");
    const std::string kept = devices == nullptr ? "" : devices;
    ::unsetenv("SOFTVERBS_DEVICES");
    peer latecomer("latecomer", ("SOFTVERBS_CONFIG=" + std::string(name)).c_str());
    if (devices != nullptr) ::setenv("SOFTVERBS_DEVICES", kept.c_str(), 1);
    CHECK(latecomer.wait() == 0);
  }
  ::unlink(name);
}

TEST_CASE("a thread that can't be started is reported as such") {
  peer other("without threads");
  CHECK(other.wait() == 0);
}

TEST_CASE("a verb for which there is no memory fails and leaves nothing behind") {
  const endpoint end(options{.type = IBV_QPT_UD});
  // Limits the allocations of `call` to 0, then 1, and so on, until it succeeds. On success, `call`
  // removes the object that it has created, and returns true.
  const auto fails_cleanly = [&](const auto& call) {
    const std::ptrdiff_t open_before = descriptors_open();
    const auto attempt = [&](int count) {
      const open_context device;
      ibv_pd* const domain = ibv_alloc_pd(device.verbs);
      REQUIRE(domain != nullptr);
      errno = 0;
      const bool done = call(domain, count);
      CHECK((done || errno == ENOMEM));
      CHECK(ibv_dealloc_pd(domain) == 0);
      return done;
    };
    int count = 0;
    // Other processes may have connections to this one for a moment.
    for (; !attempt(count); ++count)
      CHECK(eventually([&] { return descriptors_open() <= open_before; }));
    CHECK((count > 0 || !allocations::can_be_limited()));
  };
  const auto limited = [](int count, const auto& call) {
    allocations::limit_to(count);
    const auto result = call();
    allocations::limit_to(-1);
    return result;
  };
  SECTION("device memory") {
    fails_cleanly([&](ibv_pd* domain, int count) {
      ibv_alloc_dm_attr asked{4096, 0, 0};
      ibv_dm* const made = limited(count, [&] { return ibv_alloc_dm(domain->context, &asked); });
      return made != nullptr && ibv_free_dm(made) == 0;
    });
  }
  SECTION("a region") {
    // The table of regions grows only in some of these rounds.
    for (int round = 0; round < 64; ++round)
      fails_cleanly([&](ibv_pd* domain, int count) {
        std::array<char, 8> buffer{};
        ibv_mr* const made =
            limited(count, [&] { return ibv_reg_mr(domain, buffer.data(), buffer.size(), 0); });
        return made != nullptr && ibv_dereg_mr(made) == 0;
      });
  }
  SECTION("a member of a multicast group") {
    ibv_gid group{};
    group.raw[0] = 0xff;
    group.raw[1] = 0x0e;
    fails_cleanly([&](ibv_pd*, int count) {
      errno = limited(count, [&] { return ibv_attach_mcast(end.pair, &group, 0xc001); });
      return errno == 0 && ibv_detach_mcast(end.pair, &group, 0xc001) == 0;
    });
  }
}
