// SPDX-License-Identifier: Apache-2.0
#include "catch.hpp"
#include "support/fabric.hpp"
#include "support/xrc.hpp"

#include <sys/mman.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <map>
#include <set>
#include <utility>

namespace {

ibv_pd* parent_of(ibv_pd* domain, ibv_td* thread = nullptr) {
  ibv_parent_domain_init_attr attributes{};
  attributes.pd = domain;
  attributes.td = thread;
  ibv_pd* parent = ibv_alloc_parent_domain(domain->context, &attributes);
  REQUIRE(parent != nullptr);
  CHECK(parent->context == domain->context);
  return parent;
}

ibv_td* thread_domain_of(ibv_context* context) {
  ibv_td_init_attr attributes{};
  ibv_td* thread = ibv_alloc_td(context, &attributes);
  REQUIRE(thread != nullptr);
  CHECK(thread->context == context);
  return thread;
}

/// Replaces the queue pair of an endpoint with an unconnected one in another protection domain.
void move_to(endpoint& end, ibv_pd* domain) {
  REQUIRE(ibv_destroy_qp(end.pair) == 0);
  ibv_qp_init_attr attributes{};
  attributes.send_cq = attributes.recv_cq = end.queue;
  attributes.srq = end.shared;
  attributes.qp_type = end.wanted.type;
  attributes.cap = end.granted;
  end.pair = ibv_create_qp(domain, &attributes);
  REQUIRE(end.pair != nullptr);
  CHECK(end.pair->pd == domain);
}

/// Writes from one part of the endpoint's memory to another, over a connection that leads back to
/// the endpoint itself.
ibv_wc_status write_to_itself(endpoint& end) {
  REQUIRE(end.write(1, {end.piece(0, 8)}, end.here(), 64) == 0);
  return end.wait().status;
}

/// An allocator that the program provides for the memory of queues. It records the address and the
/// type of each allocation.
struct program_memory {
  ibv_pd* domain = nullptr;
  std::map<void*, std::uint64_t> pieces;
  std::set<std::uint64_t> contents;
  bool is_used_up = false;
  bool leaves_it_to_device = false;
  /// Unless it is empty, this function is called once, during the next allocation.
  std::function<void()> meanwhile;
  int mistakes = 0;
};

void* allocate(ibv_pd* domain, void* context, std::size_t size, std::size_t alignment,
               std::uint64_t content) {
  auto& all = *static_cast<program_memory*>(context);
  if (all.is_used_up) return nullptr;
  if (all.leaves_it_to_device) return IBV_ALLOCATOR_USE_DEFAULT;
  if (all.domain != nullptr && domain != all.domain) ++all.mistakes;
  if (const auto happens = std::exchange(all.meanwhile, nullptr)) happens();
  // An allocator may call verbs, so this one does.
  ibv_device_attr attributes{};
  ibv_pd* other = ibv_alloc_pd(domain->context);
  if (ibv_query_device(domain->context, &attributes) != 0 || ibv_dealloc_pd(other) != 0)
    ++all.mistakes;
  void* memory = nullptr;
  if (::posix_memalign(&memory, alignment, size) != 0) return nullptr;
  all.pieces.emplace(memory, content);
  all.contents.insert(content);
  return memory;
}

void give_back(ibv_pd* domain, void* context, void* memory, std::uint64_t content) {
  auto& all = *static_cast<program_memory*>(context);
  if (domain != all.domain) ++all.mistakes;
  ibv_pd* other = ibv_alloc_pd(domain->context);
  if (ibv_dealloc_pd(other) != 0) ++all.mistakes;
  const auto found = all.pieces.find(memory);
  if (found == all.pieces.end() || found->second != content) {
    ++all.mistakes;
    return;
  }
  all.pieces.erase(found);
  ::free(memory);
}

/// Creates a parent domain that uses the allocator of the program.
ibv_pd* allocating_parent_of(ibv_pd* domain, program_memory& context) {
  ibv_parent_domain_init_attr attributes{};
  attributes.pd = domain;
  attributes.comp_mask =
      IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS | IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT;
  attributes.alloc = allocate;
  attributes.free = give_back;
  attributes.pd_context = &context;
  context.domain = ibv_alloc_parent_domain(domain->context, &attributes);
  REQUIRE(context.domain != nullptr);
  return context.domain;
}

/// Memory that the program provides for queues. A single call can revoke access to all of it.
class arena {
 public:
  arena()
      : start_(static_cast<std::byte*>(
            ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))) {
    REQUIRE(start_ != MAP_FAILED);
  }
  arena(const arena&) = delete;
  arena& operator=(const arena&) = delete;
  ~arena() { ::munmap(start_, bytes); }

  ibv_pd* parent_of(ibv_pd* domain) {
    ibv_parent_domain_init_attr attributes{};
    attributes.pd = domain;
    attributes.comp_mask =
        IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS | IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT;
    attributes.alloc = [](ibv_pd*, void* context, std::size_t size, std::size_t alignment,
                          std::uint64_t) -> void* {
      return static_cast<arena*>(context)->take(size, alignment);
    };
    attributes.free = [](ibv_pd*, void* context, void*, std::uint64_t) {
      ++static_cast<arena*>(context)->given_back_;
    };
    attributes.pd_context = this;
    return ibv_alloc_parent_domain(domain->context, &attributes);
  }

  /// After this call, any access crashes.
  void take_away() { REQUIRE(::mprotect(start_, bytes, PROT_NONE) == 0); }
  std::size_t used() const { return used_; }
  int given_back() const { return given_back_; }

 private:
  static constexpr std::size_t bytes = 1 << 20;

  void* take(std::size_t size, std::size_t alignment) {
    used_ = (used_ + alignment - 1) / alignment * alignment;
    if (size > bytes - used_) return nullptr;
    return start_ + std::exchange(used_, used_ + size);
  }

  std::byte* start_;
  std::size_t used_ = 0;
  int given_back_ = 0;
};

ibv_cq* completions_of(ibv_pd* parent) {
  ibv_cq_init_attr_ex asked{};
  asked.cqe = 4;
  asked.comp_mask = IBV_CQ_INIT_ATTR_MASK_PD;
  asked.parent_domain = parent;
  ibv_cq_ex* queue = ibv_create_cq_ex(parent->context, &asked);
  REQUIRE(queue != nullptr);
  return ibv_cq_ex_to_cq(queue);
}

}  // namespace

TEST_CASE("objects of a parent domain and of the domain below it can be combined") {
  endpoint end;
  ibv_pd* parent = parent_of(end.domain);
  end.memory[0] = 7;

  SECTION("memory of the domain and a queue pair of the parent") {
    move_to(end, parent);
    end.connect(end.here());
    CHECK(write_to_itself(end) == IBV_WC_SUCCESS);
    CHECK(end.memory[64] == 7);
  }
  SECTION("memory of the parent and a queue pair of the domain") {
    REQUIRE(ibv_rereg_mr(end.region, IBV_REREG_MR_CHANGE_PD, parent, nullptr, 0, 0) == 0);
    CHECK(end.region->pd == parent);
    end.connect(end.here());
    CHECK(write_to_itself(end) == IBV_WC_SUCCESS);
    CHECK(end.memory[64] == 7);
    REQUIRE(ibv_rereg_mr(end.region, IBV_REREG_MR_CHANGE_PD, end.domain, nullptr, 0, 0) == 0);
  }
  SECTION("two parents of one domain") {
    ibv_pd* other = parent_of(end.domain);
    REQUIRE(ibv_rereg_mr(end.region, IBV_REREG_MR_CHANGE_PD, other, nullptr, 0, 0) == 0);
    move_to(end, parent);
    end.connect(end.here());
    CHECK(write_to_itself(end) == IBV_WC_SUCCESS);
    REQUIRE(ibv_rereg_mr(end.region, IBV_REREG_MR_CHANGE_PD, end.domain, nullptr, 0, 0) == 0);
    CHECK(ibv_dealloc_pd(other) == 0);
  }
  SECTION("objects of another domain can't be combined with them") {
    ibv_pd* stranger = ibv_alloc_pd(end.context);
    ibv_pd* parent_of_stranger = parent_of(stranger);
    move_to(end, parent_of_stranger);
    end.connect(end.here());
    CHECK(write_to_itself(end) == IBV_WC_LOC_PROT_ERR);
    move_to(end, end.domain);
    CHECK(ibv_dealloc_pd(parent_of_stranger) == 0);
    CHECK(ibv_dealloc_pd(stranger) == 0);
  }
  if (end.pair->pd == parent) move_to(end, end.domain);
  CHECK(ibv_dealloc_pd(parent) == 0);
}

TEST_CASE("windows and shared receives of a domain work with a queue pair of its parent domain") {
  options wants;
  wants.region_access |= IBV_ACCESS_MW_BIND;
  endpoint left(wants);
  wants.shared_receives = true;
  endpoint right(wants);
  ibv_pd* parent = parent_of(right.domain);
  move_to(right, parent);
  left.connect(right.here());
  right.connect(left.here());
  left.memory[0] = 9;

  ibv_mw* window = ibv_alloc_mw(right.domain, IBV_MW_TYPE_1);
  REQUIRE(window != nullptr);
  ibv_mw_bind binding{};
  binding.wr_id = 1;
  binding.send_flags = IBV_SEND_SIGNALED;
  binding.bind_info = {right.region, right.piece(0, 64).addr, 64, IBV_ACCESS_REMOTE_WRITE};
  REQUIRE(ibv_bind_mw(right.pair, window, &binding) == 0);
  CHECK(right.wait().status == IBV_WC_SUCCESS);
  address there = right.here();
  there.rkey = window->rkey;
  REQUIRE(left.write(2, {left.piece(0, 8)}, there) == 0);
  CHECK(left.wait().status == IBV_WC_SUCCESS);
  CHECK(right.memory[0] == 9);
  CHECK(ibv_dealloc_mw(window) == 0);

  REQUIRE(right.post_receive(3, {right.piece(128, 64)}) == 0);
  REQUIRE(left.send(4, {left.piece(0, 8)}) == 0);
  const ibv_wc received = right.wait();
  CHECK(received.status == IBV_WC_SUCCESS);
  CHECK(received.wr_id == 3);
  CHECK(right.memory[128] == 9);
  move_to(right, right.domain);
  CHECK(ibv_dealloc_pd(parent) == 0);
}

TEST_CASE("a datagram queue pair of a parent domain can use an address handle of its domain") {
  endpoint end(options{.type = IBV_QPT_UD});
  ibv_pd* parent = parent_of(end.domain);
  move_to(end, parent);
  end.connect(end.here());
  ibv_ah_attr path = end.address_of(end.here());
  ibv_ah* handle = ibv_create_ah(end.domain, &path);
  REQUIRE(handle != nullptr);
  REQUIRE(end.send_to(handle, end.pair->qp_num, 1, {end.piece(0, 8)}) == 0);
  CHECK(end.wait().status == IBV_WC_SUCCESS);
  CHECK(ibv_destroy_ah(handle) == 0);
  move_to(end, end.domain);
  CHECK(ibv_dealloc_pd(parent) == 0);
}

TEST_CASE("domains are busy until all of their objects are destroyed") {
  open_context device;
  ibv_pd* domain = ibv_alloc_pd(device.verbs);
  ibv_td* thread = thread_domain_of(device.verbs);
  ibv_pd* parent = parent_of(domain, thread);
  ibv_pd* grandparent = parent_of(parent);
  CHECK(ibv_dealloc_pd(domain) == EBUSY);
  CHECK(ibv_dealloc_td(thread) == EBUSY);
  CHECK(ibv_dealloc_pd(parent) == EBUSY);
  CHECK(ibv_dealloc_pd(grandparent) == 0);
  char byte = 0;
  ibv_mr* region = ibv_reg_mr(parent, &byte, 1, 0);
  REQUIRE(region != nullptr);
  CHECK(ibv_dealloc_pd(parent) == EBUSY);
  CHECK(ibv_dereg_mr(region) == 0);
  CHECK(ibv_dealloc_pd(parent) == 0);
  CHECK(ibv_dealloc_td(thread) == 0);
  CHECK(ibv_dealloc_pd(domain) == 0);
  // Closing the device destroys the remaining objects.
  parent_of(ibv_alloc_pd(device.verbs), thread_domain_of(device.verbs));
}

TEST_CASE("invalid domains are refused") {
  open_context device;
  open_context other;
  ibv_pd* domain = ibv_alloc_pd(device.verbs);
  ibv_td_init_attr unknown{1};
  CHECK(refusal([&] { return ibv_alloc_td(device.verbs, &unknown); }) == EINVAL);
  const auto attempt = [&](auto change) {
    ibv_parent_domain_init_attr attributes{};
    attributes.pd = domain;
    change(attributes);
    errno = 0;
    return ibv_alloc_parent_domain(device.verbs, &attributes) == nullptr ? errno : 0;
  };
  CHECK(attempt([](auto& to) { to.pd = nullptr; }) == EINVAL);
  CHECK(attempt([&](auto& to) { to.pd = ibv_alloc_pd(other.verbs); }) == EINVAL);
  CHECK(attempt([&](auto& to) { to.td = thread_domain_of(other.verbs); }) == EINVAL);
  CHECK(attempt([](auto& to) { to.comp_mask = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS; }) == EINVAL);
  CHECK(attempt([](auto& to) {
          to.comp_mask = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS;
          to.alloc = allocate;
        }) == EINVAL);
  CHECK(attempt([](auto& to) { to.comp_mask = 1U << 31; }) == EOPNOTSUPP);
  CHECK(attempt([](auto& to) { to.comp_mask = IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT; }) == 0);
}

TEST_CASE("queues of a parent domain use memory of the program's allocator") {
  program_memory memory;
  endpoint end;
  ibv_pd* parent = allocating_parent_of(end.domain, memory);
  memory.leaves_it_to_device = GENERATE(false, true);
  const auto is_there = [&] { return memory.leaves_it_to_device == memory.pieces.empty(); };

  move_to(end, parent);
  CHECK(is_there());
  end.connect(end.here());
  end.memory[0] = 7;
  CHECK(write_to_itself(end) == IBV_WC_SUCCESS);
  REQUIRE(end.post_receive(2, {end.piece(128, 64)}) == 0);
  REQUIRE(end.send(3, {end.piece(0, 8)}) == 0);
  end.wait();
  end.wait();
  CHECK(end.memory[64] == 7);
  CHECK(end.memory[128] == 7);
  move_to(end, end.domain);
  CHECK(memory.pieces.empty());

  ibv_cq_init_attr_ex asked{};
  asked.cqe = 4;
  asked.comp_mask = IBV_CQ_INIT_ATTR_MASK_PD;
  asked.parent_domain = parent;
  ibv_cq_ex* queue = ibv_create_cq_ex(end.context, &asked);
  REQUIRE(queue != nullptr);
  CHECK(is_there());
  CHECK(ibv_resize_cq(ibv_cq_ex_to_cq(queue), 1000) == 0);
  CHECK(memory.pieces.size() <= 1);
  CHECK(ibv_destroy_cq(ibv_cq_ex_to_cq(queue)) == 0);
  CHECK(memory.pieces.empty());

  ibv_srq_init_attr wanted{};
  wanted.attr = {16, 1, 0};
  ibv_srq* shared = ibv_create_srq(parent, &wanted);
  REQUIRE(shared != nullptr);
  CHECK(is_there());
  wanted.attr.max_wr = 100;
  CHECK(ibv_modify_srq(shared, &wanted.attr, IBV_SRQ_MAX_WR) == 0);
  CHECK(ibv_destroy_srq(shared) == 0);
  CHECK(memory.pieces.empty());

  CHECK(memory.contents.size() == (memory.leaves_it_to_device ? 0 : 3));
  CHECK(memory.mistakes == 0);
  CHECK(ibv_dealloc_pd(parent) == 0);
}

TEST_CASE("a queue can't be created if the program's allocator fails") {
  program_memory memory;
  open_context device;
  ibv_pd* domain = ibv_alloc_pd(device.verbs);
  ibv_pd* parent = allocating_parent_of(domain, memory);
  ibv_cq* completions = ibv_create_cq(device.verbs, 4, nullptr, nullptr, 0);
  REQUIRE(completions != nullptr);
  memory.is_used_up = true;
  ibv_qp_init_attr pair = pair_with(completions, {4, 4, 1, 1, 0});
  CHECK(refusal([&] { return ibv_create_qp(parent, &pair); }) == ENOMEM);
  ibv_srq_init_attr shared{};
  shared.attr = {16, 1, 0};
  CHECK(refusal([&] { return ibv_create_srq(parent, &shared); }) == ENOMEM);
  ibv_cq_init_attr_ex queue{};
  queue.cqe = 4;
  queue.comp_mask = IBV_CQ_INIT_ATTR_MASK_PD;
  queue.parent_domain = parent;
  CHECK(refusal([&] { return ibv_create_cq_ex(device.verbs, &queue); }) == ENOMEM);
  CHECK(memory.pieces.empty());
  CHECK(ibv_dealloc_pd(parent) == 0);
}

TEST_CASE("a resized shared queue keeps concurrent changes of its limit") {
  program_memory memory;
  endpoint end;
  ibv_srq_init_attr wanted{};
  wanted.attr = {64, 1, 0};
  end.shared = ibv_create_srq(allocating_parent_of(end.domain, memory), &wanted);
  REQUIRE(end.shared != nullptr);
  const auto set_limit = [&](std::uint32_t limit) {
    ibv_srq_attr attributes{0, 0, limit};
    return ibv_modify_srq(end.shared, &attributes, IBV_SRQ_LIMIT);
  };
  const auto resize = [&](std::uint32_t requests) {
    ibv_srq_attr attributes{requests, 0, 0};
    return ibv_modify_srq(end.shared, &attributes, IBV_SRQ_MAX_WR);
  };
  ibv_srq_attr after{};

  SECTION("the limit was set") {
    memory.meanwhile = [&] { memory.mistakes += set_limit(5); };
    CHECK(resize(128) == 0);
    REQUIRE(ibv_query_srq(end.shared, &after) == 0);
    CHECK(after.max_wr == 255);
    CHECK(after.srq_limit == 5);
  }
  SECTION("the limit was set higher than the requested size") {
    memory.meanwhile = [&] { memory.mistakes += set_limit(20); };
    CHECK(resize(15) == EINVAL);
    REQUIRE(ibv_query_srq(end.shared, &after) == 0);
    CHECK(after.max_wr == 127);
    CHECK(after.srq_limit == 20);
  }
  SECTION("the limit was reached") {
    move_to(end, end.domain);
    end.connect(end.here());
    REQUIRE(end.post_receive(1, {end.piece(128, 64)}) == 0);
    REQUIRE(set_limit(1) == 0);
    memory.meanwhile = [&] {
      memory.mistakes += end.send(2, {end.piece(0, 8)});
      end.wait();
      end.wait();
      CHECK(end.event().event_type == IBV_EVENT_SRQ_LIMIT_REACHED);
    };
    CHECK(resize(128) == 0);
    REQUIRE(ibv_query_srq(end.shared, &after) == 0);
    CHECK(after.max_wr == 255);
    CHECK(after.srq_limit == 0);
  }
  CHECK(memory.mistakes == 0);
}

TEST_CASE("closing a device does not free the memory of queues that the program did not destroy") {
  program_memory memory;
  {
    open_context device;
    ibv_srq_init_attr wanted{};
    wanted.attr = {16, 1, 0};
    REQUIRE(ibv_create_srq(allocating_parent_of(ibv_alloc_pd(device.verbs), memory), &wanted) !=
            nullptr);
  }
  CHECK_FALSE(memory.pieces.empty());
  for (const auto& piece : memory.pieces) ::free(piece.first);
}

TEST_CASE("a device can be closed after the memory of its queues became inaccessible") {
  arena memory;
  ibv_context* verbs = open_device("soft0");
  ibv_pd* parent = memory.parent_of(ibv_alloc_pd(verbs));
  REQUIRE(parent != nullptr);
  ibv_cq* queue = completions_of(parent);
  ibv_qp_init_attr pair{};
  pair.send_cq = pair.recv_cq = queue;
  pair.cap = {4, 4, 1, 1, 16};
  for (const ibv_qp_type type : {IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD}) {
    pair.qp_type = type;
    REQUIRE(ibv_create_qp(parent, &pair) != nullptr);
  }
  ibv_srq_init_attr wanted{};
  wanted.attr = {4, 1, 0};
  ibv_srq* shared = ibv_create_srq(parent, &wanted);
  REQUIRE(shared != nullptr);
  ibv_recv_wr request{};
  ibv_recv_wr* bad = nullptr;
  REQUIRE(ibv_post_srq_recv(shared, &request, &bad) == 0);

  CHECK(memory.used() != 0);
  memory.take_away();
  CHECK(ibv_close_device(verbs) == 0);
  CHECK(memory.given_back() == 0);
}

TEST_CASE("XRC: a device can be closed after the memory of completions became inaccessible") {
  arena memory;
  {
    xrc_connection connection;
    xrc_receiver& receiver = connection.receiver;
    ibv_pd* parent = memory.parent_of(receiver.end.domain);
    REQUIRE(parent != nullptr);
    ibv_srq_init_attr_ex asked = to_share(parent, receiver.domain, completions_of(parent));
    // The test does not destroy this queue. Closing the device does.
    ibv_srq* left = ibv_create_srq_ex(receiver.end.context, &asked);
    REQUIRE(left != nullptr);
    REQUIRE(receiver.post(left, 1, 0, 8) == 0);
    REQUIRE(connection.sender.send_to(2, number_of(left), 8) == 0);
    CHECK(connection.sender.wait().status == IBV_WC_SUCCESS);
    memory.take_away();
  }
  CHECK(memory.given_back() == 0);
}

TEST_CASE("a completion queue may belong to a parent domain") {
  open_context device;
  ibv_pd* domain = ibv_alloc_pd(device.verbs);
  ibv_pd* parent = parent_of(domain, thread_domain_of(device.verbs));
  ibv_cq_init_attr_ex attributes{};
  attributes.cqe = 4;
  attributes.comp_mask = IBV_CQ_INIT_ATTR_MASK_PD;
  for (ibv_pd* wrong : {static_cast<ibv_pd*>(nullptr), domain}) {
    attributes.parent_domain = wrong;
    CHECK(refusal([&] { return ibv_create_cq_ex(device.verbs, &attributes); }) == EINVAL);
  }
  attributes.parent_domain = parent;
  ibv_cq_ex* queue = ibv_create_cq_ex(device.verbs, &attributes);
  REQUIRE(queue != nullptr);
  CHECK(ibv_dealloc_pd(parent) == EBUSY);
  ibv_poll_cq_attr nothing{};
  CHECK(ibv_start_poll(queue, &nothing) == ENOENT);
  CHECK(ibv_destroy_cq(ibv_cq_ex_to_cq(queue)) == 0);
  CHECK(ibv_dealloc_pd(parent) == 0);
}
