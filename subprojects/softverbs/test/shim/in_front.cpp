// SPDX-License-Identifier: Apache-2.0
// Tests of libsoftverbs-faults in front of devices, which are soft devices here. They run only with
// that library.
#include "support/allocations.hpp"
#include "support/faults.hpp"
#include "support/forked.hpp"
#include "support/peer.hpp"
#include "support/xrc.hpp"

#include <fcntl.h>
#include <poll.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <string>
#include <thread>
#include <utility>

namespace {

using namespace std::chrono_literals;

/// A completion that was read field by field.
struct reading {
  std::uint64_t id;
  ibv_wc_status status;
  std::uint32_t pair;
  std::uint32_t bytes;
  std::uint32_t vendor;
};
std::vector<reading> read_all(ibv_cq_ex* from) {
  std::vector<reading> result;
  ibv_poll_cq_attr nothing{};
  int error = ibv_start_poll(from, &nothing);
  if (error != 0) return result;
  for (; error == 0; error = ibv_next_poll(from))
    result.push_back({from->wr_id, from->status, ibv_wc_read_qp_num(from),
                      from->status == IBV_WC_SUCCESS ? ibv_wc_read_byte_len(from) : 0,
                      ibv_wc_read_vendor_err(from)});
  CHECK(error == ENOENT);
  ibv_end_poll(from);
  return result;
}

std::vector<reading> read_some(ibv_cq_ex* from, std::size_t count) {
  std::vector<reading> result;
  const auto limit = std::chrono::steady_clock::now() + patience;
  while (result.size() < count && std::chrono::steady_clock::now() < limit)
    for (const reading& each : read_all(from)) result.push_back(each);
  return result;
}

}  // namespace

TEST_CASE("in front of a device: unsupported faults are refused", "[.][in front]") {
  for (const char* text :
       {"packet=lost", "packet:1%=doubled", "packet=port-down", "peer-lost", "peer-lost@5",
        "peer-back", "completion=peer-lost", "port-down@1", "port-down@", "port-down@soft0/0",
        "port-down@soft0/256", "device-fatal@soft0/1", "device-fatal@so ft0"}) {
    INFO(text);
    CHECK(softverbs_inject(text) == EINVAL);
  }
  CHECK(softverbs_faults_struck() == 0);
  for (const char* text : {"port-down@mlx5_0/2", "port-down@rxe-0.1", "device-fatal@hfi1_0"}) {
    INFO(text);
    CHECK(softverbs_inject(text) == 0);
  }
  softverbs_reset_faults();
}

TEST_CASE("in front of a device: a port goes down and up for all of its contexts",
          "[.][in front]") {
  endpoint one;
  endpoint two;
  endpoint other(options{.device = "soft1"});
  const faults set("port-down@soft0/1");
  for (endpoint* each : {&one, &two}) {
    CHECK(is_readable(each->context->async_fd));
    const ibv_async_event event = each->event();
    CHECK(event.event_type == IBV_EVENT_PORT_ERR);
    CHECK(event.element.port_num == 1);
    CHECK_FALSE(is_readable(each->context->async_fd));
    CHECK(port_of(*each) == IBV_PORT_DOWN);
  }
  CHECK_FALSE(is_readable(other.context->async_fd));
  CHECK(port_of(other) == IBV_PORT_ACTIVE);
  {
    // A context that is opened later also reports that the port is down, but it gets no event.
    endpoint late;
    CHECK(port_of(late) == IBV_PORT_DOWN);
    CHECK_FALSE(is_readable(late.context->async_fd));
  }
  faults::add("port-up");
  CHECK(one.event().event_type == IBV_EVENT_PORT_ACTIVE);
  CHECK(port_of(one) == IBV_PORT_ACTIVE);
  CHECK_FALSE(is_readable(other.context->async_fd));
  faults::add("port-down@soft0/7");
  CHECK(port_of(one) == IBV_PORT_ACTIVE);
}

TEST_CASE("in front of a device: the device's own events arrive as well", "[.][in front]") {
  endpoint end(options{.cq_entries = 1});
  end.connect(end.here());
  ::fcntl(end.context->async_fd, F_SETFL, O_NONBLOCK);
  ibv_async_event event{};
  CHECK(ibv_get_async_event(end.context, &event) == -1);
  CHECK(errno == EAGAIN);
  for (std::uint64_t id = 1; id <= 3; ++id)
    REQUIRE(end.write(id, {end.piece(0, 8)}, end.here()) == 0);
  REQUIRE(is_readable(end.context->async_fd, patience));
  REQUIRE(ibv_get_async_event(end.context, &event) == 0);
  CHECK((event.event_type == IBV_EVENT_CQ_ERR || event.event_type == IBV_EVENT_QP_FATAL));
  ibv_ack_async_event(&event);
}

TEST_CASE("in front of a device: a failed request makes its queue pair fail", "[.][in front]") {
  connection link;
  const faults set("send-completion" + at(link.left) + ":2=remote_access_error/7");
  REQUIRE(link.left.post_receive(10, {}) == 0);
  for (std::uint64_t id = 1; id <= 4; ++id)
    REQUIRE(link.left.write(id, {link.left.piece(0, 8)}, link.right.here()) == 0);
  completes(link.left, 1, IBV_WC_SUCCESS);
  completes(link.left, 2, IBV_WC_REM_ACCESS_ERR);
  completes(link.left, 3, IBV_WC_WR_FLUSH_ERR);
  completes(link.left, 4, IBV_WC_WR_FLUSH_ERR);
  completes(link.left, 10, IBV_WC_WR_FLUSH_ERR);
  CHECK(link.left.state() == IBV_QPS_ERR);
  // Once it has been reset, the queue pair works again.
  REQUIRE(link.left.change(IBV_QPS_RESET) == 0);
  REQUIRE(link.right.change(IBV_QPS_RESET) == 0);
  link.left.connect(link.right.here());
  link.right.connect(link.left.here());
  REQUIRE(link.left.write(5, {link.left.piece(0, 8)}, link.right.here()) == 0);
  completes(link.left, 5, IBV_WC_SUCCESS);
}

TEST_CASE("in front of a device: receives are distinguished from sends", "[.][in front]") {
  connection link;
  const faults set("receive-completion:2=local_length_error");
  for (std::uint64_t id = 1; id <= 3; ++id) {
    REQUIRE(link.right.post_receive(id, {link.right.piece(0, 8)}) == 0);
    if (id < 3) REQUIRE(link.left.send(10 + id, {link.left.piece(0, 8)}) == 0);
  }
  completes(link.left, 11, IBV_WC_SUCCESS);
  completes(link.left, 12, IBV_WC_SUCCESS);
  completes(link.right, 1, IBV_WC_SUCCESS);
  completes(link.right, 2, IBV_WC_LOC_LEN_ERR);
  completes(link.right, 3, IBV_WC_WR_FLUSH_ERR);
  CHECK(softverbs_faults_struck() == 1);
}

TEST_CASE("in front of a device: a session without attributes reads all fields", "[.][in front]") {
  ibv_cq_init_attr_ex asked{};
  asked.wc_flags = std::uint64_t{IBV_WC_STANDARD_FLAGS} | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP;
  extended_endpoint end(asked);
  end.connect(end.here());
  const faults set("completion=1us");
  REQUIRE(end.write(1, {end.piece(0, 8)}, end.here()) == 0);
  const auto limit = std::chrono::steady_clock::now() + patience;
  int error = ENOENT;
  while (error == ENOENT && std::chrono::steady_clock::now() < limit)
    error = ibv_start_poll(end.extended, nullptr);
  REQUIRE(error == 0);
  CHECK(end.extended->wr_id == 1);
  CHECK(ibv_wc_read_completion_ts(end.extended) != 0);
  ibv_end_poll(end.extended);
}

TEST_CASE("in front of a device: unknown attributes of a session are refused", "[.][in front]") {
  ibv_cq_init_attr_ex asked{};
  asked.wc_flags = IBV_WC_STANDARD_FLAGS;
  extended_endpoint end(asked);
  end.connect(end.here());
  const faults set("completion:*=1us");
  for (std::uint64_t id = 1; id <= 3; ++id)
    REQUIRE(end.write(id, {end.piece(0, 8)}, end.here()) == 0);
  end.start();
  CHECK(end.extended->wr_id == 1);
  ibv_end_poll(end.extended);
  // Further completions are usually held back already.
  ibv_poll_cq_attr unknown{.comp_mask = 1};
  CHECK(ibv_start_poll(end.extended, &unknown) == EINVAL);
  CHECK(read_some(end.extended, 2).size() == 2);
}

TEST_CASE("in front of a device: extended completions can fail and be delayed as well",
          "[.][in front]") {
  ibv_cq_init_attr_ex asked{};
  asked.wc_flags = std::uint64_t{IBV_WC_STANDARD_FLAGS} | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP;
  extended_endpoint end(asked);
  end.connect(end.here());
  {
    const faults set("completion:2=rem_op_err/0x1234");
    for (std::uint64_t id = 1; id <= 3; ++id)
      REQUIRE(end.write(id, {end.piece(0, 8)}, end.here()) == 0);
    const std::vector<reading> got = read_some(end.extended, 3);
    REQUIRE(got.size() == 3);
    CHECK(got[0].status == IBV_WC_SUCCESS);
    CHECK(got[0].pair == end.pair->qp_num);
    CHECK(got[1].id == 2);
    CHECK(got[1].status == IBV_WC_REM_OP_ERR);
    CHECK(got[1].vendor == 0x1234);
    CHECK(got[2].status == IBV_WC_WR_FLUSH_ERR);
  }
  REQUIRE(end.change(IBV_QPS_RESET) == 0);
  end.connect(end.here());
  const faults set("receive-completion=50ms");
  const auto start = std::chrono::steady_clock::now();
  REQUIRE(end.post_receive(4, {end.piece(100, 8)}) == 0);
  REQUIRE(end.send(5, {end.piece(0, 6)}) == 0);
  const std::vector<reading> got = read_some(end.extended, 2);
  REQUIRE(got.size() == 2);
  CHECK(std::chrono::steady_clock::now() - start >= 50ms);
  const reading& received = got[0].id == 4 ? got[0] : got[1];
  CHECK(received.id == 4);
  CHECK(received.bytes == 6);
  // While a session is open, the same thread can't begin another one.
  REQUIRE(end.send(6, {end.piece(0, 6)}, IBV_SEND_SIGNALED) == 0);
  REQUIRE(end.post_receive(7, {end.piece(100, 8)}) == 0);
  const faults more("completion=1us");
  end.start();
  CHECK(ibv_wc_read_completion_ts(end.extended) != 0);
  ibv_poll_cq_attr nothing{};
  CHECK(ibv_start_poll(end.extended, &nothing) == EBUSY);
  ibv_wc completion{};
  CHECK(ibv_poll_cq(ibv_cq_ex_to_cq(end.extended), 1, &completion) == -EBUSY);
  // The current completion can be read until the session ends, even if the faults are reset before
  // that.
  softverbs_reset_faults();
  const std::uint64_t id = end.extended->wr_id;
  CHECK(ibv_wc_read_qp_num(end.extended) == end.pair->qp_num);
  CHECK(end.extended->wr_id == id);
  ibv_end_poll(end.extended);
}

TEST_CASE("in front of a device: a waiting thread is notified of a delayed completion",
          "[.][in front]") {
  options wants{.channel = true};
  endpoint first(wants);
  wants.host = &first;
  endpoint second(wants);
  first.connect(first.here());
  second.connect(second.here());
  const faults set("completion" + at(first) + "=skew/80ms");
  const auto start = std::chrono::steady_clock::now();
  REQUIRE(ibv_req_notify_cq(first.queue, 0) == 0);
  REQUIRE(first.write(1, {first.piece(0, 8)}, first.here()) == 0);
  REQUIRE(second.write(2, {second.piece(0, 8)}, second.here()) == 0);
  // The test polls the descriptor, as an event loop would, instead of blocking in ibv_get_cq_event.
  std::string order;
  ::fcntl(first.channel->fd, F_SETFL, O_NONBLOCK);
  unsigned events = 0;
  while (order.size() < 2 && is_readable(first.channel->fd, patience)) {
    ibv_cq* queue = nullptr;
    void* context = nullptr;
    if (ibv_get_cq_event(first.channel, &queue, &context) != 0) {
      REQUIRE(errno == EAGAIN);
      continue;
    }
    ++events;
    CHECK(queue == first.queue);
    ibv_ack_cq_events(queue, 1);
    REQUIRE(ibv_req_notify_cq(queue, 0) == 0);
    ibv_wc completion{};
    while (ibv_poll_cq(queue, 1, &completion) == 1)
      order += static_cast<char>('0' + completion.wr_id);
  }
  CHECK(order == "21");
  CHECK(events >= 2);
  CHECK(std::chrono::steady_clock::now() - start >= 80ms);
  // At the end, the endpoint's destructor destroys the queue. It must not hang, although some of
  // the acknowledged events did not come from the device.
}

TEST_CASE("in front of a device: a batch of built requests fails as a whole", "[.][in front]") {
  endpoint end;
  ibv_qp_ex* build = build_requests_of(end, IBV_QP_EX_WITH_RDMA_WRITE);
  end.connect(end.here());
  const auto write = [&](std::uint64_t id) {
    ibv_wr_start(build);
    build->wr_id = id;
    build->wr_flags = IBV_SEND_SIGNALED;
    ibv_wr_rdma_write(build, end.region->rkey, end.here().memory);
    ibv_wr_set_sge(build, end.region->lkey, end.here().memory + 64, 8);
    return ibv_wr_complete(build);
  };
  const faults set("ibv_wr_complete:2=ENOMEM");
  CHECK(write(1) == 0);
  CHECK(write(2) == ENOMEM);
  CHECK(write(3) == 0);
  completes(end, 1, IBV_WC_SUCCESS);
  completes(end, 3, IBV_WC_SUCCESS);
  CHECK(end.quiet());
}

TEST_CASE("in front of a device: faults are set and reset while threads poll", "[.][in front]") {
  connection one;
  connection two;
  std::atomic<bool> stop{false};
  std::thread meddler([&] {
    while (!stop) {
      softverbs_inject("completion:*=200us..2ms; completion:7=skew/3ms; ibv_poll_cq:5=EIO");
      std::this_thread::yield();
      softverbs_reset_faults();
    }
  });
  const auto work = [](connection& link, std::uint64_t& done) {
    const auto limit = std::chrono::steady_clock::now() + patience;
    for (std::uint64_t id = 1; id <= 200; ++id) {
      if (link.left.write(id, {link.left.piece(0, 8)}, link.right.here()) != 0) return;
      ibv_wc completion{};
      while (ibv_poll_cq(link.left.queue, 1, &completion) != 1)
        if (std::chrono::steady_clock::now() > limit) return;
      if (completion.wr_id != id || completion.status != IBV_WC_SUCCESS) return;
      done = id;
    }
  };
  std::uint64_t here = 0;
  std::uint64_t there = 0;
  std::thread other([&] { work(two, there); });
  work(one, here);
  other.join();
  stop = true;
  meddler.join();
  softverbs_reset_faults();
  CHECK(here == 200);
  CHECK(there == 200);
}

TEST_CASE("in front of a device: a child of fork keeps the timer of its parent running",
          "[.][in front]") {
  endpoint end;
  const faults set("after:200ms=port-down");
  const forked child([] {
    // The child removes its own faults, which must not stop its parent's timer.
    softverbs_reset_faults();
    return softverbs_inject("ibv_alloc_pd=ENOMEM") == 0;
  });
  CHECK(child.ended_well());
  CHECK(is_readable(end.context->async_fd, patience));
  CHECK(end.event().event_type == IBV_EVENT_PORT_ERR);
}

TEST_CASE("in front of a device: closing the device frees everything", "[.][in front]") {
  const auto descriptors = [] {
    int count = 0;
    for (int each = 0; each < 1024; ++each) count += ::fcntl(each, F_GETFD) >= 0 ? 1 : 0;
    return count;
  };
  const auto open_and_close = [] {
    {
      endpoint end(options{.channel = true});
      end.connect(end.here());
      const faults set("completion:*=10s");
      REQUIRE(end.write(1, {end.piece(0, 8)}, end.here()) == 0);
      CHECK(end.quiet());
    }
    // If the program doesn't destroy these objects, they are freed together with the device.
    open_context device;
    ibv_comp_channel* channel = ibv_create_comp_channel(device.verbs);
    REQUIRE(channel != nullptr);
    ibv_cq* queue = ibv_create_cq(device.verbs, 4, nullptr, channel, 0);
    REQUIRE(queue != nullptr);
    ibv_qp_init_attr attributes = pair_with(queue, {4, 4, 1, 1, 0});
    REQUIRE(ibv_create_qp(ibv_alloc_pd(device.verbs), &attributes) != nullptr);
  };
  // Some things are allocated only once, and kept for devices that are opened later.
  open_and_close();
  const int open_before = descriptors();
  const long kept_before = allocations::not_freed();
  for (int round = 0; round < 3; ++round) open_and_close();
  const long kept_after = allocations::not_freed();
  CHECK(descriptors() == open_before);
  // Earlier tests may have left memory that is freed in the meantime.
  CHECK(kept_after <= kept_before);
}

TEST_CASE(
    "in front of a device: faults affect an XRC queue pair until its last handle is destroyed",
    "[.][in front]") {
  xrc_connection both;
  ibv_qp_open_attr asked = to_open(both.receiver.target, both.receiver.domain);
  ibv_qp* second = ibv_open_qp(both.receiver.end.context, &asked);
  REQUIRE(second != nullptr);
  const faults set("receive-completion@" + std::to_string(second->qp_num) +
                   ":2=local_length_error");
  for (std::uint64_t id = 0; id < 2; ++id) {
    REQUIRE(both.receiver.post(both.receiver.shared, id, 0, 64) == 0);
    REQUIRE(both.sender.send_to(id, number_of(both.receiver.shared), 8) == 0);
    CHECK(both.sender.wait().status == IBV_WC_SUCCESS);
  }
  CHECK(ibv_destroy_qp(second) == 0);
  completes(both.receiver.end, 0, IBV_WC_SUCCESS);
  completes(both.receiver.end, 1, IBV_WC_LOC_LEN_ERR);
  CHECK(both.receiver.state() == IBV_QPS_ERR);
}

TEST_CASE("in front of a device: XRC completions outlive their queue pair", "[.][in front]") {
  xrc_connection both;
  const faults set("receive-completion=200ms");
  REQUIRE(both.receiver.post(both.receiver.shared, 7, 0, 64) == 0);
  REQUIRE(both.sender.send_to(1, number_of(both.receiver.shared), 8) == 0);
  CHECK(both.sender.wait().status == IBV_WC_SUCCESS);
  // This poll takes the completion from the device, and holds it back.
  ibv_wc none{};
  CHECK(ibv_poll_cq(both.receiver.end.queue, 1, &none) == 0);
  CHECK(ibv_destroy_qp(std::exchange(both.receiver.target, nullptr)) == 0);
  completes(both.receiver.end, 7, IBV_WC_SUCCESS);
}

TEST_CASE("in front of a device: the creation of an XRC shared receive queue can fail",
          "[.][in front]") {
  xrc_receiver receiver;
  ibv_srq_init_attr_ex wanted = to_share(receiver.end.domain, receiver.domain, receiver.end.queue);
  const faults set("ibv_create_srq=ENOSPC");
  CHECK(refusal([&] { return ibv_create_srq_ex(receiver.end.context, &wanted); }) == ENOSPC);
}
