// SPDX-License-Identifier: Apache-2.0
#include "catch.hpp"
#include "fabric.hpp"

#include <cerrno>

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

/// Replaces the queue pair of an end that isn't connected yet by one of another domain.
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

/// A write from the end's memory to its memory, through a connection to itself.
ibv_wc_status write_to_itself(endpoint& end) {
  REQUIRE(end.write(1, {end.piece(0, 8)}, end.here(), 64) == 0);
  return end.wait().status;
}

}  // namespace

TEST_CASE("a parent domain stands for the domain below it") {
  endpoint end;
  ibv_pd* parent = parent_of(end.domain);
  end.memory[0] = 7;

  SECTION("memory of the domain, a queue pair of the parent") {
    move_to(end, parent);
    end.connect(end.here());
    CHECK(write_to_itself(end) == IBV_WC_SUCCESS);
    CHECK(end.memory[64] == 7);
  }
  SECTION("memory of the parent, a queue pair of the domain") {
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
  SECTION("another domain stays another one") {
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

TEST_CASE("a datagram may go to an address handle of the domain below") {
  options wants;
  wants.type = IBV_QPT_UD;
  endpoint end(wants);
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

TEST_CASE("domains go after what is made of them") {
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
  // What is left goes with the device.
  parent_of(ibv_alloc_pd(device.verbs), thread_domain_of(device.verbs));
}

TEST_CASE("domains that can't be are refused") {
  open_context device;
  open_context other;
  ibv_pd* domain = ibv_alloc_pd(device.verbs);
  ibv_td_init_attr unknown{1};
  errno = 0;
  CHECK(ibv_alloc_td(device.verbs, &unknown) == nullptr);
  CHECK(errno == EINVAL);
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
  CHECK(attempt([](auto& to) { to.comp_mask = 1U << 31; }) == EINVAL);
  CHECK(attempt([](auto& to) { to.comp_mask = IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT; }) == 0);
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
    errno = 0;
    CHECK(ibv_create_cq_ex(device.verbs, &attributes) == nullptr);
    CHECK(errno == EINVAL);
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
