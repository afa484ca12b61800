// SPDX-License-Identifier: Apache-2.0
// Contexts that are created from the command descriptor of another context, and objects that are
// imported into them by their handles.
#include "catch.hpp"
#include "support/fabric.hpp"
#include "support/forked.hpp"
#include <softverbs/softverbs.h>

#include <fcntl.h>
#include <malloc.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

namespace {

/// Another context with the same command file.
struct imported_context {
  explicit imported_context(const ibv_context* of)
      : descriptor(::fcntl(of->cmd_fd, F_DUPFD_CLOEXEC, 0)), verbs(ibv_import_device(descriptor)) {
    REQUIRE(verbs != nullptr);
  }
  imported_context(const imported_context&) = delete;
  imported_context& operator=(const imported_context&) = delete;
  ~imported_context() { close(); }
  void close() {
    if (verbs != nullptr) CHECK(ibv_close_device(std::exchange(verbs, nullptr)) == 0);
  }
  int descriptor;
  ibv_context* verbs;
};

constexpr int rights =
    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_MW_BIND;

}  // namespace

TEST_CASE("a context is created from a duplicate of a command descriptor and owns it") {
  const open_context opened;
  imported_context other(opened.verbs);
  CHECK(other.verbs != opened.verbs);
  CHECK(other.verbs->device == opened.verbs->device);
  CHECK(other.verbs->cmd_fd == other.descriptor);
  CHECK(other.verbs->async_fd >= 0);
  CHECK(other.verbs->async_fd != opened.verbs->async_fd);
  ibv_port_attr port{};
  CHECK(ibv_query_port(other.verbs, 1, &port) == 0);
  CHECK(port.state == IBV_PORT_ACTIVE);
  // A third context can be created from the second one.
  const imported_context third(other.verbs);
  other.close();
  CHECK(::fcntl(other.descriptor, F_GETFD) == -1);
  CHECK(ibv_query_port(third.verbs, 1, &port) == 0);
}

TEST_CASE("other descriptors can't be imported") {
  const auto attempt = [](int descriptor) {
    return refusal([descriptor] { return ibv_import_device(descriptor); });
  };
  CHECK(attempt(-1) == EINVAL);
  const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  CHECK(attempt(null) != 0);
  CHECK(::close(null) == 0);
  const int memory = ::memfd_create("softverbs", MFD_CLOEXEC);
  CHECK(attempt(memory) == EINVAL);
  CHECK(::close(memory) == 0);
  int duplicate = -1;
  {
    const open_context opened;
    duplicate = ::dup(opened.verbs->cmd_fd);
    const forked child([&] { return attempt(duplicate) == EOPNOTSUPP; });
    CHECK(child.ended_well());
  }
  CHECK(attempt(duplicate) == EOPNOTSUPP);
  CHECK(::close(duplicate) == 0);
}

TEST_CASE("an object's handle can be imported only through the object's own command file") {
  const endpoint end;
  const endpoint other;
  const imported_context imported(end.context);
  const auto domain_of = [&](std::uint32_t handle) {
    return refusal([&] { return ibv_import_pd(imported.verbs, handle); });
  };
  CHECK(domain_of(end.domain->handle) == 0);
  CHECK(domain_of(other.domain->handle) == ENOENT);
  CHECK(domain_of(0) == ENOENT);
  CHECK(refusal([&] { return ibv_import_mr(end.domain, other.region->handle); }) == ENOENT);
  CHECK(refusal([&] { return ibv_import_mr(end.domain, ~0U); }) == ENOENT);
  CHECK(refusal([&] { return ibv_import_dm(imported.verbs, 1); }) == ENOENT);
}

TEST_CASE("an imported domain is the original, which is busy until its objects are destroyed") {
  const open_context opened;
  imported_context other(opened.verbs);
  ibv_pd* const domain = ibv_alloc_pd(opened.verbs);
  REQUIRE(domain != nullptr);
  ibv_pd* const same = ibv_import_pd(other.verbs, domain->handle);
  REQUIRE(same != nullptr);
  CHECK(same != domain);
  CHECK(same->context == other.verbs);
  CHECK(same->handle == domain->handle);
  std::array<char, 64> memory{};
  ibv_mr* const region = ibv_reg_mr(same, memory.data(), memory.size(), rights);
  REQUIRE(region != nullptr);
  CHECK(ibv_dealloc_pd(domain) == EBUSY);
  CHECK(ibv_dealloc_pd(same) == EBUSY);
  // In the last section, the region outlives the context in which it was created.
  SECTION("the owner's object of the domain is destroyed last") {
    const std::uint32_t handle = domain->handle;
    ibv_unimport_pd(same);
    CHECK(ibv_dealloc_pd(domain) == EBUSY);
    CHECK(ibv_dereg_mr(region) == 0);
    CHECK(ibv_dealloc_pd(domain) == 0);
    CHECK(refusal([&] { return ibv_import_pd(other.verbs, handle); }) == ENOENT);
  }
  SECTION("the imported object is destroyed last") {
    const std::uint32_t handle = domain->handle;
    ibv_unimport_pd(domain);
    CHECK(ibv_import_pd(opened.verbs, handle) != nullptr);
    CHECK(ibv_dereg_mr(region) == 0);
    CHECK(ibv_dealloc_pd(same) == 0);
  }
  SECTION("objects for a domain that was destroyed are invalid") {
    CHECK(ibv_dereg_mr(region) == 0);
    CHECK(ibv_dealloc_pd(same) == 0);
    CHECK(ibv_dealloc_pd(domain) == ENOENT);
    CHECK(refusal([&] { return ibv_reg_mr(domain, memory.data(), memory.size(), 0); }) == EINVAL);
    CHECK(refusal([&] { return ibv_alloc_mw(domain, IBV_MW_TYPE_1); }) == EINVAL);
    ibv_srq_init_attr receives{};
    receives.attr = {4, 1, 0};
    CHECK(refusal([&] { return ibv_create_srq(domain, &receives); }) == EINVAL);
    ibv_cq* const queue = ibv_create_cq(opened.verbs, 4, nullptr, nullptr, 0);
    ibv_qp_init_attr pair = pair_with(queue, {1, 1, 1, 1, 0});
    CHECK(refusal([&] { return ibv_create_qp(domain, &pair); }) == EINVAL);
    CHECK(ibv_destroy_cq(queue) == 0);
    ibv_parent_domain_init_attr parent{};
    parent.pd = domain;
    CHECK(refusal([&] { return ibv_alloc_parent_domain(opened.verbs, &parent); }) == EINVAL);
    ibv_unimport_pd(domain);
  }
  SECTION("one object is destroyed with its context and the other one keeps the region") {
    other.close();
    CHECK(region->context == opened.verbs);
    CHECK(region->pd == domain);
    CHECK(ibv_dealloc_pd(domain) == EBUSY);
    CHECK(ibv_dereg_mr(region) == 0);
    CHECK(ibv_dealloc_pd(domain) == 0);
  }
}

TEST_CASE("the handle of a parent domain imports the domain below") {
  const open_context opened;
  imported_context other(opened.verbs);
  ibv_pd* const below = ibv_alloc_pd(other.verbs);
  ibv_parent_domain_init_attr attributes{};
  attributes.pd = below;
  ibv_pd* const parent = ibv_alloc_parent_domain(other.verbs, &attributes);
  REQUIRE(parent != nullptr);
  ibv_pd* const same = ibv_import_pd(opened.verbs, parent->handle);
  REQUIRE(same != nullptr);
  CHECK(same->handle == below->handle);
  std::array<char, 64> memory{};
  ibv_mr* const region = ibv_reg_mr(parent, memory.data(), memory.size(), rights);
  REQUIRE(region != nullptr);
  attributes.pd = parent;
  ibv_pd* const grandparent = ibv_alloc_parent_domain(other.verbs, &attributes);
  REQUIRE(grandparent != nullptr);
  ibv_mr* const through_two = ibv_reg_mr(grandparent, memory.data(), memory.size(), rights);
  REQUIRE(through_two != nullptr);
  // The parent domains end together with their context. Their regions move to the object that
  // remains for the domain below them.
  other.close();
  CHECK(region->pd == same);
  CHECK(through_two->pd == same);
  CHECK(ibv_dereg_mr(through_two) == 0);
  CHECK(ibv_dealloc_pd(same) == EBUSY);
  CHECK(ibv_dereg_mr(region) == 0);
  CHECK(ibv_dealloc_pd(same) == 0);
}

TEST_CASE("an imported region has the same keys and no address") {
  connection link;
  endpoint& owner = link.right;
  const imported_context imported(owner.context);
  ibv_pd* const domain = ibv_import_pd(imported.verbs, owner.domain->handle);
  REQUIRE(domain != nullptr);
  std::array<char, 64> memory{};
  ibv_mr* const region = ibv_reg_mr(owner.domain, memory.data(), memory.size(), rights);
  REQUIRE(region != nullptr);
  ibv_mr* const same = ibv_import_mr(domain, region->handle);
  REQUIRE(same != nullptr);
  CHECK(same->addr == nullptr);
  CHECK(same->length == region->length);
  CHECK(same->lkey == region->lkey);
  CHECK(same->rkey == region->rkey);
  CHECK(same->handle == region->handle);
  CHECK(same->pd == domain);
  CHECK(same->context == imported.verbs);
  errno = 0;
  CHECK(ibv_rereg_mr(same, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, 0) ==
        IBV_REREG_MR_ERR_INPUT);
  CHECK(errno == EINVAL);

  address there = owner.here();
  there.memory = reinterpret_cast<std::uintptr_t>(memory.data());
  there.rkey = same->rkey;
  const auto write = [&] {
    REQUIRE(link.left.write(1, {link.left.piece(0, 8)}, there) == 0);
    return link.left.wait().status;
  };
  link.left.memory[0] = 'x';
  CHECK(write() == IBV_WC_SUCCESS);
  CHECK(memory[0] == 'x');
  SECTION("unimporting has no other effect") {
    ibv_unimport_mr(same);
    CHECK(write() == IBV_WC_SUCCESS);
    ibv_unimport_mr(region);
    CHECK(write() == IBV_WC_SUCCESS);
    ibv_mr* const again = ibv_import_mr(domain, region->handle);
    REQUIRE(again != nullptr);
    CHECK(ibv_dereg_mr(again) == 0);
    CHECK(write() == IBV_WC_REM_ACCESS_ERR);
  }
  SECTION("deregistering any of the objects deregisters the region") {
    CHECK(ibv_dereg_mr(same) == 0);
    CHECK(ibv_dereg_mr(region) == ENOENT);
    CHECK(refusal([&] { return ibv_import_mr(domain, region->handle); }) == ENOENT);
    CHECK(write() == IBV_WC_REM_ACCESS_ERR);
    ibv_unimport_mr(region);
  }
  SECTION("the owner's object may be destroyed first") {
    CHECK(ibv_dereg_mr(region) == 0);
    CHECK(ibv_dereg_mr(same) == ENOENT);
    ibv_unimport_mr(same);
  }
  SECTION("bound windows keep the region busy, whichever object is used") {
    ibv_mw* const window = ibv_alloc_mw(domain, IBV_MW_TYPE_1);
    REQUIRE(window != nullptr);
    ibv_mw_bind binding{};
    binding.send_flags = IBV_SEND_SIGNALED;
    binding.bind_info = {same, there.memory, 8, IBV_ACCESS_REMOTE_WRITE};
    REQUIRE(ibv_bind_mw(owner.pair, window, &binding) == 0);
    CHECK(owner.wait().status == IBV_WC_SUCCESS);
    CHECK(ibv_dereg_mr(region) == EBUSY);
    CHECK(ibv_dereg_mr(same) == EBUSY);
    CHECK(write() == IBV_WC_SUCCESS);
    CHECK(ibv_dealloc_mw(window) == 0);
    CHECK(ibv_dereg_mr(same) == 0);
    ibv_unimport_mr(region);
  }
}

TEST_CASE("queue pairs of an imported context serve the regions of the other context") {
  // Some programs work in this way: one process has the memory, and others have the queue pairs.
  endpoint owner;
  const imported_context imported(owner.context);
  ibv_pd* const domain = ibv_import_pd(imported.verbs, owner.domain->handle);
  ibv_cq* const queue = ibv_create_cq(imported.verbs, 16, nullptr, nullptr, 0);
  REQUIRE(domain != nullptr);
  REQUIRE(queue != nullptr);
  {
    ibv_context* const context = std::exchange(owner.context, imported.verbs);
    ibv_pd* const own_domain = std::exchange(owner.domain, domain);
    ibv_cq* const own_queue = std::exchange(owner.queue, queue);
    endpoint server(options{.host = &owner});
    owner.context = context;
    owner.domain = own_domain;
    owner.queue = own_queue;

    endpoint client;
    client.connect(server.here());
    server.connect(client.here());
    client.memory[0] = 'c';
    REQUIRE(client.write(1, {client.piece(0, 8)}, owner.here()) == 0);
    CHECK(client.wait().status == IBV_WC_SUCCESS);
    CHECK(owner.memory[0] == 'c');
    // Sends from the same memory, with the lkey of a region that was imported.
    ibv_mr* const region = ibv_import_mr(domain, owner.region->handle);
    REQUIRE(region != nullptr);
    REQUIRE(client.post_receive(2, {client.piece(100, 8)}) == 0);
    const auto start = reinterpret_cast<std::uintptr_t>(owner.memory.data());
    REQUIRE(server.send(2, {ibv_sge{start, 8, region->lkey}}) == 0);
    CHECK(client.wait().status == IBV_WC_SUCCESS);
    CHECK(client.memory[100] == 'c');
    ibv_unimport_mr(region);
  }
  CHECK(ibv_destroy_cq(queue) == 0);
  ibv_unimport_pd(domain);
}

TEST_CASE("the objects of a command file exist until its last context is closed") {
  auto first = std::make_unique<open_context>();
  imported_context other(first->verbs);
  std::array<char, 64> memory{};
  std::uint32_t handle = 0;
  {
    ibv_pd* const domain = ibv_alloc_pd(first->verbs);
    REQUIRE(domain != nullptr);
    ibv_mr* const region = ibv_reg_mr(domain, memory.data(), memory.size(), rights);
    REQUIRE(region != nullptr);
    handle = region->handle;
    ibv_alloc_dm_attr attributes{64, 0, 0};
    ibv_dm* const device_memory = ibv_alloc_dm(first->verbs, &attributes);
    REQUIRE(device_memory != nullptr);
    REQUIRE(ibv_memcpy_to_dm(device_memory, 0, "left", 4) == 0);
    ibv_dm* const same = ibv_import_dm(other.verbs, device_memory->handle);
    REQUIRE(same != nullptr);
    ibv_pd* const imported = ibv_import_pd(other.verbs, domain->handle);
    REQUIRE(imported != nullptr);
    // The context in which the window is created is closed, but the domain to which it belongs
    // remains.
    REQUIRE(ibv_alloc_mw(domain, IBV_MW_TYPE_1) != nullptr);
    first.reset();

    std::array<char, 4> text{};
    CHECK(ibv_memcpy_from_dm(text.data(), same, 0, 4) == 0);
    CHECK(std::equal(text.begin(), text.end(), "left"));
    ibv_mr* const again = ibv_import_mr(imported, handle);
    REQUIRE(again != nullptr);
    CHECK(ibv_dealloc_pd(imported) == EBUSY);
    CHECK(ibv_dereg_mr(again) == 0);
    CHECK(ibv_free_dm(same) == 0);
    CHECK(ibv_dealloc_pd(imported) == 0);
  }
}

TEST_CASE("imported device memory is the same memory and is busy while it has a region") {
  const endpoint end;
  const imported_context imported(end.context);
  ibv_alloc_dm_attr attributes{4096, 0, 0};
  ibv_dm* const memory = ibv_alloc_dm(end.context, &attributes);
  REQUIRE(memory != nullptr);
  ibv_dm* const same = ibv_import_dm(imported.verbs, memory->handle);
  REQUIRE(same != nullptr);
  CHECK(same->context == imported.verbs);
  REQUIRE(ibv_memcpy_to_dm(memory, 4000, "here", 4) == 0);
  std::array<char, 4> text{};
  CHECK(ibv_memcpy_from_dm(text.data(), same, 4000, 4) == 0);
  CHECK(std::equal(text.begin(), text.end(), "here"));
  ibv_pd* const domain = ibv_import_pd(imported.verbs, end.domain->handle);
  REQUIRE(domain != nullptr);
  ibv_mr* const region = ibv_reg_dm_mr(domain, same, 0, 64, IBV_ACCESS_ZERO_BASED);
  REQUIRE(region != nullptr);
  CHECK(ibv_free_dm(memory) == EBUSY);
  CHECK(ibv_free_dm(same) == EBUSY);
  CHECK(ibv_dereg_mr(region) == 0);
  SECTION("it is freed through the imported object") {
    CHECK(ibv_free_dm(same) == 0);
    CHECK(ibv_free_dm(memory) == ENOENT);
    CHECK(ibv_memcpy_from_dm(text.data(), memory, 0, 4) == EFAULT);
    CHECK(refusal([&] {
            return ibv_reg_dm_mr(end.domain, memory, 0, 64, IBV_ACCESS_ZERO_BASED);
          }) == EINVAL);
    ibv_unimport_dm(memory);
  }
  SECTION("it is unimported and freed through the other object") {
    ibv_unimport_dm(same);
    CHECK(ibv_free_dm(memory) == 0);
  }
  ibv_unimport_pd(domain);
}

TEST_CASE("importing and unimporting leaks nothing") {
  const endpoint end;
  ibv_device_attr device{};
  REQUIRE(ibv_query_device(end.context, &device) == 0);
  const imported_context imported(end.context);
  for (int round = 0; round < device.max_pd + device.max_mr; ++round) {
    ibv_pd* const domain = ibv_import_pd(imported.verbs, end.domain->handle);
    ibv_mr* const region = domain == nullptr ? nullptr : ibv_import_mr(domain, end.region->handle);
    if (region == nullptr) FAIL(round);
    ibv_unimport_mr(region);
    ibv_unimport_pd(domain);
  }
  ibv_pd* const own = ibv_alloc_pd(imported.verbs);
  REQUIRE(own != nullptr);
  CHECK(ibv_dealloc_pd(own) == 0);
}

TEST_CASE("importing and destroying through the imported object leaks nothing") {
  const endpoint end;
  ibv_device_attr device{};
  REQUIRE(ibv_query_device(end.context, &device) == 0);
  const imported_context imported(end.context);
  // There are more rounds than objects that may exist at the same time, so if one leaked in each
  // round, a round would fail. Each round unimports the original object, alternately before and
  // after the imported one is destroyed.
  for (int round = 0; round < device.max_pd + 10; ++round) {
    ibv_pd* const domain = ibv_alloc_pd(end.context);
    ibv_pd* const same =
        domain == nullptr ? nullptr : ibv_import_pd(imported.verbs, domain->handle);
    if (same == nullptr) FAIL(round);
    if (round % 2 == 0) ibv_unimport_pd(domain);
    REQUIRE(ibv_dealloc_pd(same) == 0);
    if (round % 2 != 0) ibv_unimport_pd(domain);
  }
  ibv_alloc_dm_attr attributes{4096, 0, 0};
  for (int round = 0; round < 3000; ++round) {
    ibv_dm* const memory = ibv_alloc_dm(end.context, &attributes);
    ibv_dm* const same =
        memory == nullptr ? nullptr : ibv_import_dm(imported.verbs, memory->handle);
    if (same == nullptr) FAIL(round);
    if (round % 2 == 0) ibv_unimport_dm(memory);
    REQUIRE(ibv_free_dm(same) == 0);
    if (round % 2 != 0) ibv_unimport_dm(memory);
  }
}

TEST_CASE("the structures of a destroyed domain are freed") {
  const open_context opened;
  const imported_context imported(opened.verbs);
  const auto memory_in_use = [] { return ::mallinfo2().uordblks; };
  const auto one_round = [&] {
    ibv_pd* const domain = ibv_alloc_pd(opened.verbs);
    REQUIRE(domain != nullptr);
    ibv_pd* const same = ibv_import_pd(imported.verbs, domain->handle);
    REQUIRE(same != nullptr);
    ibv_unimport_pd(same);
    REQUIRE(ibv_dealloc_pd(domain) == 0);
  };
  one_round();
  const std::size_t before = memory_in_use();
  constexpr std::size_t rounds = 1000;
  for (std::size_t round = 0; round < rounds; ++round) one_round();
  // With a sanitizer's allocator, `memory_in_use` always returns 0.
  CHECK(memory_in_use() < before + rounds * 64);
}

TEST_CASE("imported objects don't count towards the limits", "[.][differ]") {
  // soft1 has only two protection domains.
  const open_context device("soft1");
  imported_context imported(device.verbs);
  ibv_pd* const domain = ibv_alloc_pd(device.verbs);
  REQUIRE(domain != nullptr);
  for (int each = 0; each < 3; ++each)
    CHECK(ibv_import_pd(imported.verbs, domain->handle) != nullptr);
  ibv_pd* const second = ibv_alloc_pd(device.verbs);
  REQUIRE(second != nullptr);
  CHECK(refusal([&] { return ibv_alloc_pd(device.verbs); }) == ENOMEM);
  CHECK(ibv_dealloc_pd(second) == 0);
  imported.close();
  CHECK(ibv_dealloc_pd(domain) == 0);
}

TEST_CASE("importing a region through a destroyed domain fails") {
  const endpoint end;
  const imported_context imported(end.context);
  ibv_pd* const domain = ibv_alloc_pd(end.context);
  REQUIRE(domain != nullptr);
  ibv_pd* const same = ibv_import_pd(imported.verbs, domain->handle);
  REQUIRE(same != nullptr);
  CHECK(ibv_dealloc_pd(same) == 0);
  CHECK(refusal([&] { return ibv_import_mr(domain, end.region->handle); }) == EINVAL);
  CHECK(refusal([&] { return ibv_import_mr(domain, ~0U); }) == EINVAL);
  ibv_unimport_pd(domain);
}

TEST_CASE("contexts of a command file can be closed concurrently") {
  for (int round = 0; round < 20; ++round) {
    ibv_context* const first = open_device("soft0");
    std::vector<ibv_context*> contexts{first};
    for (int each = 0; each < 2; ++each)
      contexts.push_back(ibv_import_device(::fcntl(first->cmd_fd, F_DUPFD_CLOEXEC, 0)));
    std::array<char, 64> memory{};
    for (ibv_context* context : contexts) {
      REQUIRE(context != nullptr);
      for (int each = 0; each < 20; ++each) {
        ibv_pd* const domain = ibv_alloc_pd(context);
        REQUIRE(domain != nullptr);
        REQUIRE(ibv_import_pd(contexts.back(), domain->handle) != nullptr);
        ibv_mr* const region = ibv_reg_mr(domain, memory.data(), memory.size(), rights);
        REQUIRE(region != nullptr);
        REQUIRE(ibv_import_mr(domain, region->handle) != nullptr);
      }
      for (int each = 0; each < 100; ++each)
        REQUIRE(ibv_create_cq(context, 4, nullptr, nullptr, 0) != nullptr);
    }
    std::vector<std::thread> closing;
    for (ibv_context* context : contexts)
      closing.emplace_back([context] { ibv_close_device(context); });
    for (std::thread& each : closing) each.join();
  }
}

TEST_CASE("one thread can free device memory while another registers a region of it") {
  const endpoint end;
  const imported_context imported(end.context);
  int wrong = 0;
  for (int round = 0; round < 500; ++round) {
    ibv_alloc_dm_attr attributes{64, 0, 0};
    ibv_dm* const memory = ibv_alloc_dm(end.context, &attributes);
    REQUIRE(memory != nullptr);
    ibv_dm* const same = ibv_import_dm(imported.verbs, memory->handle);
    REQUIRE(same != nullptr);
    ibv_mr* region = nullptr;
    std::thread registering(
        [&] { region = ibv_reg_dm_mr(end.domain, memory, 0, 64, IBV_ACCESS_ZERO_BASED); });
    const int freed = ibv_free_dm(same);
    registering.join();
    if (freed != (region == nullptr ? 0 : EBUSY)) ++wrong;
    if (region != nullptr) {
      CHECK(ibv_dereg_mr(region) == 0);
      if (freed != 0) CHECK(ibv_free_dm(same) == 0);
    }
    ibv_unimport_dm(memory);
  }
  CHECK(wrong == 0);
}

TEST_CASE("the domains of a closed context belong to the remaining context") {
  const open_context opened;
  imported_context other(opened.verbs);
  std::array<char, 64> memory{};
  constexpr int count = 2000;
  std::vector<std::uint32_t> domains;
  std::vector<std::uint32_t> regions;
  std::vector<ibv_pd*> twins;
  for (int each = 0; each < count; ++each) {
    ibv_pd* const domain = ibv_alloc_pd(other.verbs);
    REQUIRE(domain != nullptr);
    domains.push_back(domain->handle);
    // Half of the domains are also imported into another context.
    if (each % 2 == 0) twins.push_back(ibv_import_pd(opened.verbs, domain->handle));
    ibv_mr* const region = ibv_reg_mr(domain, memory.data(), memory.size(), rights);
    REQUIRE(region != nullptr);
    regions.push_back(region->handle);
  }
  other.close();
  for (int each = 0; each < count; ++each) {
    const auto at = static_cast<std::size_t>(each);
    ibv_pd* const domain = each % 2 == 0 ? twins[at / 2] : ibv_import_pd(opened.verbs, domains[at]);
    REQUIRE(domain != nullptr);
    REQUIRE(ibv_dealloc_pd(domain) == EBUSY);
    ibv_mr* const region = ibv_import_mr(domain, regions[at]);
    REQUIRE(region != nullptr);
    REQUIRE(ibv_dereg_mr(region) == 0);
    REQUIRE(ibv_dealloc_pd(domain) == 0);
  }
}

TEST_CASE("faults set for the program's calls don't affect libibverbs' own calls") {
  REQUIRE(softverbs_inject("ibv_get_device_list=ENOMEM") == 0);
  const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  CHECK(refusal([null] { return ibv_import_device(null); }) != 0);
  CHECK(::close(null) == 0);
  CHECK(softverbs_faults_struck() == 0);
  CHECK(refusal([] { return ibv_get_device_list(nullptr); }) == ENOMEM);
  softverbs_reset_faults();
}
