// SPDX-License-Identifier: Apache-2.0
// Nested polling sessions and batches. Drivers that hold a lock during a session would deadlock.
#include "catch.hpp"
#include "support/fabric.hpp"
#include "support/peer.hpp"
#include "support/waiting_call.hpp"

#include <cerrno>

namespace {

/// Causes `count` completions of flushed receives.
void complete(extended_endpoint& end, std::uint64_t count) {
  REQUIRE(end.initialize() == 0);
  for (std::uint64_t id = 0; id < count; ++id) REQUIRE(end.post_receive(id, {}) == 0);
  REQUIRE(end.change(IBV_QPS_ERR) == 0);
}

struct building_endpoint : endpoint {
  explicit building_endpoint(const options& wants = {})
      : endpoint(wants),
        build(build_requests_of(*this, IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_SEND)) {
    connect(here());
  }

  void add(std::uint64_t id) const {
    build->wr_id = id;
    build->wr_flags = IBV_SEND_SIGNALED;
    ibv_wr_rdma_write(build, region->rkey, piece(64, 0).addr);
    ibv_wr_set_sge(build, region->lkey, piece(0, 0).addr, 8);
  }
  int write(std::uint64_t id) { return endpoint::write(id, {piece(0, 8)}, here(), 64); }

  ibv_qp_ex* build;
};

}  // namespace

TEST_CASE("a thread can't poll the queue that it is reading") {
  ibv_cq_init_attr_ex asked{};
  SECTION("a queue that several threads may use") {}
  SECTION("a single-threaded queue") {
    asked.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS;
    asked.flags = IBV_CREATE_CQ_ATTR_SINGLE_THREADED;
  }
  extended_endpoint end(asked);
  extended_endpoint other;
  complete(end, 4);
  complete(other, 1);
  ibv_poll_cq_attr nothing{};
  ibv_wc completion{};
  end.start();
  CHECK(ibv_poll_cq(end.queue, 1, &completion) == -EBUSY);
  CHECK(ibv_start_poll(end.extended, &nothing) == EBUSY);
  // The session continues, and other queues are not affected.
  CHECK(end.extended->wr_id == 0);
  other.start();
  ibv_end_poll(other.extended);
  REQUIRE(ibv_next_poll(end.extended) == 0);
  CHECK(end.extended->wr_id == 1);
  ibv_end_poll(end.extended);
  REQUIRE(ibv_poll_cq(end.queue, 1, &completion) == 1);
  CHECK(completion.wr_id == 2);
  end.start();
  CHECK(end.extended->wr_id == 3);
  ibv_end_poll(end.extended);
  // If a poll finds no completion, it does not begin a session.
  CHECK(ibv_start_poll(end.extended, &nothing) == ENOENT);
  CHECK(ibv_poll_cq(end.queue, 1, &completion) == 0);
}

TEST_CASE("a thread can't change the queue that it is reading") {
  extended_endpoint end;
  complete(end, 2);
  end.start();
  CHECK(end.change(IBV_QPS_RESET) == EBUSY);
  CHECK(ibv_resize_cq(end.queue, 100) == EBUSY);
  CHECK(ibv_destroy_qp(end.pair) == EBUSY);
  CHECK(end.state() == IBV_QPS_ERR);
  REQUIRE(ibv_next_poll(end.extended) == 0);
  CHECK(end.extended->wr_id == 1);
  ibv_end_poll(end.extended);
  CHECK(ibv_resize_cq(end.queue, 100) == 0);
  CHECK(end.change(IBV_QPS_RESET) == 0);
}

TEST_CASE("other threads can poll a queue when its reader has finished") {
  extended_endpoint end;
  complete(end, 3);
  end.start();
  ibv_wc completion{};
  CHECK(returns_only_after([&] { return ibv_poll_cq(end.queue, 1, &completion); },
                           [&] { ibv_end_poll(end.extended); }) == 1);
  CHECK(completion.wr_id == 1);
  REQUIRE(ibv_poll_cq(end.queue, 1, &completion) == 1);
  CHECK(completion.wr_id == 2);
}

TEST_CASE("a thread can't post to the queue pair for which it is building requests") {
  building_endpoint end;
  building_endpoint other;
  ibv_wr_start(end.build);
  end.add(1);
  ibv_sge piece = end.piece(0, 8);
  ibv_send_wr request{};
  request.sg_list = &piece;
  request.num_sge = 1;
  request.opcode = IBV_WR_SEND;
  ibv_send_wr* bad = nullptr;
  CHECK(ibv_post_send(end.pair, &request, &bad) == EBUSY);
  CHECK(bad == &request);
  ibv_mw* window = ibv_alloc_mw(end.domain, IBV_MW_TYPE_1);
  REQUIRE(window != nullptr);
  ibv_mw_bind binding{};
  const std::uint32_t key = window->rkey;
  CHECK(ibv_bind_mw(end.pair, window, &binding) == EBUSY);
  CHECK(window->rkey == key);
  // Receives use a different queue, and other queue pairs are not affected.
  CHECK(end.post_receive(9, {}) == 0);
  CHECK(other.write(2) == 0);
  end.add(3);
  REQUIRE(ibv_wr_complete(end.build) == 0);
  CHECK(end.wait().wr_id == 1);
  CHECK(end.wait().wr_id == 3);
  CHECK(end.write(4) == 0);
  CHECK(end.wait().wr_id == 4);
  CHECK(ibv_dealloc_mw(window) == 0);
}

TEST_CASE("starting a batch within another batch makes both fail") {
  options wants;
  building_endpoint end(wants);
  const bool aborts = GENERATE(false, true);
  ibv_wr_start(end.build);
  end.add(1);
  ibv_wr_start(end.build);
  end.add(2);
  if (aborts)
    ibv_wr_abort(end.build);
  else
    CHECK(ibv_wr_complete(end.build) == EBUSY);
  // The first batch is still open.
  CHECK(end.write(3) == EBUSY);
  CHECK(ibv_wr_complete(end.build) == EBUSY);
  CHECK(end.quiet());
  ibv_wr_start(end.build);
  end.add(4);
  REQUIRE(ibv_wr_complete(end.build) == 0);
  CHECK(end.wait().wr_id == 4);
}

TEST_CASE("other threads can post when a batch is complete") {
  building_endpoint end;
  ibv_wr_start(end.build);
  end.add(1);
  CHECK(returns_only_after([&] { return end.write(2); },
                           [&] { CHECK(ibv_wr_complete(end.build) == 0); }) == 0);
  CHECK(end.wait().wr_id == 1);
  CHECK(end.wait().wr_id == 2);
  ibv_wr_start(end.build);
  const auto build_another = [&] {
    ibv_wr_start(end.build);
    end.add(3);
    return ibv_wr_complete(end.build);
  };
  CHECK(returns_only_after(build_another, [&] { ibv_wr_abort(end.build); }) == 0);
  CHECK(end.wait().wr_id == 3);
}

TEST_CASE("each nesting mistake is explained only once in a process") {
  peer other("nester");
  CHECK(other.wait() == 0);
}
