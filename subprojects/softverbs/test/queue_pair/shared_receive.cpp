// SPDX-License-Identifier: Apache-2.0
#include "catch.hpp"
#include "support/fabric.hpp"
#include "support/intruder.hpp"
#include "support/waiting_call.hpp"

#include <algorithm>
#include <cerrno>

namespace {

options sharing(ibv_qp_type type = IBV_QPT_RC) { return {.type = type, .shared_receives = true}; }

options guest_of(const endpoint& host) {
  options result = host.wanted;
  result.host = &host;
  return result;
}

options plain(ibv_qp_type type = IBV_QPT_RC) { return {.type = type}; }

void connect(endpoint& left, endpoint& right) {
  const address from_left = left.here();
  left.connect(right.here());
  right.connect(from_left);
}

int set_limit(endpoint& end, std::uint32_t limit) {
  ibv_srq_attr attributes{0, 0, limit};
  return ibv_modify_srq(end.shared, &attributes, IBV_SRQ_LIMIT);
}

int resize(endpoint& end, std::uint32_t requests) {
  ibv_srq_attr attributes{requests, 0, 0};
  return ibv_modify_srq(end.shared, &attributes, IBV_SRQ_MAX_WR);
}

ibv_srq_attr query(const endpoint& end) {
  ibv_srq_attr result{};
  REQUIRE(ibv_query_srq(end.shared, &result) == 0);
  return result;
}

}  // namespace

TEST_CASE("several queue pairs consume shared receives in order") {
  for (const ibv_qp_type type : {IBV_QPT_RC, IBV_QPT_UC}) {
    endpoint host(sharing(type));
    endpoint guest(guest_of(host));
    endpoint first(plain(type));
    endpoint second(plain(type));
    connect(first, host);
    connect(second, guest);
    for (std::uint64_t id = 0; id < 8; ++id)
      REQUIRE(host.post_receive(id, {host.piece(id << 10, 1 << 10)}) == 0);
    for (std::uint64_t id = 0; id < 8; ++id) {
      endpoint& sender = id % 2 == 0 ? first : second;
      const endpoint& receiver = id % 2 == 0 ? host : guest;
      std::fill_n(sender.memory.begin(), 100, static_cast<unsigned char>(id + 1));
      REQUIRE(sender.send(id, {sender.piece(0, 100)}) == 0);
      CHECK(sender.wait().status == IBV_WC_SUCCESS);
      const ibv_wc received = host.wait();
      CHECK(received.status == IBV_WC_SUCCESS);
      CHECK(received.wr_id == id);
      CHECK(received.qp_num == receiver.pair->qp_num);
      CHECK(std::count(host.memory.begin() + static_cast<std::ptrdiff_t>(id << 10),
                       host.memory.begin() + static_cast<std::ptrdiff_t>((id << 10) + 100),
                       static_cast<int>(id + 1)) == 100);
    }
  }
}

TEST_CASE("messages of several peers arrive concurrently") {
  endpoint host(sharing());
  endpoint guest(guest_of(host));
  endpoint first;
  endpoint second;
  connect(first, host);
  connect(second, guest);
  std::fill_n(first.memory.begin(), 250000, static_cast<unsigned char>(1));
  std::fill_n(second.memory.begin(), 250000, static_cast<unsigned char>(2));
  for (std::uint64_t id = 0; id < 4; ++id)
    REQUIRE(host.post_receive(id, {host.piece(id << 18, 1 << 18)}) == 0);
  for (std::uint64_t id = 0; id < 2; ++id) {
    REQUIRE(first.send(id, {first.piece(0, 250000)}) == 0);
    REQUIRE(second.send(id, {second.piece(0, 250000)}) == 0);
  }
  for (int count = 0; count < 4; ++count) {
    const ibv_wc received = host.wait();
    CHECK(received.status == IBV_WC_SUCCESS);
    const int from = received.qp_num == host.pair->qp_num ? 1 : 2;
    const auto start = host.memory.begin() + static_cast<std::ptrdiff_t>(received.wr_id << 18);
    CHECK(std::count(start, start + 250000, from) == 250000);
  }
  for (endpoint* end : {&first, &second})
    for (int count = 0; count < 2; ++count) CHECK(end->wait().status == IBV_WC_SUCCESS);
}

TEST_CASE("UD: datagrams consume shared receives") {
  endpoint host(sharing(IBV_QPT_UD));
  endpoint guest(guest_of(host));
  endpoint sender(plain(IBV_QPT_UD));
  for (endpoint* end : {&host, &guest, &sender}) end->connect(sender.here());
  const address_handle handle(sender, host.here());
  for (std::uint64_t id = 0; id < 4; ++id)
    REQUIRE(host.post_receive(id, {host.piece(id << 10, 100)}) == 0);
  REQUIRE(sender.send_to(handle, guest.pair->qp_num, 1, {sender.piece(0, 60)}) == 0);
  CHECK(host.wait().qp_num == guest.pair->qp_num);
  // If a datagram doesn't fit, both its receive and its queue pair fail.
  REQUIRE(sender.send_to(handle, guest.pair->qp_num, 1, {sender.piece(0, 61)}) == 0);
  const ibv_wc failed = host.wait();
  CHECK(failed.status == IBV_WC_LOC_LEN_ERR);
  CHECK(failed.wr_id == 1);
  CHECK(guest.state() == IBV_QPS_ERR);
  REQUIRE(sender.send_to(handle, host.pair->qp_num, 1, {sender.piece(0, 60)}) == 0);
  CHECK(host.wait().wr_id == 2);
}

TEST_CASE("an empty shared queue counts as a receiver that isn't ready") {
  endpoint host(sharing());
  endpoint sender(options{.rnr_retry = 1});
  connect(sender, host);
  REQUIRE(sender.send(1, {sender.piece(0, 8)}) == 0);
  CHECK(sender.wait().status == IBV_WC_RNR_RETRY_EXC_ERR);
}

TEST_CASE("the limit event of a shared queue is raised once") {
  endpoint host(sharing());
  endpoint sender;
  connect(sender, host);
  REQUIRE(set_limit(host, 3) == 0);
  CHECK(query(host).srq_limit == 3);
  const auto exchange = [&] {
    REQUIRE(sender.send(1, {sender.piece(0, 8)}) == 0);
    CHECK(sender.wait().status == IBV_WC_SUCCESS);
    CHECK(host.wait().status == IBV_WC_SUCCESS);
  };
  for (std::uint64_t id = 0; id < 5; ++id) REQUIRE(host.post_receive(id, {host.piece(0, 8)}) == 0);
  exchange();
  exchange();
  CHECK(!has_event(host.context, a_moment));
  exchange();
  const ibv_async_event event = host.event();
  CHECK(event.event_type == IBV_EVENT_SRQ_LIMIT_REACHED);
  CHECK(event.element.srq == host.shared);
  CHECK(query(host).srq_limit == 0);
  exchange();
  CHECK(!has_event(host.context, a_moment));
  REQUIRE(set_limit(host, 1) == 0);
  exchange();
  CHECK(host.event().event_type == IBV_EVENT_SRQ_LIMIT_REACHED);
}

TEST_CASE("resizing a shared queue keeps its receives") {
  endpoint host(sharing());
  endpoint sender;
  connect(sender, host);
  REQUIRE(resize(host, 40) == 0);
  REQUIRE(query(host).max_wr == 63);
  for (std::uint64_t id = 0; id < 63; ++id) REQUIRE(host.post_receive(id, {host.piece(0, 8)}) == 0);
  CHECK(host.post_receive(63, {}) == ENOMEM);
  CHECK(resize(host, 31) == EINVAL);
  CHECK(resize(host, 0) == EINVAL);
  CHECK(resize(host, 1 << 20) == EINVAL);
  REQUIRE(resize(host, 64) == 0);
  CHECK(query(host).max_wr == 127);
  CHECK(set_limit(host, 128) == EINVAL);
  REQUIRE(host.post_receive(63, {host.piece(0, 8)}) == 0);
  for (std::uint64_t id = 0; id < 64; ++id) {
    REQUIRE(sender.send(id, {sender.piece(0, 8)}) == 0);
    CHECK(sender.wait().status == IBV_WC_SUCCESS);
    CHECK(host.wait().wr_id == id);
  }
  CHECK(resize(host, 1) == 0);
  ibv_srq_attr attributes{};
  CHECK(ibv_modify_srq(host.shared, &attributes, 4) == EINVAL);
}

TEST_CASE("a queue pair in ERR leaves shared receives to others and raises LAST_WQE_REACHED") {
  endpoint host(sharing());
  endpoint guest(guest_of(host));
  endpoint sender;
  connect(sender, guest);
  for (std::uint64_t id = 0; id < 2; ++id) REQUIRE(host.post_receive(id, {host.piece(0, 8)}) == 0);
  host.connect(host.here());
  REQUIRE(host.change(IBV_QPS_ERR) == 0);
  const ibv_async_event event = host.event();
  CHECK(event.event_type == IBV_EVENT_QP_LAST_WQE_REACHED);
  CHECK(event.element.qp == host.pair);
  CHECK(host.quiet());
  CHECK(!has_event(host.context, a_moment));
  REQUIRE(sender.send(1, {sender.piece(0, 8)}) == 0);
  CHECK(host.wait().wr_id == 0);
  CHECK(sender.wait().status == IBV_WC_SUCCESS);
  // Each transition to ERR raises the event.
  REQUIRE(host.change(IBV_QPS_RESET) == 0);
  host.connect(host.here());
  REQUIRE(host.change(IBV_QPS_ERR) == 0);
  CHECK(host.event().event_type == IBV_EVENT_QP_LAST_WQE_REACHED);
}

TEST_CASE("a queue pair that enters ERR flushes the shared receive that it was filling") {
  connection link(plain(), sharing());
  REQUIRE(link.right.post_receive(1, {link.right.piece(0, 1 << 16)}) == 0);
  REQUIRE(link.right.post_receive(2, {link.right.piece(0, 1 << 16)}) == 0);
  struct {
    softverbs::packet_header header;
    unsigned char payload[softverbs::packet_bytes];
  } beginning{};
  beginning.header = forged(link);
  beginning.header.kind = softverbs::packet_kind::send;
  beginning.header.flags = softverbs::packet_flag::first;
  beginning.header.psn = link.left.psn;
  beginning.header.payload = softverbs::packet_bytes;
  beginning.payload[0] = 0x5a;
  intruder(link.right.pair->qp_num).send(&beginning, sizeof(beginning));
  const auto* begun = static_cast<volatile unsigned char*>(link.right.memory.data());
  CHECK(eventually([&] { return *begun == 0x5a; }));
  CHECK(link.right.quiet());
  REQUIRE(link.right.change(IBV_QPS_ERR) == 0);
  const ibv_wc flushed = link.right.wait();
  CHECK(flushed.status == IBV_WC_WR_FLUSH_ERR);
  CHECK(flushed.wr_id == 1);
  CHECK(link.right.quiet());
}

TEST_CASE("shared receives use memory of their queue's protection domain") {
  endpoint host(sharing());
  ibv_pd* other = ibv_alloc_pd(host.context);
  ibv_qp_init_attr attributes = pair_with(host.queue, {4, 4, 1, 1, 0});
  attributes.srq = host.shared;
  std::swap(host.domain, other);
  ibv_qp* pair = ibv_create_qp(host.domain, &attributes);
  REQUIRE(pair != nullptr);
  CHECK(attributes.cap.max_recv_wr == 0);
  std::swap(host.pair, pair);
  endpoint sender;
  connect(sender, host);
  REQUIRE(host.post_receive(1, {host.piece(0, 8)}) == 0);
  REQUIRE(sender.send(2, {sender.piece(0, 8)}) == 0);
  CHECK(host.wait().status == IBV_WC_SUCCESS);
  std::swap(host.pair, pair);
  std::swap(host.domain, other);
  CHECK(ibv_destroy_qp(pair) == 0);
  CHECK(ibv_dealloc_pd(other) == 0);
}

TEST_CASE("shared queues have limits and are busy while they are used") {
  endpoint host(sharing());
  CHECK(ibv_destroy_srq(host.shared) == EBUSY);
  ibv_recv_wr request{};
  ibv_recv_wr* bad = nullptr;
  REQUIRE(host.initialize() == 0);
  CHECK(ibv_post_recv(host.pair, &request, &bad) == EINVAL);
  CHECK(bad == &request);
  CHECK(host.post_receive(1, std::vector<ibv_sge>(5)) == EINVAL);
  ibv_qp_attr attributes{};
  ibv_qp_init_attr made{};
  REQUIRE(ibv_query_qp(host.pair, &attributes, IBV_QP_STATE, &made) == 0);
  CHECK(made.srq == host.shared);
  CHECK(host.pair->srq == host.shared);

  ibv_device_attr limits{};
  REQUIRE(ibv_query_device(host.context, &limits) == 0);
  CHECK((limits.device_cap_flags & IBV_DEVICE_SRQ_RESIZE) != 0);
  const auto attempt = [&](std::uint32_t requests, std::uint32_t entries) {
    ibv_srq_init_attr wanted{};
    wanted.attr = {requests, entries, 0};
    errno = 0;
    ibv_srq* queue = ibv_create_srq(host.domain, &wanted);
    if (queue == nullptr) return errno;
    CHECK(wanted.attr.max_wr >= requests);
    CHECK(wanted.attr.max_sge >= entries);
    CHECK(queue->srq_context == nullptr);
    CHECK(ibv_destroy_srq(queue) == 0);
    return 0;
  };
  const auto requests = static_cast<std::uint32_t>(limits.max_srq_wr);
  const auto entries = static_cast<std::uint32_t>(limits.max_srq_sge);
  CHECK(attempt(requests, entries) == 0);
  CHECK(attempt(1, 0) == 0);
  CHECK(attempt(0, 1) == EINVAL);
  CHECK(attempt(requests + 1, 1) == EINVAL);
  CHECK(attempt(1, entries + 1) == EINVAL);
}

TEST_CASE("a completion queue as large as a shared queue holds all of its completions") {
  endpoint end;
  for (const std::uint32_t size : {1U, 2U, 63U, 64U, 4095U, 4096U}) {
    ibv_srq_init_attr wanted{};
    wanted.attr = {size, 1, 0};
    ibv_srq* const receives = ibv_create_srq(end.domain, &wanted);
    ibv_cq* const completions =
        ibv_create_cq(end.context, static_cast<int>(size), nullptr, nullptr, 0);
    REQUIRE(receives != nullptr);
    REQUIRE(completions != nullptr);
    ibv_srq_attr granted{};
    CHECK(ibv_query_srq(receives, &granted) == 0);
    CHECK(granted.max_wr == static_cast<std::uint32_t>(completions->cqe));
    CHECK(ibv_destroy_cq(completions) == 0);
    CHECK(ibv_destroy_srq(receives) == 0);
  }
}

TEST_CASE("the extended verb creates basic shared queues and refuses tag matching") {
  endpoint end;
  const auto create = [&end](std::uint32_t mask, ibv_srq_type type) {
    ibv_srq_init_attr_ex asked{};
    asked.attr = {4, 1, 0};
    asked.srq_context = &end;
    asked.comp_mask = mask;
    asked.srq_type = type;
    asked.pd = end.domain;
    asked.cq = end.queue;
    errno = 0;
    return ibv_create_srq_ex(end.context, &asked);
  };
  constexpr std::uint32_t domain = IBV_SRQ_INIT_ATTR_PD;
  constexpr std::uint32_t typed = domain | IBV_SRQ_INIT_ATTR_TYPE;
  for (const std::uint32_t mask : {domain, typed, typed | IBV_SRQ_INIT_ATTR_CQ,
                                   typed | IBV_SRQ_INIT_ATTR_CQ | IBV_SRQ_INIT_ATTR_XRCD}) {
    ibv_srq* queue = create(mask, IBV_SRQT_BASIC);
    REQUIRE(queue != nullptr);
    CHECK(queue->srq_context == &end);
    CHECK(queue->pd == end.domain);
    CHECK(queue->context == end.context);
    ibv_srq_attr granted{};
    CHECK(ibv_query_srq(queue, &granted) == 0);
    CHECK(granted.max_wr >= 4);
    std::uint32_t number = 0;
    CHECK(ibv_get_srq_num(queue, &number) == EINVAL);
    CHECK(ibv_destroy_srq(queue) == 0);
  }
  CHECK(create(IBV_SRQ_INIT_ATTR_TYPE, IBV_SRQT_BASIC) == nullptr);
  CHECK(errno == EINVAL);
  CHECK(create(typed | IBV_SRQ_INIT_ATTR_CQ, IBV_SRQT_TM) == nullptr);
  CHECK(errno == EOPNOTSUPP);
  CHECK(create(typed | IBV_SRQ_INIT_ATTR_RESERVED, IBV_SRQT_BASIC) == nullptr);
  CHECK(errno == EOPNOTSUPP);
}

TEST_CASE("destroying a shared queue waits until its events are acknowledged") {
  endpoint host(sharing());
  endpoint sender;
  connect(sender, host);
  REQUIRE(set_limit(host, 1) == 0);
  REQUIRE(host.post_receive(1, {host.piece(0, 8)}) == 0);
  REQUIRE(sender.send(1, {sender.piece(0, 8)}) == 0);
  CHECK(host.wait().status == IBV_WC_SUCCESS);
  ibv_async_event event{};
  REQUIRE(ibv_get_async_event(host.context, &event) == 0);
  REQUIRE(ibv_destroy_qp(host.pair) == 0);
  host.pair = nullptr;
  CHECK(returns_only_after([&] { return ibv_destroy_srq(host.shared); },
                           [&] { ibv_ack_async_event(&event); }) == 0);
  host.shared = nullptr;
}
