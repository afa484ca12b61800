// SPDX-License-Identifier: Apache-2.0
// Receive work queues, indirection tables that list them, and uses of both that are refused.
#include "catch.hpp"
#include "support/forked.hpp"
#include "support/work_queues.hpp"

#include <cerrno>

TEST_CASE("receive scaling: the device reports its features") {
  open_context opened;
  ibv_device_attr_ex device{};
  REQUIRE(ibv_query_device_ex(opened.verbs, nullptr, &device) == 0);
  const ibv_rss_caps& caps = device.rss_caps;
  if (!on_ethernet()) {
    CHECK(device.max_wq_type_rq == 0);
    CHECK(caps.max_rwq_indirection_tables == 0);
    CHECK(caps.supported_qpts == 0);
    return;
  }
  CHECK(device.max_wq_type_rq == static_cast<std::uint32_t>(device.orig_attr.max_qp));
  CHECK(caps.supported_qpts == 1U << IBV_QPT_RAW_PACKET);
  CHECK(caps.max_rwq_indirection_tables == 4096);
  CHECK(caps.max_rwq_indirection_table_size == 2048);
  CHECK(caps.rx_hash_fields_mask == (ipv4_addresses | ipv6_addresses | tcp_ports | udp_ports));
  CHECK(caps.rx_hash_function == IBV_RX_HASH_FUNC_TOEPLITZ);
}

TEST_CASE("receive scaling: InfiniBand has no work queues") {
  if (on_ethernet()) return;
  endpoint end;
  ibv_wq_init_attr attributes{};
  attributes.max_wr = attributes.max_sge = 1;
  attributes.pd = end.domain;
  attributes.cq = end.queue;
  CHECK(refusal([&] { return ibv_create_wq(end.context, &attributes); }) == EOPNOTSUPP);
  ibv_rwq_ind_table_init_attr table{};
  CHECK(refusal([&] { return ibv_create_rwq_ind_table(end.context, &table); }) == EOPNOTSUPP);
}

TEST_CASE("receive scaling: work queues change their states") {
  if (!on_ethernet()) return;
  work_queues end(1);
  ibv_wq* const queue = end.queues[0];
  CHECK(queue->context == end.context);
  CHECK(queue->pd == end.domain);
  CHECK(queue->wq_type == IBV_WQT_RQ);
  CHECK(queue->wq_num != end.pair->qp_num);
  CHECK(queue->state == IBV_WQS_RDY);
  // The queue is full, because each of its receives is posted.
  CHECK(end.post_to(0, 9) == ENOMEM);
  CHECK(change(queue, IBV_WQS_RDY) == 0);
  CHECK(change(queue, IBV_WQS_ERR) == 0);
  CHECK(queue->state == IBV_WQS_ERR);
  for (std::uint64_t id = 0; id < work_queues::receives; ++id) {
    const ibv_wc flushed = end.next(0);
    CHECK(flushed.status == IBV_WC_WR_FLUSH_ERR);
    CHECK(flushed.wr_id == id);
  }
  CHECK(end.post_to(0, 7) == 0);
  CHECK(end.next(0).status == IBV_WC_WR_FLUSH_ERR);
  CHECK(change(queue, IBV_WQS_RDY) == EINVAL);
  CHECK(end.post_to(0, 8) == 0);
  REQUIRE(change(queue, IBV_WQS_RESET) == 0);
  CHECK(queue->state == IBV_WQS_RESET);
  // The reset has removed the remaining completions.
  ibv_wc nothing{};
  CHECK(ibv_poll_cq(end.completion_queues[0], 1, &nothing) == 0);
  CHECK(end.post_to(0, 1) == EINVAL);
  CHECK(change(queue, IBV_WQS_ERR) == EINVAL);
  CHECK(change(queue, IBV_WQS_RESET) == 0);
  CHECK(change(queue, IBV_WQS_RDY) == 0);
  for (std::uint64_t id = 0; id < work_queues::receives; ++id) CHECK(end.post_to(0, id) == 0);
  CHECK(end.post_to(0, 9) == ENOMEM);
}

TEST_CASE("receive scaling: invalid transitions change nothing") {
  if (!on_ethernet()) return;
  work_queues end(1);
  ibv_wq* const queue = end.queues[0];
  const auto changed = [&](std::uint32_t mask, ibv_wq_state to, ibv_wq_state now,
                           std::uint32_t flags = 0) {
    ibv_wq_attr attributes{mask, to, now, flags, flags};
    return ibv_modify_wq(queue, &attributes);
  };
  constexpr std::uint32_t both = IBV_WQ_ATTR_STATE | IBV_WQ_ATTR_CURR_STATE;
  CHECK(changed(0, IBV_WQS_ERR, IBV_WQS_RDY) == EINVAL);
  CHECK(changed(IBV_WQ_ATTR_RESERVED | IBV_WQ_ATTR_STATE, IBV_WQS_ERR, IBV_WQS_RDY) == EINVAL);
  CHECK(changed(both, IBV_WQS_ERR, IBV_WQS_RESET) == EINVAL);
  CHECK(changed(IBV_WQ_ATTR_STATE, IBV_WQS_UNKNOWN, IBV_WQS_RDY) == EINVAL);
  CHECK(changed(IBV_WQ_ATTR_STATE | IBV_WQ_ATTR_FLAGS, IBV_WQS_ERR, IBV_WQS_RDY,
                IBV_WQ_FLAGS_CVLAN_STRIPPING) == EOPNOTSUPP);
  CHECK(queue->state == IBV_WQS_RDY);
  CHECK(changed(IBV_WQ_ATTR_CURR_STATE, IBV_WQS_ERR, IBV_WQS_RDY) == 0);
  CHECK(queue->state == IBV_WQS_RDY);
  CHECK(changed(both, IBV_WQS_RESET, IBV_WQS_RDY) == 0);
}

TEST_CASE("receive scaling: invalid work queues and tables are refused") {
  if (!on_ethernet()) return;
  work_queues end(2);
  endpoint stranger;
  const auto refused = [&](int error, auto change_it) {
    ibv_wq_init_attr attributes = end.asked(0);
    change_it(attributes);
    CHECK(refusal([&] { return ibv_create_wq(end.context, &attributes); }) == error);
  };
  refused(EINVAL, [](auto& of) { of.max_wr = 0; });
  ibv_device_attr limits{};
  REQUIRE(ibv_query_device(end.context, &limits) == 0);
  refused(EINVAL, [&](auto& of) { of.max_wr = static_cast<std::uint32_t>(limits.max_qp_wr) + 1; });
  refused(EINVAL, [](auto& of) { of.max_sge = 31; });
  refused(EINVAL, [](auto& of) { of.pd = nullptr; });
  refused(EINVAL, [](auto& of) { of.cq = nullptr; });
  refused(EINVAL, [&](auto& of) { of.pd = stranger.domain; });
  refused(EINVAL, [&](auto& of) { of.cq = stranger.queue; });
  refused(EINVAL, [](auto& of) { of.comp_mask = IBV_WQ_INIT_ATTR_RESERVED; });
  for (const ibv_wq_flags flag : {IBV_WQ_FLAGS_CVLAN_STRIPPING, IBV_WQ_FLAGS_SCATTER_FCS,
                                  IBV_WQ_FLAGS_DELAY_DROP, IBV_WQ_FLAGS_PCI_WRITE_END_PADDING})
    refused(EOPNOTSUPP, [flag](auto& of) {
      of.comp_mask = IBV_WQ_INIT_ATTR_FLAGS;
      of.create_flags = flag;
    });
  ibv_wq_init_attr odd = end.asked(0);
  odd.max_wr = 5;
  odd.max_sge = 0;
  // The mask doesn't include these flags, so they are ignored.
  odd.create_flags = IBV_WQ_FLAGS_DELAY_DROP;
  ibv_wq* const rounded = ibv_create_wq(end.context, &odd);
  REQUIRE(rounded != nullptr);
  CHECK(odd.max_wr == 8);
  CHECK(odd.max_sge == 1);
  CHECK(ibv_destroy_wq(rounded) == 0);

  const auto no_table = [&](std::uint32_t size, ibv_wq** queues, std::uint32_t mask) {
    ibv_rwq_ind_table_init_attr attributes{size, queues, mask};
    CHECK(refusal([&] { return ibv_create_rwq_ind_table(end.context, &attributes); }) == EINVAL);
  };
  no_table(1, end.queues.data(), 1);
  no_table(12, end.queues.data(), 0);
  no_table(40, end.queues.data(), 0);
  ibv_wq* with_a_gap[]{end.queues[0], nullptr};
  no_table(1, with_a_gap, 0);
  work_queues others(1);
  ibv_wq* mixed[]{end.queues[0], others.queues[0]};
  no_table(1, mixed, 0);
}

TEST_CASE("receive scaling: invalid queue pairs are refused") {
  if (!may_send_frames()) return;
  work_queues end(2);
  work_queues others(1);
  end.table = end.make_table();
  REQUIRE(end.table != nullptr);
  others.table = others.make_table();
  const auto refused = [&](int error, auto change_it) {
    ibv_qp_init_attr_ex attributes = end.spreading(ipv4_addresses);
    change_it(attributes);
    CHECK(refusal([&] { return ibv_create_qp_ex(end.context, &attributes); }) == error);
  };
  refused(EINVAL, [](auto& of) { of.comp_mask &= ~std::uint32_t{IBV_QP_INIT_ATTR_RX_HASH}; });
  refused(EINVAL, [](auto& of) { of.comp_mask &= ~std::uint32_t{IBV_QP_INIT_ATTR_IND_TABLE}; });
  refused(EINVAL, [](auto& of) { of.comp_mask &= ~std::uint32_t{IBV_QP_INIT_ATTR_PD}; });
  refused(EINVAL, [](auto& of) { of.rwq_ind_tbl = nullptr; });
  refused(EINVAL, [&](auto& of) { of.rwq_ind_tbl = others.table; });
  refused(EINVAL, [](auto& of) { of.cap.max_send_wr = 1; });
  refused(EINVAL, [](auto& of) { of.cap.max_recv_wr = 1; });
  refused(EINVAL, [](auto& of) { of.cap.max_recv_sge = 1; });
  refused(EINVAL, [&](auto& of) { of.recv_cq = end.queue; });
  refused(EINVAL, [](auto& of) {
    of.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    of.send_ops_flags = IBV_QP_EX_WITH_SEND;
  });
  refused(EOPNOTSUPP, [](auto& of) { of.qp_type = IBV_QPT_UD; });
  refused(EOPNOTSUPP, [](auto& of) { of.qp_type = IBV_QPT_XRC_RECV; });
  refused(EOPNOTSUPP, [](auto& of) {
    of.comp_mask |= IBV_QP_INIT_ATTR_CREATE_FLAGS;
    of.create_flags = IBV_QP_CREATE_CVLAN_STRIPPING;
  });
  refused(EOPNOTSUPP, [](auto& of) { of.rx_hash_conf.rx_hash_function = 0; });
  refused(EINVAL, [](auto& of) { of.rx_hash_conf.rx_hash_key_len = 39; });
  const auto refused_fields = [&](int error, std::uint64_t fields) {
    refused(error, [fields](auto& of) { of.rx_hash_conf.rx_hash_fields_mask = fields; });
  };
  refused_fields(EINVAL, 0);
  refused_fields(EINVAL, IBV_RX_HASH_SRC_IPV4 | IBV_RX_HASH_DST_IPV6);
  refused_fields(EINVAL, IBV_RX_HASH_SRC_PORT_TCP | IBV_RX_HASH_DST_PORT_UDP);
  refused_fields(EOPNOTSUPP, ipv4_addresses | IBV_RX_HASH_IPSEC_SPI);
  refused_fields(EOPNOTSUPP, ipv4_addresses | IBV_RX_HASH_INNER);
  {
    const without_privilege now;
    refused(EPERM, [](auto&) {});
  }
  // The queue pair sends nothing, so its send completion queue is ignored.
  ibv_qp_init_attr_ex attributes = end.spreading(ipv4_addresses);
  attributes.send_cq = end.queue;
  end.spreader = ibv_create_qp_ex(end.context, &attributes);
  REQUIRE(end.spreader != nullptr);
}

TEST_CASE("receive scaling: a queue pair that spreads frames has no states and no queues") {
  if (!may_send_frames()) return;
  work_queues end(2);
  end.spread(ipv4_addresses);
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_INIT;
  attributes.port_num = 1;
  CHECK(ibv_modify_qp(end.spreader, &attributes, IBV_QP_STATE | IBV_QP_PORT) == EOPNOTSUPP);
  ibv_qp_init_attr initial{};
  CHECK(ibv_query_qp(end.spreader, &attributes, IBV_QP_STATE, &initial) == EOPNOTSUPP);
  ibv_recv_wr receive{};
  ibv_recv_wr* bad_receive = nullptr;
  CHECK(ibv_post_recv(end.spreader, &receive, &bad_receive) == EINVAL);
  CHECK(bad_receive == &receive);
  ibv_sge piece = end.piece(0, 64);
  ibv_send_wr sending{};
  sending.opcode = IBV_WR_SEND;
  sending.sg_list = &piece;
  sending.num_sge = 1;
  ibv_send_wr* bad_send = nullptr;
  CHECK(ibv_post_send(end.spreader, &sending, &bad_send) == EINVAL);
  CHECK(ibv_qp_to_qp_ex(end.spreader) == nullptr);
}

TEST_CASE("receive scaling: objects are busy until their users are destroyed") {
  if (!may_send_frames()) return;
  work_queues end(2);
  end.spread(ipv4_addresses);
  CHECK(ibv_destroy_qp(end.spreader) == EBUSY);
  CHECK(ibv_destroy_rwq_ind_table(end.table) == EBUSY);
  CHECK(ibv_destroy_wq(end.queues[1]) == EBUSY);
  CHECK(ibv_destroy_cq(end.completion_queues[1]) == EBUSY);
  CHECK(ibv_dealloc_pd(end.domain) == EBUSY);
  CHECK(ibv_destroy_flow(end.flows[0]) == 0);
  end.flows.clear();
  CHECK(ibv_destroy_qp(end.spreader) == 0);
  end.spreader = nullptr;
  CHECK(ibv_destroy_wq(end.queues[1]) == EBUSY);
  CHECK(ibv_destroy_rwq_ind_table(end.table) == 0);
  end.table = nullptr;
  // A queue can be destroyed even if its completions have not been polled.
  CHECK(change(end.queues[1], IBV_WQS_ERR) == 0);
  CHECK(ibv_destroy_wq(end.queues[1]) == 0);
  end.queues.pop_back();
  ibv_wc nothing{};
  CHECK(ibv_poll_cq(end.completion_queues[1], 1, &nothing) == 0);
  CHECK(ibv_destroy_cq(end.completion_queues[1]) == 0);
  end.completion_queues.pop_back();

  ibv_pd* const alone = ibv_alloc_pd(end.context);
  ibv_wq_init_attr attributes = end.asked(0);
  attributes.pd = alone;
  ibv_wq* const queue = ibv_create_wq(end.context, &attributes);
  REQUIRE(queue != nullptr);
  CHECK(ibv_dealloc_pd(alone) == EBUSY);
  CHECK(ibv_destroy_wq(queue) == 0);
  CHECK(ibv_dealloc_pd(alone) == 0);
}

#if !defined(NO_THREADS_AFTER_FORK)
TEST_CASE("receive scaling: a forked child cannot use its parent's objects") {
  if (!may_send_frames()) return;
  work_queues end(2);
  end.spread(ipv4_addresses);
  const forked child([&] {
    ibv_wq_attr attributes{IBV_WQ_ATTR_STATE, IBV_WQS_ERR, IBV_WQS_RDY, 0, 0};
    ibv_recv_wr request{};
    ibv_recv_wr* bad = nullptr;
    bool well = ibv_modify_wq(end.queues[0], &attributes) == EIO;
    well = well && ibv_post_wq_recv(end.queues[0], &request, &bad) == EIO && bad == &request;
    well = well && ibv_destroy_wq(end.queues[0]) == EIO;
    well = well && ibv_destroy_rwq_ind_table(end.table) == EIO;
    // The child can't create objects that refer to its parent's objects.
    ibv_wq_init_attr of_parent = end.asked(0);
    well = well && ibv_create_wq(end.context, &of_parent) == nullptr && errno == EINVAL;
    ibv_rwq_ind_table_init_attr parents{1, end.queues.data(), 0};
    well = well && ibv_create_rwq_ind_table(end.context, &parents) == nullptr && errno == EINVAL;
    ibv_pd* const domain = ibv_alloc_pd(end.context);
    ibv_cq* const completions = ibv_create_cq(end.context, 1, nullptr, nullptr, 0);
    well = well && domain != nullptr && completions != nullptr;
    of_parent.pd = domain;
    of_parent.cq = completions;
    ibv_wq* const own = well ? ibv_create_wq(end.context, &of_parent) : nullptr;
    well = well && own != nullptr && ibv_destroy_wq(own) == 0;
    return well;
  });
  CHECK(child.ended_well());
}
#endif
