// SPDX-License-Identifier: Apache-2.0
#include "catch.hpp"
#include "support/fabric.hpp"
#include "support/waiting_call.hpp"

#include <fcntl.h>

#include <cerrno>

namespace {

options with_channel() { return {.channel = true}; }

void take_event(endpoint& end) {
  ibv_cq* queue = nullptr;
  void* user_context = nullptr;
  REQUIRE(ibv_get_cq_event(end.channel, &queue, &user_context) == 0);
  CHECK(queue == end.queue);
  CHECK(user_context == &end);
  ibv_ack_cq_events(queue, 1);
}

}  // namespace

TEST_CASE("a completion wakes a sleeping thread that armed the queue, but only once") {
  connection link(with_channel());
  REQUIRE(ibv_req_notify_cq(link.right.queue, 0) == 0);
  for (std::uint64_t id = 0; id < 2; ++id)
    REQUIRE(link.right.post_receive(id, {link.right.piece(0, 8)}) == 0);
  CHECK(!is_readable(link.right.channel->fd, a_moment));
  REQUIRE(link.left.send(1, {link.left.piece(0, 8)}) == 0);
  // The program does not poll, so the device's own thread must process the message.
  take_event(link.right);
  CHECK(link.right.wait().wr_id == 0);
  REQUIRE(link.left.send(2, {link.left.piece(0, 8)}) == 0);
  CHECK(link.right.wait().wr_id == 1);
  CHECK(!is_readable(link.right.channel->fd, a_moment));
}

TEST_CASE("a queue that is armed for solicited completions reports only these and errors") {
  connection link(with_channel());
  REQUIRE(ibv_req_notify_cq(link.right.queue, 1) == 0);
  for (std::uint64_t id = 0; id < 3; ++id)
    REQUIRE(link.right.post_receive(id, {link.right.piece(0, 8)}) == 0);
  REQUIRE(link.left.send(1, {link.left.piece(0, 8)}) == 0);
  CHECK(link.left.wait().status == IBV_WC_SUCCESS);
  CHECK(!is_readable(link.right.channel->fd, a_moment));
  REQUIRE(link.left.send(2, {link.left.piece(0, 8)}, IBV_SEND_SIGNALED | IBV_SEND_SOLICITED) == 0);
  take_event(link.right);
  CHECK(link.right.wait().wr_id == 0);
  CHECK(link.right.wait().wr_id == 1);
  REQUIRE(ibv_req_notify_cq(link.right.queue, 1) == 0);
  REQUIRE(link.right.change(IBV_QPS_ERR) == 0);
  take_event(link.right);
  CHECK(link.right.wait().status == IBV_WC_WR_FLUSH_ERR);
}

TEST_CASE("a nonblocking channel returns EAGAIN") {
  connection link(with_channel());
  const int flags = ::fcntl(link.left.channel->fd, F_GETFL);
  REQUIRE(::fcntl(link.left.channel->fd, F_SETFL, flags | O_NONBLOCK) == 0);
  ibv_cq* queue = nullptr;
  void* user_context = nullptr;
  errno = 0;
  CHECK(ibv_get_cq_event(link.left.channel, &queue, &user_context) == -1);
  CHECK(errno == EAGAIN);
}

TEST_CASE("destroying a completion queue removes its unread event") {
  endpoint end;
  ibv_comp_channel* channel = ibv_create_comp_channel(end.context);
  ibv_cq* queue = ibv_create_cq(end.context, 4, nullptr, channel, 0);
  REQUIRE(queue != nullptr);
  ibv_qp_init_attr attributes = pair_with(queue, {4, 4, 1, 1, 0});
  ibv_qp* pair = ibv_create_qp(end.domain, &attributes);
  REQUIRE(pair != nullptr);
  ibv_qp_attr state{};
  state.qp_state = IBV_QPS_INIT;
  state.port_num = 1;
  REQUIRE(ibv_modify_qp(pair, &state,
                        IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0);
  ibv_recv_wr request{};
  ibv_recv_wr* bad = nullptr;
  REQUIRE(ibv_post_recv(pair, &request, &bad) == 0);
  REQUIRE(ibv_req_notify_cq(queue, 0) == 0);
  state.qp_state = IBV_QPS_ERR;
  REQUIRE(ibv_modify_qp(pair, &state, IBV_QP_STATE) == 0);
  REQUIRE(is_readable(channel->fd, patience));
  REQUIRE(ibv_destroy_qp(pair) == 0);
  REQUIRE(ibv_destroy_cq(queue) == 0);
  CHECK(!is_readable(channel->fd));
  CHECK(ibv_destroy_comp_channel(channel) == 0);
}

TEST_CASE("a completion queue can be resized but not below the number of its completions") {
  endpoint end;
  REQUIRE(end.initialize() == 0);
  constexpr std::uint64_t count = 40;
  for (std::uint64_t id = 0; id < count; ++id) REQUIRE(end.post_receive(id, {}) == 0);
  REQUIRE(end.change(IBV_QPS_ERR) == 0);
  CHECK(end.wait().wr_id == 0);
  CHECK(ibv_resize_cq(end.queue, 20) == EINVAL);
  CHECK(ibv_resize_cq(end.queue, 0) == EINVAL);
  CHECK(ibv_resize_cq(end.queue, 1000) == 0);
  CHECK(end.queue->cqe >= 1000);
  for (std::uint64_t id = 1; id < count; ++id) CHECK(end.wait().wr_id == id);
  CHECK(ibv_resize_cq(end.queue, 1) == 0);
  CHECK(end.queue->cqe < 1000);
}

TEST_CASE("a completion queue can't be resized below the number of completed sends") {
  endpoint end(options{.type = IBV_QPT_UD});
  end.connect(end.here());
  const address_handle handle(end, end.here());
  // When the queue is resized, the device's thread may or may not have processed the sends. This
  // can differ from round to round.
  for (int round = 0; round < 20; ++round) {
    REQUIRE(ibv_resize_cq(end.queue, 7) == 0);
    for (std::uint64_t id = 0; id < 6; ++id)
      REQUIRE(end.send_to(handle, end.pair->qp_num, id, {end.piece(0, 8)}) == 0);
    CHECK(ibv_resize_cq(end.queue, 1) == EINVAL);
    for (std::uint64_t id = 0; id < 6; ++id) CHECK(end.wait().wr_id == id);
  }
}

TEST_CASE("destroying a queue waits until its events are acknowledged") {
  connection link(with_channel());
  REQUIRE(ibv_req_notify_cq(link.right.queue, 0) == 0);
  REQUIRE(link.right.post_receive(1, {}) == 0);
  REQUIRE(link.right.change(IBV_QPS_ERR) == 0);
  ibv_cq* const queue = take_event_of(link.right.channel);
  CHECK(link.right.wait().wr_id == 1);
  REQUIRE(ibv_destroy_qp(link.right.pair) == 0);
  link.right.pair = nullptr;
  REQUIRE(returns_only_after([&] { return ibv_destroy_cq(link.right.queue); },
                             [&] { ibv_ack_cq_events(queue, 1); }) == 0);
  link.right.queue = ibv_create_cq(link.right.context, 1, nullptr, nullptr, 0);
}

TEST_CASE("the first packet in RTR raises IBV_EVENT_COMM_EST") {
  endpoint left;
  endpoint right;
  left.connect(right.here());
  REQUIRE(right.initialize() == 0);
  REQUIRE(right.post_receive(1, {right.piece(0, 8)}) == 0);
  REQUIRE(right.ready_to_receive(left.here()) == 0);
  REQUIRE(left.send(2, {left.piece(0, 8)}) == 0);
  const ibv_async_event event = right.event();
  CHECK(event.event_type == IBV_EVENT_COMM_EST);
  CHECK(event.element.qp == right.pair);
  CHECK(right.wait().wr_id == 1);
}

TEST_CASE("SQ_DRAINED is raised if it was requested") {
  connection link;
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_SQD;
  attributes.en_sqd_async_notify = 1;
  REQUIRE(link.left.write(1, {link.left.piece(0, 500000)}, link.right.here()) == 0);
  REQUIRE(ibv_modify_qp(link.left.pair, &attributes, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY) ==
          0);
  CHECK(link.left.event().event_type == IBV_EVENT_SQ_DRAINED);
}

TEST_CASE("SQ_DRAINED is raised only on request and only once") {
  for (const ibv_qp_type type : {IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD}) {
    connection link(options{.type = type});
    ibv_qp_attr attributes{};
    attributes.qp_state = IBV_QPS_SQD;
    for (const std::uint8_t notify : {1, 0}) {
      attributes.en_sqd_async_notify = notify;
      REQUIRE(ibv_modify_qp(link.left.pair, &attributes,
                            IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY) == 0);
      if (notify == 1) CHECK(link.left.event().event_type == IBV_EVENT_SQ_DRAINED);
      REQUIRE(link.left.change(IBV_QPS_RTS) == 0);
      REQUIRE(link.left.change(IBV_QPS_SQD) == 0);
      CHECK(!is_readable(link.left.context->async_fd, a_moment));
      REQUIRE(link.left.change(IBV_QPS_RTS) == 0);
    }
  }
}
