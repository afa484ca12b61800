// SPDX-License-Identifier: Apache-2.0
#include "catch.hpp"
#include "support/fabric.hpp"

#include <endian.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <thread>

namespace {

constexpr std::uint64_t everything =
    IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM | IBV_QP_EX_WITH_RDMA_WRITE |
    IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_RDMA_READ |
    IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD |
    IBV_QP_EX_WITH_BIND_MW | IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_SEND_WITH_INV;

ibv_qp_init_attr_ex wish(const endpoint& end, std::uint64_t operations) {
  ibv_qp_init_attr_ex result{};
  result.send_cq = result.recv_cq = end.queue;
  result.qp_type = IBV_QPT_RC;
  result.cap = {8, 64, 4, 4, 64};
  result.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  result.pd = end.domain;
  result.send_ops_flags = operations;
  return result;
}

/// An endpoint that is connected to itself, and that builds its requests with function calls.
struct builder_endpoint : endpoint {
  explicit builder_endpoint(std::uint64_t operations = everything) : endpoint(with_atomics()) {
    ibv_destroy_qp(pair);
    ibv_qp_init_attr_ex attributes = wish(*this, operations);
    pair = ibv_create_qp_ex(context, &attributes);
    REQUIRE(pair != nullptr);
    granted = attributes.cap;
    build = ibv_qp_to_qp_ex(pair);
    REQUIRE(build != nullptr);
    connect(here());
  }

  void next(std::uint64_t id, unsigned flags = IBV_SEND_SIGNALED) const {
    build->wr_id = id;
    build->wr_flags = flags;
  }
  void set(std::size_t offset, std::uint32_t length) const {
    ibv_wr_set_sge(build, region->lkey, piece(offset, length).addr, length);
  }
  void write(std::uint64_t id, std::size_t from, std::size_t to, std::uint32_t length) {
    next(id);
    ibv_wr_rdma_write(build, region->rkey, piece(to, 0).addr);
    set(from, length);
  }
  void completed(std::uint64_t id, ibv_wc_opcode opcode) {
    const ibv_wc completion = wait();
    CHECK(completion.status == IBV_WC_SUCCESS);
    CHECK(completion.wr_id == id);
    CHECK(completion.opcode == opcode);
  }

  ibv_qp_ex* build = nullptr;
};

}  // namespace

TEST_CASE("requests that are built by function calls are executed") {
  builder_endpoint end;
  CHECK(&end.build->qp_base == end.pair);
  for (unsigned char at = 0; at < 64; ++at) end.memory[at] = at;
  const std::uint64_t target = end.piece(1000, 0).addr;

  SECTION("a write") {
    ibv_wr_start(end.build);
    end.write(1, 0, 1000, 64);
    REQUIRE(ibv_wr_complete(end.build) == 0);
    end.completed(1, IBV_WC_RDMA_WRITE);
    CHECK(std::memcmp(&end.memory[0], &end.memory[1000], 64) == 0);
  }
  SECTION("a read into several elements") {
    ibv_wr_start(end.build);
    end.next(2);
    ibv_wr_rdma_read(end.build, end.region->rkey, end.piece(0, 0).addr);
    const std::array<ibv_sge, 2> entries{end.piece(1000, 20), end.piece(2000, 44)};
    ibv_wr_set_sge_list(end.build, entries.size(), entries.data());
    REQUIRE(ibv_wr_complete(end.build) == 0);
    end.completed(2, IBV_WC_RDMA_READ);
    CHECK(std::memcmp(&end.memory[0], &end.memory[1000], 20) == 0);
    CHECK(std::memcmp(&end.memory[20], &end.memory[2000], 44) == 0);
  }
  SECTION("inline data is copied immediately even from more pieces than elements") {
    std::array<char, 6> text{"hello"};
    std::array<ibv_data_buf, 6> buffers;
    for (std::size_t at = 0; at < text.size(); ++at) buffers[at] = {&text[at], 1};
    ibv_wr_start(end.build);
    end.next(3);
    ibv_wr_rdma_write(end.build, end.region->rkey, target);
    ibv_wr_set_inline_data_list(end.build, buffers.size(), buffers.data());
    end.next(4);
    ibv_wr_rdma_write(end.build, end.region->rkey, target + 6);
    ibv_wr_set_inline_data(end.build, text.data(), text.size());
    text.fill('x');
    REQUIRE(ibv_wr_complete(end.build) == 0);
    end.completed(3, IBV_WC_RDMA_WRITE);
    end.completed(4, IBV_WC_RDMA_WRITE);
    CHECK(std::memcmp(&end.memory[1000], "hello\0hello", 12) == 0);
  }
  SECTION("atomic operations") {
    const std::uint64_t before = 5;
    std::memcpy(&end.memory[1000], &before, sizeof(before));
    ibv_wr_start(end.build);
    end.next(3);
    ibv_wr_atomic_fetch_add(end.build, end.region->rkey, target, 2);
    end.set(0, 8);
    end.next(4);
    ibv_wr_atomic_cmp_swp(end.build, end.region->rkey, target, 7, 9);
    end.set(8, 8);
    REQUIRE(ibv_wr_complete(end.build) == 0);
    end.completed(3, IBV_WC_FETCH_ADD);
    end.completed(4, IBV_WC_COMP_SWAP);
    const auto at = [&](std::size_t place) {
      std::uint64_t value = 0;
      std::memcpy(&value, &end.memory[place], sizeof(value));
      return value;
    };
    CHECK(at(0) == 5);
    CHECK(at(8) == 7);
    CHECK(at(1000) == 9);
  }
  SECTION("binding and invalidating windows") {
    const int rights = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND;
    REQUIRE(ibv_rereg_mr(end.region, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, rights) == 0);
    ibv_mw* window = ibv_alloc_mw(end.domain, IBV_MW_TYPE_2);
    REQUIRE(window != nullptr);
    const ibv_mw_bind_info info{end.region, target, 64, IBV_ACCESS_REMOTE_WRITE};
    const std::uint32_t first = ibv_inc_rkey(window->rkey);
    const std::uint32_t second = ibv_inc_rkey(first);
    REQUIRE(end.post_receive(10, {end.piece(2000, 64)}) == 0);
    ibv_wr_start(end.build);
    end.next(3);
    ibv_wr_bind_mw(end.build, window, first, &info);
    end.next(4);
    ibv_wr_rdma_write(end.build, first, target);
    end.set(0, 64);
    end.next(5);
    ibv_wr_local_inv(end.build, first);
    end.next(6);
    ibv_wr_bind_mw(end.build, window, second, &info);
    end.next(7);
    ibv_wr_send_inv(end.build, second);
    end.set(0, 8);
    REQUIRE(ibv_wr_complete(end.build) == 0);
    end.completed(3, IBV_WC_BIND_MW);
    end.completed(4, IBV_WC_RDMA_WRITE);
    end.completed(5, IBV_WC_LOCAL_INV);
    end.completed(6, IBV_WC_BIND_MW);
    const ibv_wc received = end.wait();
    CHECK(received.wr_id == 10);
    CHECK(received.wc_flags == IBV_WC_WITH_INV);
    CHECK(received.invalidated_rkey == second);
    end.completed(7, IBV_WC_SEND);
    CHECK(std::memcmp(&end.memory[0], &end.memory[1000], 64) == 0);
    CHECK(ibv_dealloc_mw(window) == 0);
  }
  SECTION("sends with and without immediate data") {
    REQUIRE(end.post_receive(10, {end.piece(1000, 64)}) == 0);
    REQUIRE(end.post_receive(11, {}) == 0);
    REQUIRE(end.post_receive(12, {}) == 0);
    ibv_wr_start(end.build);
    end.next(5, 0);
    ibv_wr_send(end.build);
    end.set(0, 64);
    ibv_wr_send_imm(end.build, htobe32(77));
    ibv_wr_rdma_write_imm(end.build, end.region->rkey, target, htobe32(78));
    REQUIRE(ibv_wr_complete(end.build) == 0);
    end.completed(10, IBV_WC_RECV);
    CHECK(std::memcmp(&end.memory[0], &end.memory[1000], 64) == 0);
    const ibv_wc second = end.wait();
    CHECK(second.wr_id == 11);
    CHECK(second.wc_flags == IBV_WC_WITH_IMM);
    CHECK(be32toh(second.imm_data) == 77);
    const ibv_wc third = end.wait();
    CHECK(third.opcode == IBV_WC_RECV_RDMA_WITH_IMM);
    CHECK(be32toh(third.imm_data) == 78);
    CHECK(end.quiet());
  }
}

TEST_CASE("datagrams that are built by function calls reach their addresses") {
  const options wants{.type = IBV_QPT_UD};
  endpoint end(wants);
  ibv_destroy_qp(end.pair);
  ibv_qp_init_attr_ex attributes = wish(end, IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM);
  attributes.qp_type = IBV_QPT_UD;
  end.pair = ibv_create_qp_ex(end.context, &attributes);
  REQUIRE(end.pair != nullptr);
  ibv_qp_ex* build = ibv_qp_to_qp_ex(end.pair);
  REQUIRE(build != nullptr);
  end.connect(end.here());
  const address_handle handle(end, end.here());
  REQUIRE(end.post_receive(1, {end.piece(0, 100)}) == 0);
  end.memory[200] = 9;
  ibv_wr_start(build);
  build->wr_id = 2;
  build->wr_flags = 0;
  ibv_wr_send_imm(build, htobe32(5));
  ibv_wr_set_ud_addr(build, handle, end.pair->qp_num, wants.qkey);
  ibv_wr_set_sge(build, end.region->lkey, end.piece(200, 0).addr, 1);
  REQUIRE(ibv_wr_complete(build) == 0);
  const ibv_wc received = end.wait();
  CHECK(received.status == IBV_WC_SUCCESS);
  CHECK(received.byte_len == 41);
  CHECK(be32toh(received.imm_data) == 5);
  CHECK(received.src_qp == end.pair->qp_num);
  CHECK(end.memory[40] == 9);
  // A datagram without an address is refused.
  ibv_wr_start(build);
  ibv_wr_send(build);
  CHECK(ibv_wr_complete(build) == EINVAL);
}

TEST_CASE("a batch with a mistake isn't posted at all") {
  builder_endpoint end;
  const auto refused = [&](int error, auto step) {
    ibv_wr_start(end.build);
    end.write(1, 0, 1000, 8);
    step();
    end.write(2, 0, 1000, 8);
    CHECK(ibv_wr_complete(end.build) == error);
    CHECK(end.quiet());
  };
  refused(EINVAL, [&] {
    const std::vector<ibv_sge> entries(end.granted.max_send_sge + 1, end.piece(0, 8));
    ibv_wr_rdma_write(end.build, end.region->rkey, end.piece(0, 0).addr);
    ibv_wr_set_sge_list(end.build, entries.size(), entries.data());
  });
  refused(EINVAL, [&] {
    std::vector<char> data(end.granted.max_inline_data + 1);
    ibv_wr_rdma_write(end.build, end.region->rkey, end.piece(0, 0).addr);
    ibv_wr_set_inline_data(end.build, data.data(), data.size());
  });
  refused(ENOMEM, [&] {
    for (std::uint32_t more = 0; more < end.granted.max_send_wr; ++more) end.write(3, 0, 1000, 8);
  });
  ibv_wr_start(end.build);
  end.set(0, 8);
  CHECK(ibv_wr_complete(end.build) == EINVAL);

  // The batch that failed occupies no place in the queue.
  ibv_wr_start(end.build);
  for (std::uint32_t id = 0; id < end.granted.max_send_wr; ++id) end.write(id, 0, 1000, 8);
  CHECK(ibv_wr_complete(end.build) == 0);
  for (std::uint32_t id = 0; id < end.granted.max_send_wr; ++id)
    end.completed(id, IBV_WC_RDMA_WRITE);
}

TEST_CASE("an abandoned batch isn't posted and an empty batch has no effect") {
  builder_endpoint end;
  ibv_wr_start(end.build);
  end.write(1, 0, 1000, 8);
  ibv_wr_abort(end.build);
  ibv_wr_start(end.build);
  CHECK(ibv_wr_complete(end.build) == 0);
  CHECK(end.quiet());
}

TEST_CASE("requests that are built and requests of ibv_post_send share one queue") {
  builder_endpoint end;
  REQUIRE(end.endpoint::write(1, {end.piece(0, 8)}, end.here()) == 0);
  ibv_wr_start(end.build);
  end.write(2, 0, 1000, 8);
  REQUIRE(ibv_wr_complete(end.build) == 0);
  REQUIRE(end.endpoint::write(3, {end.piece(0, 8)}, end.here()) == 0);
  for (std::uint64_t id = 1; id <= 3; ++id) end.completed(id, IBV_WC_RDMA_WRITE);
  REQUIRE(end.change(IBV_QPS_RESET) == 0);
  ibv_wr_start(end.build);
  end.write(4, 0, 1000, 8);
  CHECK(ibv_wr_complete(end.build) == EINVAL);
}

TEST_CASE("threads build batches of one queue pair in turn") {
  builder_endpoint end;
  constexpr int rounds = 200;
  std::atomic<int> in_flight{0};
  const auto work = [&](std::uint64_t who) {
    for (int round = 0; round < rounds; ++round) {
      while (in_flight.fetch_add(2) > 6) {
        in_flight.fetch_sub(2);
        std::this_thread::yield();
      }
      ibv_wr_start(end.build);
      end.write(who, 0, 1000, 8);
      end.write(who, 0, 1000, 8);
      if (ibv_wr_complete(end.build) != 0) return;
    }
  };
  std::thread one(work, 1);
  std::thread two(work, 2);
  std::uint64_t previous = 0;
  for (int left = 4 * rounds; left > 0; --left) {
    const ibv_wc completion = end.wait();
    in_flight.fetch_sub(1);
    if (completion.status != IBV_WC_SUCCESS)
      FAIL("a request failed with status " << completion.status);
    if (left % 2 == 1 && completion.wr_id != previous)
      FAIL("requests of two batches were interleaved");
    previous = completion.wr_id;
  }
  one.join();
  two.join();
}

TEST_CASE("only requested and supported operations can be built") {
  builder_endpoint end(IBV_QP_EX_WITH_SEND);
  CHECK(end.build->wr_send != nullptr);
  CHECK(end.build->wr_rdma_write == nullptr);
  CHECK(end.build->wr_set_ud_addr == nullptr);
  endpoint plain;
  CHECK(ibv_qp_to_qp_ex(plain.pair) == nullptr);

  const auto refused = [&](int error, auto change) {
    ibv_qp_init_attr_ex attributes = wish(end, everything);
    change(attributes);
    CHECK(refusal([&] { return ibv_create_qp_ex(end.context, &attributes); }) == error);
  };
  refused(EOPNOTSUPP, [](ibv_qp_init_attr_ex& to) { to.send_ops_flags |= IBV_QP_EX_WITH_TSO; });
  refused(EOPNOTSUPP, [](ibv_qp_init_attr_ex& to) { to.send_ops_flags |= std::uint64_t{1} << 63; });
  refused(EOPNOTSUPP, [](ibv_qp_init_attr_ex& to) { to.qp_type = IBV_QPT_DRIVER; });
  refused(EOPNOTSUPP, [](ibv_qp_init_attr_ex& to) {
    to.qp_type = IBV_QPT_UC;
    to.send_ops_flags = IBV_QP_EX_WITH_RDMA_READ;
  });
  refused(EOPNOTSUPP, [](ibv_qp_init_attr_ex& to) {
    to.qp_type = IBV_QPT_UD;
    to.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE;
  });
  refused(EOPNOTSUPP, [](ibv_qp_init_attr_ex& to) {
    to.comp_mask |= IBV_QP_INIT_ATTR_CREATE_FLAGS;
    to.create_flags = 1;
  });
  refused(EINVAL, [](ibv_qp_init_attr_ex& to) { to.comp_mask &= ~unsigned{IBV_QP_INIT_ATTR_PD}; });
}
