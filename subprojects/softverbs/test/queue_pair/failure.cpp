// SPDX-License-Identifier: Apache-2.0
#include "catch.hpp"
#include "support/fabric.hpp"
#include "support/registered_page.hpp"

#include <sys/mman.h>

#include <algorithm>

namespace {

/// Returns the same options as impatient(), but with only two RNR retries.
options impatient_sender() {
  options result = impatient();
  result.rnr_retry = 2;
  return result;
}

void flushed(endpoint& end, std::uint64_t id) {
  const ibv_wc completion = end.wait();
  CHECK(completion.status == IBV_WC_WR_FLUSH_ERR);
  CHECK(completion.wr_id == id);
  CHECK(completion.qp_num == end.pair->qp_num);
}

void failed(endpoint& end, std::uint64_t id, ibv_wc_status status) {
  const ibv_wc completion = end.wait();
  CHECK(completion.status == status);
  CHECK(completion.wr_id == id);
  CHECK(completion.qp_num == end.pair->qp_num);
  CHECK(end.state() == IBV_QPS_ERR);
}

}  // namespace

TEST_CASE(
    "requests before a failed one succeed, and all others are flushed in order, without effect") {
  connection link;
  const address peer = link.right.here();
  std::fill_n(link.left.memory.begin(), 8, static_cast<unsigned char>(7));
  REQUIRE(link.left.post_receive(100, {}) == 0);
  REQUIRE(link.left.post_receive(101, {}) == 0);
  REQUIRE(link.right.post_receive(200, {}) == 0);
  // The requests are posted as a single list, so that the last one is posted before the device can
  // fail the second. The second and the third one are not signaled, but complete because they don't
  // succeed.
  ibv_sge piece = link.left.piece(0, 8);
  std::vector<ibv_send_wr> requests = list_of_writes(4, piece, peer, 0);
  for (std::size_t at = 0; at < requests.size(); ++at) requests[at].wr.rdma.remote_addr += 8 * at;
  requests[1].wr.rdma.rkey ^= 0x100;
  requests[0].send_flags = requests[3].send_flags = IBV_SEND_SIGNALED;
  ibv_send_wr* bad = nullptr;
  REQUIRE(ibv_post_send(link.left.pair, requests.data(), &bad) == 0);
  const ibv_wc first = link.left.wait();
  CHECK(first.wr_id == 1);
  CHECK(first.status == IBV_WC_SUCCESS);
  failed(link.left, 2, IBV_WC_REM_ACCESS_ERR);
  flushed(link.left, 3);
  flushed(link.left, 4);
  flushed(link.left, 100);
  flushed(link.left, 101);
  flushed(link.right, 200);
  CHECK(link.right.state() == IBV_QPS_ERR);
  CHECK(link.right.event().event_type == IBV_EVENT_QP_ACCESS_ERR);
  // Requests that are posted after the failure are flushed, too.
  REQUIRE(link.left.post_receive(102, {}) == 0);
  flushed(link.left, 102);
  REQUIRE(link.left.write(5, {link.left.piece(0, 8)}, peer, 32, 0) == 0);
  flushed(link.left, 5);
  CHECK(link.left.quiet());
  CHECK(link.right.quiet());
  CHECK(std::count(link.right.memory.begin(), link.right.memory.begin() + 8, 7) == 8);
  CHECK(std::count(link.right.memory.begin() + 8, link.right.memory.begin() + 40, 7) == 0);
}

TEST_CASE("the transition to the error state flushes requests") {
  connection link;
  REQUIRE(link.left.post_receive(1, {}) == 0);
  REQUIRE(link.left.post_receive(2, {}) == 0);
  REQUIRE(link.left.change(IBV_QPS_ERR) == 0);
  flushed(link.left, 1);
  flushed(link.left, 2);
}

TEST_CASE(
    "a reset drops all requests, generates no completions, and leaves the queue pair usable") {
  connection link;
  const address left = link.left.here();
  const address right = link.right.here();
  REQUIRE(link.left.post_receive(1, {}) == 0);
  REQUIRE(link.left.change(IBV_QPS_ERR) == 0);
  REQUIRE(link.left.change(IBV_QPS_RESET) == 0);
  REQUIRE(link.right.change(IBV_QPS_RESET) == 0);
  CHECK(link.left.quiet());
  link.left.connect(right);
  link.right.connect(left);
  REQUIRE(link.right.post_receive(2, {link.right.piece(0, 8)}) == 0);
  REQUIRE(link.left.send(3, {link.left.piece(0, 8)}) == 0);
  CHECK(link.right.wait().wr_id == 2);
  CHECK(link.left.wait().wr_id == 3);
}

TEST_CASE("local memory is checked when a request is executed") {
  const auto attempt = [](auto spoil) {
    connection link;
    ibv_sge piece = link.left.piece(0, 64);
    spoil(link, piece);
    REQUIRE(link.left.write(1, {piece}, link.right.here()) == 0);
    failed(link.left, 1, IBV_WC_LOC_PROT_ERR);
  };
  attempt([](connection&, ibv_sge& piece) { piece.lkey ^= 0x100; });
  attempt([](connection&, ibv_sge& piece) { piece.lkey ^= 1; });
  attempt([](connection&, ibv_sge& piece) { piece.lkey = 0; });
  attempt([](connection& link, ibv_sge& piece) { piece.lkey = link.left.region->rkey; });
  attempt([](connection& link, ibv_sge& piece) { piece.lkey = link.right.region->lkey; });
  attempt([](connection& link, ibv_sge& piece) { piece.addr += link.left.memory.size() - 63; });
  attempt([](connection&, ibv_sge& piece) { piece.addr -= 1; });
}

TEST_CASE("requests before an invalid one still succeed") {
  connection link;
  REQUIRE(link.left.write(1, {link.left.piece(0, 500000)}, link.right.here()) == 0);
  ibv_sge wrong = link.left.piece(0, 8);
  wrong.lkey = 0;
  REQUIRE(link.left.write(2, {wrong}, link.right.here()) == 0);
  CHECK(link.left.wait().status == IBV_WC_SUCCESS);
  failed(link.left, 2, IBV_WC_LOC_PROT_ERR);
}

TEST_CASE("a read needs writable memory") {
  connection link(options{.region_access = 0}, {});
  REQUIRE(link.left.read(1, {link.left.piece(0, 8)}, link.right.here()) == 0);
  failed(link.left, 1, IBV_WC_LOC_PROT_ERR);
}

TEST_CASE("a receive needs writable memory") {
  connection link({}, options{.region_access = 0});
  REQUIRE(link.right.post_receive(1, {link.right.piece(0, 8)}) == 0);
  REQUIRE(link.left.send(2, {link.left.piece(0, 8)}) == 0);
  failed(link.right, 1, IBV_WC_LOC_PROT_ERR);
  failed(link.left, 2, IBV_WC_REM_OP_ERR);
}

TEST_CASE("a receive that exceeds its region accepts messages that fit in the region") {
  // An endpoint's memory is exactly as long as its region.
  const options wanted{.type = GENERATE(IBV_QPT_RC, IBV_QPT_UC),
                       .shared_receives = GENERATE(false, true)};
  connection link({.type = wanted.type}, wanted);
  const std::size_t room = link.right.memory.size();
  fill(link.left, 0, 64, 5);
  ibv_sge foreign = link.right.piece(0, 64);
  foreign.lkey ^= 0x100;
  REQUIRE(link.right.post_receive(1, {link.right.piece(room - 64, 128)}) == 0);
  REQUIRE(link.right.post_receive(2, {link.right.piece(0, 64), foreign}) == 0);
  for (const std::uint64_t id : {1U, 2U}) {
    REQUIRE(link.left.send(id, {link.left.piece(0, 64)}) == 0);
    CHECK(link.left.wait().status == IBV_WC_SUCCESS);
    const ibv_wc received = link.right.wait();
    CHECK(received.wr_id == id);
    CHECK(received.status == IBV_WC_SUCCESS);
    CHECK(received.byte_len == 64);
  }
  CHECK(same(link.left, 0, link.right, room - 64, 64));
  CHECK(same(link.left, 0, link.right, 0, 64));
}

TEST_CASE("a message beyond the region of its receive fails, and fills only the pieces before") {
  connection link;
  const std::size_t room = link.right.memory.size();
  constexpr std::size_t packet = 32768;
  fill(link.left, 0, half, 5);
  const endpoint untouched;
  // The device may write only the first packet, and as much of the second one as fits into the
  // first piece.
  REQUIRE(link.right.post_receive(
              1, {link.right.piece(0, packet + 100), link.right.piece(room - 64, 128)}) == 0);
  REQUIRE(link.left.send(2, {link.left.piece(0, packet + 100 + 65)}) == 0);
  failed(link.right, 1, IBV_WC_LOC_PROT_ERR);
  failed(link.left, 2, IBV_WC_REM_OP_ERR);
  CHECK(same(link.left, 0, link.right, 0, packet + 100));
  CHECK(same(untouched, room - 64, link.right, room - 64, 64));
}

TEST_CASE("a message longer than the receive fails at both ends") {
  connection link;
  REQUIRE(link.right.post_receive(1, {link.right.piece(0, 99)}) == 0);
  REQUIRE(link.left.send(2, {link.left.piece(0, 100)}) == 0);
  failed(link.right, 1, IBV_WC_LOC_LEN_ERR);
  failed(link.left, 2, IBV_WC_REM_INV_REQ_ERR);
}

TEST_CASE("a remote access must have the right, the key and the bounds of a region") {
  struct wrong {
    options right;
    std::uint64_t offset = 0;
    bool unregistered = false, foreign_domain = false;
  };
  std::vector<wrong> cases(6);
  cases[0].right.region_access = IBV_ACCESS_LOCAL_WRITE;
  cases[1].right.queue_pair_access = IBV_ACCESS_LOCAL_WRITE;
  cases[2].offset = cases[2].right.memory - 7;
  cases[3].offset = ~std::uint64_t{0} - 3;
  cases[4].unregistered = true;
  cases[5].foreign_domain = true;
  for (const wrong& each : cases)
    for (const bool reads : {false, true}) {
      connection link({}, each.right);
      address peer = link.right.here();
      if (each.unregistered) {
        ibv_mr* region = ibv_reg_mr(link.right.domain, link.right.memory.data(), 64,
                                    link.right.wanted.region_access);
        REQUIRE(region != nullptr);
        peer.rkey = region->rkey;
        REQUIRE(ibv_dereg_mr(region) == 0);
      }
      endpoint other;
      if (each.foreign_domain) peer = other.here();
      if (reads)
        REQUIRE(link.left.read(1, {link.left.piece(0, 8)}, peer, each.offset) == 0);
      else
        REQUIRE(link.left.write(1, {link.left.piece(0, 8)}, peer, each.offset) == 0);
      // True if the queue pair does not grant the remote right, although the memory does.
      const bool not_taken = each.right.queue_pair_access == IBV_ACCESS_LOCAL_WRITE;
      failed(link.left, 1, not_taken ? IBV_WC_REM_INV_REQ_ERR : IBV_WC_REM_ACCESS_ERR);
      CHECK(link.right.event().event_type ==
            (not_taken ? IBV_EVENT_QP_REQ_ERR : IBV_EVENT_QP_ACCESS_ERR));
      CHECK(link.right.state() == IBV_QPS_ERR);
    }
}

TEST_CASE("accessing unmapped memory is an error and not a crash") {
  const auto attempt = [](auto use, ibv_wc_status expected) {
    connection link;
    const registered_page page(link.right, link.right.wanted.region_access);
    ibv_mr* left =
        ibv_reg_mr(link.left.domain, page.memory, page.size, link.left.wanted.region_access);
    REQUIRE(left != nullptr);
    page.take_away();
    ibv_sge here = page.piece(64);
    here.lkey = left->lkey;
    use(link, here, page.piece(64), page.there());
    failed(link.left, 1, expected);
    ibv_dereg_mr(left);
  };
  attempt([](connection& link, ibv_sge here, ibv_sge,
             const address&) { REQUIRE(link.left.write(1, {here}, link.right.here()) == 0); },
          IBV_WC_LOC_PROT_ERR);
  attempt([](connection& link, ibv_sge here, ibv_sge,
             const address&) { REQUIRE(link.left.read(1, {here}, link.right.here()) == 0); },
          IBV_WC_LOC_PROT_ERR);
  attempt(
      [](connection& link, ibv_sge, ibv_sge, const address& peer) {
        REQUIRE(link.left.write(1, {link.left.piece(0, 64)}, peer) == 0);
      },
      IBV_WC_REM_ACCESS_ERR);
  attempt(
      [](connection& link, ibv_sge, ibv_sge, const address& peer) {
        REQUIRE(link.left.read(1, {link.left.piece(0, 64)}, peer) == 0);
      },
      IBV_WC_REM_ACCESS_ERR);
  attempt(
      [](connection& link, ibv_sge, ibv_sge there, const address&) {
        REQUIRE(link.right.post_receive(7, {there}) == 0);
        REQUIRE(link.left.send(1, {link.left.piece(0, 64)}) == 0);
        CHECK(link.right.wait().status == IBV_WC_LOC_PROT_ERR);
      },
      IBV_WC_REM_OP_ERR);
}

TEST_CASE("a queue pair that allows no reads refuses them") {
  const options none{.reads = 0};
  connection link({}, none);
  REQUIRE(link.left.read(1, {link.left.piece(0, 8)}, link.right.here()) == 0);
  failed(link.left, 1, IBV_WC_REM_INV_REQ_ERR);
  CHECK(link.right.event().event_type == IBV_EVENT_QP_REQ_ERR);
  connection other(none, {});
  REQUIRE(other.left.read(1, {other.left.piece(0, 8)}, other.right.here()) == 0);
  failed(other.left, 1, IBV_WC_LOC_QP_OP_ERR);
}

TEST_CASE("the number of RNR retries is limited") {
  connection link(impatient_sender());
  REQUIRE(link.left.send(1, {link.left.piece(0, 8)}) == 0);
  failed(link.left, 1, IBV_WC_RNR_RETRY_EXC_ERR);
  CHECK(link.right.state() == IBV_QPS_RTS);
}

TEST_CASE("a receiver that becomes ready gets the message") {
  connection link;
  const address peer = link.right.here();
  REQUIRE(link.left.write(1, {link.left.piece(0, 8)}, peer) == 0);
  REQUIRE(link.left.send(2, {link.left.piece(0, 100000)}) == 0);
  REQUIRE(link.left.write(3, {link.left.piece(0, 8)}, peer) == 0);
  CHECK(link.left.wait().wr_id == 1);
  CHECK(link.left.quiet());
  REQUIRE(link.right.post_receive(9, {link.right.piece(0, 100000)}) == 0);
  CHECK(link.right.wait().byte_len == 100000);
  CHECK(link.left.wait().wr_id == 2);
  CHECK(link.left.wait().wr_id == 3);

  ibv_send_wr request{};
  request.wr_id = 4;
  request.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
  request.send_flags = IBV_SEND_SIGNALED;
  request.wr.rdma = {peer.memory, peer.rkey};
  REQUIRE(link.left.post(request, {link.left.piece(0, 100000)}) == 0);
  CHECK(link.left.quiet());
  REQUIRE(link.right.post_receive(10, {}) == 0);
  CHECK(link.right.wait().byte_len == 100000);
  CHECK(link.left.wait().wr_id == 4);
}

TEST_CASE("a peer that doesn't exist or is connected elsewhere makes the retries run out") {
  const auto attempt = [](auto spoil) {
    endpoint left(impatient_sender());
    endpoint right(impatient_sender());
    address to_left = left.here();
    address to_right = right.here();
    const bool connect_right = spoil(left, right, to_left, to_right);
    left.connect(to_right);
    if (connect_right) right.connect(to_left);
    REQUIRE(right.initialize() == (connect_right ? 22 : 0));
    REQUIRE(right.post_receive(1, {right.piece(0, 8)}) == 0);
    REQUIRE(left.send(2, {left.piece(0, 8)}) == 0);
    failed(left, 2, IBV_WC_RETRY_EXC_ERR);
    CHECK(right.quiet());
  };
  INFO("not connected");
  attempt([](endpoint&, endpoint&, address&, address&) { return false; });
  INFO("unknown queue pair");
  attempt([](endpoint&, endpoint&, address&, address& to_right) {
    to_right.qpn ^= 0x155;
    return true;
  });
  INFO("unknown process");
  attempt([](endpoint&, endpoint&, address&, address& to_right) {
    to_right.qpn ^= 0x155 << 14;
    return true;
  });
  INFO("connected to another queue pair");
  attempt([](endpoint&, endpoint&, address& to_left, address&) {
    to_left.qpn ^= 1;
    return true;
  });
  INFO("receiver expects later packets");
  attempt([](endpoint&, endpoint&, address& to_left, address&) {
    to_left.psn = (to_left.psn + 100) & 0xffffff;
    return true;
  });
  INFO("receiver expects earlier packets");
  attempt([](endpoint&, endpoint&, address& to_left, address&) {
    to_left.psn = (to_left.psn - 100) & 0xffffff;
    return true;
  });
  INFO("RoCE versions differ or unknown LID");
  attempt([](endpoint&, endpoint& right, address&, address& to_right) {
    right.wanted.gid_index = 2;
    to_right.lid = 999;
    return true;
  });
}

TEST_CASE("a peer that connects late is reached") {
  endpoint left;
  endpoint right;
  left.connect(right.here());
  REQUIRE(left.send(1, {left.piece(0, 8)}) == 0);
  CHECK(left.quiet());
  REQUIRE(right.initialize() == 0);
  REQUIRE(right.post_receive(2, {right.piece(0, 8)}) == 0);
  REQUIRE(right.ready_to_receive(left.here()) == 0);
  CHECK(right.wait().wr_id == 2);
  CHECK(left.wait().status == IBV_WC_SUCCESS);
}

TEST_CASE("a completion queue that overruns fails") {
  connection link(options{.cq_entries = 1});
  for (std::uint64_t id = 0; id < 3; ++id)
    REQUIRE(link.left.write(id, {link.left.piece(0, 8)}, link.right.here()) == 0);
  const ibv_async_event event = link.left.event();
  CHECK(event.event_type == IBV_EVENT_CQ_ERR);
  CHECK(event.element.cq == link.left.queue);
  CHECK(link.left.event().event_type == IBV_EVENT_QP_FATAL);
  ibv_wc completion{};
  for (int at = 0; at < link.left.queue->cqe; ++at)
    CHECK(ibv_poll_cq(link.left.queue, 1, &completion) == 1);
  CHECK(ibv_poll_cq(link.left.queue, 1, &completion) < 0);
  CHECK(link.left.state() == IBV_QPS_ERR);
}

TEST_CASE("destroying a queue pair removes its completions") {
  connection link;
  endpoint other;
  REQUIRE(link.right.post_receive(1, {}) == 0);
  REQUIRE(link.right.change(IBV_QPS_ERR) == 0);
  REQUIRE(ibv_destroy_qp(link.right.pair) == 0);
  link.right.pair = nullptr;
  CHECK(link.right.quiet());
}

TEST_CASE("a message too long for the device fails") {
  connection link;
  const std::vector<ibv_sge> pieces(
      3, ibv_sge{link.left.piece(0, 0).addr, 0x7fffffff, link.left.region->lkey});
  REQUIRE(link.left.write(1, pieces, link.right.here()) == 0);
  failed(link.left, 1, IBV_WC_LOC_LEN_ERR);
}
