// SPDX-License-Identifier: Apache-2.0
#include "catch.hpp"
#include "support/fabric.hpp"

#include <cerrno>
#include <cstring>

namespace {

constexpr int to_init = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
constexpr int to_rtr = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                       IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
constexpr int to_rts = IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                       IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;

ibv_qp_attr good(const endpoint& end, ibv_qp_state state) {
  ibv_qp_attr attributes{};
  const address here = end.here();
  attributes.qp_state = state;
  attributes.port_num = 1;
  attributes.path_mtu = IBV_MTU_4096;
  attributes.dest_qp_num = here.qpn;
  attributes.ah_attr.port_num = 1;
  attributes.ah_attr.dlid = here.lid;
  attributes.ah_attr.is_global = on_ethernet() ? 1 : 0;
  attributes.ah_attr.grh.dgid = here.gid;
  attributes.ah_attr.grh.sgid_index = on_ethernet() ? end.wanted.gid_index : 0;
  attributes.max_dest_rd_atomic = 16;
  attributes.max_rd_atomic = 16;
  attributes.min_rnr_timer = 12;
  attributes.timeout = 14;
  attributes.retry_cnt = 7;
  attributes.rnr_retry = 7;
  attributes.rq_psn = 5;
  attributes.sq_psn = 6;
  return attributes;
}

int modify(endpoint& end, ibv_qp_attr attributes, int mask) {
  return ibv_modify_qp(end.pair, &attributes, mask);
}

void bring_to(endpoint& end, ibv_qp_state state) {
  REQUIRE(end.change(IBV_QPS_RESET) == 0);
  if (state == IBV_QPS_RESET) return;
  REQUIRE(modify(end, good(end, IBV_QPS_INIT), to_init) == 0);
  if (state == IBV_QPS_ERR) REQUIRE(end.change(IBV_QPS_ERR) == 0);
  if (state == IBV_QPS_INIT || state == IBV_QPS_ERR) return;
  REQUIRE(modify(end, good(end, IBV_QPS_RTR), to_rtr) == 0);
  if (state == IBV_QPS_RTR) return;
  REQUIRE(modify(end, good(end, IBV_QPS_RTS), to_rts) == 0);
  if (state == IBV_QPS_RTS) return;
  REQUIRE(end.change(IBV_QPS_SQD) == 0);
}

}  // namespace

TEST_CASE("a transition has required and optional attributes and accepts no others") {
  endpoint end;
  struct step {
    ibv_qp_state from, to;
    int mask, optional;
  };
  const step steps[] = {
      {IBV_QPS_RESET, IBV_QPS_INIT, to_init, 0},
      {IBV_QPS_INIT, IBV_QPS_RTR, to_rtr,
       IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX},
      {IBV_QPS_RTR, IBV_QPS_RTS, to_rts,
       IBV_QP_CUR_STATE | IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PATH_MIG_STATE |
           IBV_QP_MIN_RNR_TIMER},
  };
  for (const step& each : steps) {
    for (int bit = 1; bit <= IBV_QP_RATE_LIMIT; bit <<= 1) {
      if (bit == IBV_QP_STATE || bit == IBV_QP_CUR_STATE || bit == IBV_QP_ALT_PATH) continue;
      bring_to(end, each.from);
      const int mask = each.mask ^ bit;
      INFO("from " << each.from << " to " << each.to << " bit " << bit);
      const bool legal = (each.mask & bit) == 0 && (each.optional & bit) != 0;
      CHECK(modify(end, good(end, each.to), mask) == (legal ? 0 : EINVAL));
      CHECK(end.state() == (legal ? each.to : each.from));
    }
  }
}

TEST_CASE("a state can be entered only from the states that the verbs allow") {
  endpoint end;
  const ibv_qp_state states[] = {IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS,
                                 IBV_QPS_SQD,   IBV_QPS_SQE,  IBV_QPS_ERR};
  for (const ibv_qp_state from : states) {
    if (from == IBV_QPS_SQE) continue;
    for (const ibv_qp_state to : states) {
      bring_to(end, from);
      int mask = IBV_QP_STATE;
      if (from == IBV_QPS_RESET && to == IBV_QPS_INIT) mask = to_init;
      if (from == IBV_QPS_INIT && to == IBV_QPS_RTR) mask = to_rtr;
      if (from == IBV_QPS_RTR && to == IBV_QPS_RTS) mask = to_rts;
      const bool legal = to == IBV_QPS_RESET || (to == IBV_QPS_ERR && from != IBV_QPS_RESET) ||
                         (to == IBV_QPS_INIT && from <= IBV_QPS_INIT) || mask != IBV_QP_STATE ||
                         (from == IBV_QPS_RTS && (to == IBV_QPS_RTS || to == IBV_QPS_SQD)) ||
                         (from == IBV_QPS_SQD && (to == IBV_QPS_RTS || to == IBV_QPS_SQD));
      INFO("from " << from << " to " << to);
      CHECK(modify(end, good(end, to), mask) == (legal ? 0 : EINVAL));
      CHECK(end.state() == (legal ? to : from));
    }
  }
}

TEST_CASE("the specified current state has to match") {
  endpoint end;
  bring_to(end, IBV_QPS_RTR);
  ibv_qp_attr attributes = good(end, IBV_QPS_RTS);
  attributes.cur_qp_state = IBV_QPS_RTS;
  CHECK(modify(end, attributes, to_rts | IBV_QP_CUR_STATE) == EINVAL);
  attributes.cur_qp_state = IBV_QPS_RTR;
  CHECK(modify(end, attributes, to_rts | IBV_QP_CUR_STATE) == 0);
}

TEST_CASE("values out of range are refused and change nothing") {
  endpoint end;
  const auto refused = [&](ibv_qp_state from, ibv_qp_state to, int mask, auto change) {
    bring_to(end, from);
    ibv_qp_attr attributes = good(end, to);
    change(attributes);
    CHECK(modify(end, attributes, mask) == EINVAL);
    CHECK(end.state() == from);
  };
  const auto init = [&](auto change) { refused(IBV_QPS_RESET, IBV_QPS_INIT, to_init, change); };
  init([](ibv_qp_attr& a) { a.port_num = 0; });
  init([](ibv_qp_attr& a) { a.port_num = 2; });
  init([](ibv_qp_attr& a) { a.pkey_index = 1; });
  const auto rtr = [&](auto change) { refused(IBV_QPS_INIT, IBV_QPS_RTR, to_rtr, change); };
  rtr([](ibv_qp_attr& a) { a.path_mtu = static_cast<ibv_mtu>(0); });
  rtr([](ibv_qp_attr& a) { a.path_mtu = static_cast<ibv_mtu>(6); });
  rtr([](ibv_qp_attr& a) { a.max_dest_rd_atomic = 17; });
  rtr([](ibv_qp_attr& a) { a.min_rnr_timer = 32; });
  rtr([](ibv_qp_attr& a) { a.ah_attr.port_num = 2; });
  if (on_ethernet()) {
    rtr([](ibv_qp_attr& a) { a.ah_attr.is_global = 0; });
    rtr([](ibv_qp_attr& a) { a.ah_attr.grh.sgid_index = 200; });
  }
  const auto rts = [&](auto change) { refused(IBV_QPS_RTR, IBV_QPS_RTS, to_rts, change); };
  rts([](ibv_qp_attr& a) { a.timeout = 32; });
  rts([](ibv_qp_attr& a) { a.retry_cnt = 8; });
  rts([](ibv_qp_attr& a) { a.rnr_retry = 8; });
  rts([](ibv_qp_attr& a) { a.max_rd_atomic = 17; });
}

TEST_CASE("a GID that no device has is an error") {
  if (!on_ethernet()) return;
  endpoint end;
  bring_to(end, IBV_QPS_INIT);
  ibv_qp_attr attributes = good(end, IBV_QPS_RTR);
  attributes.ah_attr.grh.dgid.raw[15] ^= 0x80;
  CHECK(modify(end, attributes, to_rtr) == ETIMEDOUT);
  CHECK(end.state() == IBV_QPS_INIT);
  attributes = good(end, IBV_QPS_RTR);
  attributes.ah_attr.grh.sgid_index = 10;
  CHECK(modify(end, attributes, to_rtr) == ENODATA);
  CHECK(modify(end, good(end, IBV_QPS_RTR), to_rtr) == 0);
}

TEST_CASE("a query returns the attributes that were set") {
  endpoint end;
  bring_to(end, IBV_QPS_RTS);
  ibv_qp_attr attributes{};
  ibv_qp_init_attr initial{};
  REQUIRE(ibv_query_qp(end.pair, &attributes, 0, &initial) == 0);
  const ibv_qp_attr set = good(end, IBV_QPS_RTS);
  CHECK(attributes.qp_state == IBV_QPS_RTS);
  CHECK(attributes.cur_qp_state == IBV_QPS_RTS);
  CHECK(attributes.path_mtu == set.path_mtu);
  CHECK(attributes.rq_psn == set.rq_psn);
  CHECK(attributes.sq_psn == set.sq_psn);
  CHECK(attributes.dest_qp_num == set.dest_qp_num);
  CHECK(attributes.qp_access_flags == set.qp_access_flags);
  CHECK(std::memcmp(&attributes.ah_attr.grh.dgid, &set.ah_attr.grh.dgid, 16) == 0);
  CHECK(attributes.max_rd_atomic == 16);
  CHECK(attributes.max_dest_rd_atomic == 16);
  CHECK(attributes.min_rnr_timer == 12);
  CHECK(attributes.port_num == 1);
  CHECK(attributes.timeout == 14);
  CHECK(attributes.retry_cnt == 7);
  CHECK(attributes.rnr_retry == 7);
  CHECK(attributes.cap.max_send_wr == end.granted.max_send_wr);
  CHECK(initial.cap.max_inline_data == end.granted.max_inline_data);
  CHECK(initial.send_cq == end.queue);
  CHECK(initial.qp_type == IBV_QPT_RC);
}

TEST_CASE("only a call that names the state updates the state in the object") {
  connection link;
  ibv_qp_attr attributes{};
  ibv_qp_init_attr initial{};
  CHECK(link.left.pair->state == IBV_QPS_RTS);
  attributes.min_rnr_timer = 32;
  CHECK(ibv_modify_qp(link.left.pair, &attributes, IBV_QP_STATE | IBV_QP_MIN_RNR_TIMER) == EINVAL);
  CHECK(link.left.pair->state == IBV_QPS_RTS);
  // This request fails, so the queue pair enters the error state.
  ibv_sge piece = link.left.piece(0, 8);
  piece.lkey ^= 1;
  REQUIRE(link.left.send(1, {piece}) == 0);
  CHECK(link.left.wait().status == IBV_WC_LOC_PROT_ERR);
  CHECK(link.left.pair->state == IBV_QPS_RTS);
  CHECK(ibv_query_qp(link.left.pair, &attributes, IBV_QP_CAP, &initial) == 0);
  CHECK(link.left.pair->state == IBV_QPS_RTS);
  attributes.min_rnr_timer = 12;
  CHECK(ibv_modify_qp(link.left.pair, &attributes, IBV_QP_MIN_RNR_TIMER) == EINVAL);
  CHECK(link.left.pair->state == IBV_QPS_RTS);
  CHECK(ibv_query_qp(link.left.pair, &attributes, IBV_QP_STATE, &initial) == 0);
  CHECK(link.left.pair->state == IBV_QPS_ERR);
}

TEST_CASE("requests can only be posted in the right states") {
  endpoint end;
  bring_to(end, IBV_QPS_RESET);
  CHECK(end.post_receive(1, {end.piece(0, 8)}) == EINVAL);
  CHECK(end.send(1, {end.piece(0, 8)}) == EINVAL);
  bring_to(end, IBV_QPS_INIT);
  CHECK(end.post_receive(1, {end.piece(0, 8)}) == 0);
  CHECK(end.send(1, {end.piece(0, 8)}) == EINVAL);
  bring_to(end, IBV_QPS_RTR);
  CHECK(end.send(1, {end.piece(0, 8)}) == EINVAL);
  bring_to(end, IBV_QPS_ERR);
  CHECK(end.send(1, {end.piece(0, 8)}, 0) == 0);
  CHECK(end.post_receive(2, {end.piece(0, 8)}) == 0);
  CHECK(end.wait().status == IBV_WC_WR_FLUSH_ERR);
  CHECK(end.wait().status == IBV_WC_WR_FLUSH_ERR);
}
