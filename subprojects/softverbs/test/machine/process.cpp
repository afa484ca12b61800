// SPDX-License-Identifier: Apache-2.0
#include "catch.hpp"
#include "support/allocations.hpp"
#include "support/fabric.hpp"
#include "support/faults.hpp"
#include "support/forked.hpp"
#include "support/peer.hpp"
#include <softverbs/softverbs.h>

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <iterator>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace {

/// Returns options with which an endpoint detects within milliseconds that the process of its peer
/// has exited.
options watchful() { return {.timeout = 8, .retry_count = 3}; }

/// While an object of this class exists, a fault is set, so the device sends all requests as
/// packets.
struct only_packets {
  only_packets() { REQUIRE(softverbs_inject("ibv_alloc_pd:1000000=EIO") == 0); }
  only_packets(const only_packets&) = delete;
  only_packets& operator=(const only_packets&) = delete;
  ~only_packets() { softverbs_reset_faults(); }
};

}  // namespace

TEST_CASE("messages go to another process and back") {
  peer other("echo");
  endpoint end;
  other.meet(end);
  for (const std::uint32_t size : {1U, 64U, 4096U, 32768U}) {
    for (std::size_t at = 0; at < size; ++at)
      end.memory[at] = static_cast<unsigned char>(at + size);
    REQUIRE(end.post_receive(1, {end.piece(1 << 19, size)}) == 0);
    REQUIRE(end.send(2, {end.piece(0, size)}) == 0);
    for (int left = 2; left > 0; --left) CHECK(end.wait().status == IBV_WC_SUCCESS);
    CHECK(
        std::equal(end.memory.begin(), end.memory.begin() + size, end.memory.begin() + (1 << 19)));
  }
  REQUIRE(end.send(3, {}) == 0);
  CHECK(end.wait().status == IBV_WC_SUCCESS);
  CHECK(other.wait() == 0);
}

TEST_CASE("the memory of an inactive process can be read and written") {
  peer other("target");
  endpoint end;
  const address there = other.meet(end);
  REQUIRE(end.read(1, {end.piece(0, 1 << 19)}, there) == 0);
  CHECK(end.wait().status == IBV_WC_SUCCESS);
  for (std::size_t at = 0; at < 1 << 19; ++at)
    if (end.memory[at] != static_cast<unsigned char>(at * 13)) FAIL("wrong byte at " << at);
  std::fill_n(end.memory.begin(), 100000, static_cast<unsigned char>(7));
  REQUIRE(end.write(2, {end.piece(0, 100000)}, there, 5) == 0);
  REQUIRE(end.read(3, {end.piece(1 << 19, 100000)}, there, 5) == 0);
  CHECK(end.wait().wr_id == 2);
  CHECK(end.wait().wr_id == 3);
  CHECK(
      std::equal(end.memory.begin(), end.memory.begin() + 100000, end.memory.begin() + (1 << 19)));
  other.finish();
}

TEST_CASE(
    "a process that exits right after it has received a message has acknowledged the message") {
  for (int round = 0; round < 5; ++round) {
    peer other("leaver");
    endpoint end(watchful());
    other.meet(end);
    REQUIRE(end.send(1, {end.piece(0, 1 << 20)}) == 0);
    CHECK(end.wait().status == IBV_WC_SUCCESS);
    CHECK(other.wait() == 0);
  }
}

TEST_CASE("an acknowledgement that has arrived in time is accepted even if it is read late") {
  peer other("leaver");
  endpoint end({.timeout = 8, .retry_count = 0});
  other.meet(end);
  standstill held;
  REQUIRE(end.send(1, {end.piece(0, 64)}) == 0);
  REQUIRE(softverbs_step() == 1);
  // The peer sent the acknowledgement before it exited.
  REQUIRE(other.wait() == 0);
  // steady: the ACK timeout expires during this pause; on a slower machine, it has expired earlier
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  held.go_on();
  CHECK(end.wait().status == IBV_WC_SUCCESS);
}

TEST_CASE("two processes may send large amounts to each other") {
  peer other("flood");
  endpoint end;
  REQUIRE(end.initialize() == 0);
  for (std::uint64_t id = 0; id < 30; ++id)
    REQUIRE(end.post_receive(id, {end.piece(1 << 19, 300000)}) == 0);
  other.meet(end);
  for (std::uint64_t id = 0; id < 30; ++id)
    REQUIRE(end.send(100 + id, {end.piece(0, 300000)}) == 0);
  for (int left = 60; left > 0; --left) REQUIRE(end.wait().status == IBV_WC_SUCCESS);
  CHECK(other.wait() == 0);
}

TEST_CASE("a request to a peer that has died exhausts its retries") {
  peer other("target");
  endpoint end(watchful());
  const address there = other.meet(end);
  REQUIRE(end.write(1, {end.piece(0, 8)}, there) == 0);
  CHECK(end.wait().status == IBV_WC_SUCCESS);
  other.kill();
  CHECK(other.wait() == 1000 + SIGKILL);
  REQUIRE(end.write(2, {end.piece(0, 8)}, there) == 0);
  CHECK(end.wait().status == IBV_WC_RETRY_EXC_ERR);
}

TEST_CASE("a peer that dies in the middle of a transfer leaves no call hanging") {
  const only_packets asked;
  peer other("target");
  options wanted = watchful();
  wanted.send_requests = 256;
  wanted.cq_entries = 1024;
  endpoint end(wanted);
  const address there = other.meet(end);
  std::uint64_t posted = 0;
  const auto post = [&] { REQUIRE(end.write(posted++, {end.piece(0, 1 << 20)}, there) == 0); };
  while (posted < 256) post();
  CHECK(end.wait().wr_id == 0);
  other.kill();
  ibv_wc completion = end.wait();
  std::uint64_t id = 1;
  // Some writes may complete before the peer dies, while others are still in flight.
  for (; completion.status == IBV_WC_SUCCESS; completion = end.wait()) {
    CHECK(completion.wr_id == id++);
    post();
  }
  CHECK(completion.status == IBV_WC_RETRY_EXC_ERR);
  CHECK(completion.wr_id == id++);
  for (; id < posted; ++id) {
    const ibv_wc flushed = end.wait();
    CHECK(flushed.wr_id == id);
    CHECK(flushed.status == IBV_WC_WR_FLUSH_ERR);
  }
}

TEST_CASE("a stopped peer's memory can be read and written") {
  if (!shares_memory()) return;
  peer other("target");
  endpoint end(watchful());
  const address there = other.meet(end);
  REQUIRE((!shares_memory() || becomes_direct(end, there, 0, 8)));
  other.stop();
  for (std::uint64_t id = 0; id < 8; ++id) {
    std::fill_n(end.memory.begin(), 1 << 18, static_cast<unsigned char>(id));
    REQUIRE(end.write(id, {end.piece(0, 1 << 18)}, there) == 0);
    CHECK(end.wait().status == IBV_WC_SUCCESS);
    REQUIRE(end.read(id, {end.piece(1 << 18, 1 << 18)}, there) == 0);
    CHECK(end.wait().status == IBV_WC_SUCCESS);
    CHECK(std::equal(end.memory.begin(), end.memory.begin() + (1 << 18),
                     end.memory.begin() + (1 << 18)));
  }
  other.resume();
  other.finish();
}

TEST_CASE("a peer that does not share its memory is reached only by packets") {
  if (!shares_memory()) return;
  peer other("target", "SOFTVERBS_SHARED_MEMORY=no");
  endpoint end(patient());
  const address there = other.meet(end);
  int direct = 0;
  for (std::uint64_t id = 0; id < 300; ++id) {
    const std::uint32_t before = next_psn_of(end);
    REQUIRE(end.write(id, {end.piece(0, 8)}, there) == 0);
    CHECK(end.wait().status == IBV_WC_SUCCESS);
    if (next_psn_of(end) == before) ++direct;
  }
  CHECK(direct == 0);
  other.finish();
}

TEST_CASE("if a peer dies between one-sided requests, a later request exhausts its retries") {
  for (const std::uint64_t last : {1, 2, 4, 20, 100}) {
    peer other("target");
    endpoint end(watchful());
    const address there = other.meet(end);
    REQUIRE((!shares_memory() || becomes_direct(end, there, 0, 8)));
    ibv_wc completion{};
    std::uint64_t id = 0;
    do {
      REQUIRE(end.write(++id, {end.piece(0, 1 << 16)}, there) == 0);
      // It takes a moment for the peer to die. Until then, requests succeed.
      if (id == last) other.kill();
      completion = end.wait();
      CHECK(completion.wr_id == id);
    } while (completion.status == IBV_WC_SUCCESS);
    CHECK(id >= last);
    CHECK(completion.status == IBV_WC_RETRY_EXC_ERR);
  }
}

TEST_CASE("a peer may deregister its region while another process writes to it") {
  for (const bool directly : {false, true}) {
    if (directly && !shares_memory()) continue;
    CAPTURE(directly);
    std::optional<only_packets> asked;
    if (!directly) asked.emplace();
    peer other("withdrawer");
    endpoint end(watchful());
    const address there = other.meet(end);
    if (directly) REQUIRE(becomes_direct(end, there));
    ibv_wc completion{};
    for (int count = 0; completion.status == IBV_WC_SUCCESS; ++count) {
      REQUIRE(end.write(1, {end.piece(0, 1 << 16)}, there) == 0);
      completion = end.wait();
      if (count == 0) other.tell('w');
    }
    CHECK(completion.status == IBV_WC_REM_ACCESS_ERR);
    CHECK(other.wait() == 0);
  }
}

TEST_CASE("a peer that is stopped for a while loses no packets") {
  const only_packets asked;
  peer other("target");
  endpoint end(watchful());
  const address there = other.meet(end);
  other.stop();
  for (std::uint64_t id = 0; id < 8; ++id)
    REQUIRE(end.write(id, {end.piece(0, 1 << 18)}, there) == 0);
  CHECK(end.quiet());
  other.resume();
  for (std::uint64_t id = 0; id < 8; ++id) CHECK(end.wait().status == IBV_WC_SUCCESS);
  other.finish();
}

TEST_CASE("UC: writes to another process complete, even after that process has exited") {
  peer other("unreliable target");
  endpoint end(options{.type = IBV_QPT_UC});
  const address there = other.meet(end);
  for (std::uint64_t id = 0; id < 20; ++id) {
    REQUIRE(end.write(id, {end.piece(0, 1 << 19)}, there) == 0);
    CHECK(end.wait().status == IBV_WC_SUCCESS);
  }
  other.finish();
  REQUIRE(end.write(1, {end.piece(0, 8)}, there) == 0);
  CHECK(end.wait().status == IBV_WC_SUCCESS);
}

TEST_CASE("UD: datagrams go to another process and back") {
  peer other("datagram echo");
  endpoint end(options{.type = IBV_QPT_UD});
  const address there = other.meet(end);
  const address_handle handle(end, there);
  for (std::uint32_t size = 1; size <= 4096; size *= 2) {
    std::fill_n(end.memory.begin(), size, static_cast<unsigned char>(size % 251));
    REQUIRE(end.post_receive(1, {end.piece(1 << 19, 5000)}) == 0);
    REQUIRE(end.send_to(handle, there.qpn, 2, {end.piece(0, size)}) == 0);
    for (int left = 2; left > 0; --left) CHECK(end.wait().status == IBV_WC_SUCCESS);
    CHECK(std::equal(end.memory.begin(), end.memory.begin() + size,
                     end.memory.begin() + (1 << 19) + sizeof(ibv_grh)));
  }
  REQUIRE(end.send_to(handle, there.qpn, 3, {}) == 0);
  CHECK(end.wait().status == IBV_WC_SUCCESS);
  CHECK(other.wait() == 0);
}

TEST_CASE("a multicast reaches members in several processes") {
  const options wanted{.type = IBV_QPT_UD};
  endpoint first(wanted);
  endpoint second(wanted);
  peer one("member");
  peer two("member");
  one.meet(first);
  two.meet(second);
  ibv_ah_attr attributes{};
  attributes.port_num = 1;
  attributes.is_global = 1;
  attributes.grh.dgid = group_of(::getpid());
  attributes.grh.sgid_index = on_ethernet() ? 5 : 0;
  attributes.dlid = on_ethernet() ? 0 : lid_of_group;
  const address_handle handle(first, attributes);
  for (std::uint64_t id = 0; id < 10; ++id)
    REQUIRE(first.send_to(handle, 0xffffff, id, {first.piece(0, 100)}) == 0);
  for (std::uint64_t id = 0; id < 10; ++id) CHECK(first.wait().status == IBV_WC_SUCCESS);
  CHECK(one.wait() == 0);
  CHECK(two.wait() == 0);
}

TEST_CASE("UD: a process that doesn't receive datagrams can't block other processes") {
  peer stopped("datagram target");
  endpoint end(options{.type = IBV_QPT_UD});
  const address there = stopped.meet(end);
  const address_handle handle(end, there);
  stopped.stop();
  // These rounds send more datagrams than fit into the socket's buffer.
  for (int round = 0; round < 10; ++round) {
    for (std::uint64_t id = 0; id < 60; ++id)
      REQUIRE(end.send_to(handle, there.qpn, id, {end.piece(0, 4096)}) == 0);
    for (std::uint64_t id = 0; id < 60; ++id) CHECK(end.wait().status == IBV_WC_SUCCESS);
  }
}

TEST_CASE("a send queue is drained once the peer has answered and can't be changed before") {
  const only_packets asked;
  peer other("target");
  endpoint end;
  const address there = other.meet(end);
  other.stop();
  REQUIRE(end.write(1, {end.piece(0, 1 << 20)}, there) == 0);
  CHECK(end.quiet());
  ibv_qp_attr attributes{};
  ibv_qp_init_attr made{};
  attributes.qp_state = IBV_QPS_SQD;
  attributes.en_sqd_async_notify = 1;
  REQUIRE(ibv_modify_qp(end.pair, &attributes, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY) == 0);
  REQUIRE(end.write(2, {end.piece(0, 8)}, there) == 0);
  REQUIRE(ibv_query_qp(end.pair, &attributes, IBV_QP_STATE, &made) == 0);
  CHECK(attributes.qp_state == IBV_QPS_SQD);
  CHECK(attributes.sq_draining == 1);
  attributes.qp_state = IBV_QPS_SQD;
  attributes.min_rnr_timer = 5;
  CHECK(ibv_modify_qp(end.pair, &attributes, IBV_QP_STATE | IBV_QP_MIN_RNR_TIMER) == EINVAL);
  CHECK(end.change(IBV_QPS_RTS) == EINVAL);
  other.resume();
  CHECK(end.event().event_type == IBV_EVENT_SQ_DRAINED);
  CHECK(end.wait().wr_id == 1);
  REQUIRE(ibv_query_qp(end.pair, &attributes, IBV_QP_STATE, &made) == 0);
  CHECK(attributes.sq_draining == 0);
  attributes.min_rnr_timer = 5;
  CHECK(ibv_modify_qp(end.pair, &attributes, IBV_QP_STATE | IBV_QP_MIN_RNR_TIMER) == 0);
  CHECK(end.quiet());
  REQUIRE(end.change(IBV_QPS_RTS) == 0);
  CHECK(end.wait().wr_id == 2);
  other.finish();
}

#if !defined(NO_THREADS_AFTER_FORK)
namespace {

/// Returns a completion queue that overruns, which causes an asynchronous event. Returns null if a
/// call fails.
ibv_cq* overrun_queue(ibv_context* verbs) {
  ibv_pd* const domain = ibv_alloc_pd(verbs);
  ibv_cq* const queue = ibv_create_cq(verbs, 1, nullptr, nullptr, 0);
  if (domain == nullptr || queue == nullptr) return nullptr;
  ibv_qp_init_attr wanted = pair_with(queue, {1, 8, 1, 1, 0}, IBV_QPT_UD);
  ibv_qp* const pair = ibv_create_qp(domain, &wanted);
  if (pair == nullptr) return nullptr;
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_INIT;
  attributes.port_num = 1;
  bool well = ibv_modify_qp(pair, &attributes,
                            IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX | IBV_QP_QKEY) == 0;
  ibv_recv_wr request{};
  ibv_recv_wr* bad = nullptr;
  for (int count = 0; count < queue->cqe + 2; ++count)
    well = well && ibv_post_recv(pair, &request, &bad) == 0;
  attributes.qp_state = IBV_QPS_ERR;
  well = well && ibv_modify_qp(pair, &attributes, IBV_QP_STATE) == 0;
  return well ? queue : nullptr;
}

}  // namespace

TEST_CASE("a child of fork can open the device again and doesn't affect its parent") {
  connection link;
  const forked child([&] {
    ibv_wc completion{};
    bool well = ibv_reg_mr(link.left.domain, &completion, 8, 0) == nullptr && errno == EIO;
    well = well && ibv_poll_cq(link.left.queue, 1, &completion) <= 0;
    connection own;
    well = well && own.right.post_receive(1, {own.right.piece(0, 8)}) == 0;
    well = well && own.left.send(2, {own.left.piece(0, 8)}) == 0;
    return well && own.right.wait().status == IBV_WC_SUCCESS;
  });
  still_works(link);
  CHECK(child.ended_well());
}

TEST_CASE("the device's thread has the nice value of the program") {
  const forked child([] {
    if (::setpriority(PRIO_PROCESS, 0, 5) != 0) return false;
    const connection own;
    const std::filesystem::directory_iterator threads("/proc/self/task");
    return std::all_of(begin(threads), end(threads), [](const auto& thread) {
      return ::getpriority(PRIO_PROCESS, std::stoul(thread.path().filename())) == 5;
    });
  });
  CHECK(child.ended_well());
}

TEST_CASE("a child of fork can create objects on a device that its parent opened") {
  connection link;
  ibv_comp_channel* const parents = ibv_create_comp_channel(link.left.context);
  REQUIRE(parents != nullptr);
  ibv_cq* const told = ibv_create_cq(link.left.context, 4, nullptr, parents, 0);
  REQUIRE(told != nullptr);
  const forked child([&] {
    ibv_context* const inherited = link.left.context;
    std::array<unsigned char, 64> bytes{};
    ibv_alloc_dm_attr wanted{64, 0, 0};
    ibv_dm* const memory = ibv_alloc_dm(inherited, &wanted);
    ibv_pd* const domain = ibv_alloc_pd(inherited);
    ibv_cq* const queue = ibv_create_cq(inherited, 4, nullptr, nullptr, 0);
    ibv_comp_channel* const channel = ibv_create_comp_channel(inherited);
    bool well = memory != nullptr && domain != nullptr && queue != nullptr && channel != nullptr;
    well = well && ibv_memcpy_to_dm(memory, 0, bytes.data(), bytes.size()) == 0;
    ibv_mr* const region = well ? ibv_reg_mr(domain, bytes.data(), bytes.size(), 0) : nullptr;
    ibv_qp_init_attr attributes = pair_with(queue, {1, 1, 1, 1, 0});
    ibv_qp* const pair = well ? ibv_create_qp(domain, &attributes) : nullptr;
    well = well && region != nullptr && pair != nullptr;
    // The child can't use objects that its parent has created.
    attributes.send_cq = link.left.queue;
    well = well && ibv_create_qp(domain, &attributes) == nullptr && errno == EINVAL;
    well = well && ibv_create_cq(inherited, 4, nullptr, parents, 0) == nullptr && errno == EINVAL;
    ibv_cq* source = nullptr;
    void* of = nullptr;
    well = well && ibv_get_cq_event(parents, &source, &of) == -1 && errno == EIO;
    well = well && ibv_dealloc_pd(link.left.domain) == EIO;
    well = well && ibv_dealloc_pd(domain) == EBUSY && ibv_destroy_qp(pair) == 0;
    well = well && ibv_dereg_mr(region) == 0 && ibv_dealloc_pd(domain) == 0;
    well = well && ibv_free_dm(memory) == 0 && ibv_destroy_cq(queue) == 0;
    // Closing the device destroys the remaining objects.
    well = well && ibv_close_device(inherited) == 0;
    return well;
  });
  CHECK(child.ended_well());
  still_works(link);
  CHECK(ibv_destroy_cq(told) == 0);
  CHECK(ibv_destroy_comp_channel(parents) == 0);
}

TEST_CASE("a child of fork can close an inherited device through the context of its own objects") {
  const open_context opened;
  ibv_context* const inherited = opened.verbs;
  const forked child([&] {
    ibv_pd* domain = ibv_alloc_pd(inherited);
    bool well = domain != nullptr;
    const pid_t grandchild = ::fork();
    well = well && ibv_close_device(domain->context) == 0;
    domain = ibv_alloc_pd(inherited);
    well = well && domain != nullptr && ibv_dealloc_pd(domain) == 0;
    domain = ibv_alloc_pd(inherited);
    well = well && domain != nullptr;
    ibv_context* const own = well ? domain->context : nullptr;
    // The grandchild can close the two contexts independently of each other.
    if (grandchild == 0) {
      well = well && ibv_close_device(own) == 0 && ibv_close_device(inherited) == 0;
      ::_exit(well ? 0 : 1);
    }
    well = well && ibv_close_device(inherited) == 0;
    int status = 0;
    well = well && ::waitpid(grandchild, &status, 0) == grandchild && status == 0;
    return well;
  });
  CHECK(child.ended_well());
}

TEST_CASE("a child of fork gets asynchronous events of its own from an inherited device") {
  const open_context opened;
  ibv_context* const inherited = opened.verbs;
  const int flags = ::fcntl(inherited->async_fd, F_GETFL);
  REQUIRE(::fcntl(inherited->async_fd, F_SETFL, flags | O_NONBLOCK) == 0);
  ibv_cq* const parents = overrun_queue(inherited);
  REQUIRE(parents != nullptr);
  REQUIRE(has_event(inherited, patience));
  ibv_async_event event{};
  const forked child([&] {
    bool well = ibv_get_async_event(inherited, &event) == -1 && errno == EAGAIN;
    ibv_cq* const queue = overrun_queue(inherited);
    well = well && queue != nullptr && has_event(inherited, patience);
    well = well && ibv_get_async_event(inherited, &event) == 0;
    well = well && event.event_type == IBV_EVENT_CQ_ERR && event.element.cq == queue;
    if (well) ibv_ack_async_event(&event);
    well = well && ibv_get_async_event(inherited, &event) == -1 && errno == EAGAIN;
    well = well && ibv_close_device(inherited) == 0;
    return well;
  });
  CHECK(child.ended_well());
  REQUIRE(ibv_get_async_event(inherited, &event) == 0);
  CHECK(event.event_type == IBV_EVENT_CQ_ERR);
  CHECK(event.element.cq == parents);
  ibv_ack_async_event(&event);
}

TEST_CASE("a child of fork without memory gets an error and leaves nothing behind") {
  const open_context opened;
  ibv_context* const inherited = opened.verbs;
  // While a fault is set, each call is counted, and the first count in the child already allocates
  // memory. So the test runs both with and without a fault.
  const bool has_faults = GENERATE(false, true);
  if (has_faults) REQUIRE(softverbs_inject("ibv_alloc_pd:1000000=EIO") == 0);
  const forked child([&] {
    // In each round, a later allocation fails.
    constexpr int far_too_many = 10000;
    bool well = true;
    ibv_pd* domain = nullptr;
    int count = 0;
    for (; well && domain == nullptr; ++count) {
      errno = 0;
      allocations::limit_to(count);
      domain = ibv_alloc_pd(inherited);
      allocations::limit_to(-1);
      well = domain != nullptr || (errno == ENOMEM && count < far_too_many);
    }
    well = well && (count > 1 || !allocations::can_be_limited());
    well = well && ibv_dealloc_pd(domain) == 0 && ibv_close_device(inherited) == 0;
    // The device's thread ends once the last device is closed.
    const auto is_alone = [] {
      const std::filesystem::directory_iterator threads("/proc/self/task");
      return std::distance(begin(threads), end(threads)) == 1;
    };
    well = well && eventually(is_alone);
    return well;
  });
  softverbs_reset_faults();
  CHECK(child.ended_well());
}

TEST_CASE("a child of fork can't use its parent's device memory and may allocate its own") {
  constexpr std::size_t length = 5000;
  const open_context opened;
  ibv_alloc_dm_attr wanted{length, 0, 0};
  ibv_dm* memory = ibv_alloc_dm(opened.verbs, &wanted);
  REQUIRE(memory != nullptr);
  std::vector<unsigned char> bytes(length, 7);
  REQUIRE(ibv_memcpy_to_dm(memory, 0, bytes.data(), length) == 0);
  const forked child([&] {
    bool well = ibv_memcpy_from_dm(bytes.data(), memory, 0, length) == EIO;
    well = well && ibv_memcpy_to_dm(memory, 0, bytes.data(), length) == EIO;
    well = well && ibv_free_dm(memory) == EIO;
    const open_context own;
    ibv_dm* mine = ibv_alloc_dm(own.verbs, &wanted);
    well = well && mine != nullptr;
    well = well && ibv_memcpy_from_dm(bytes.data(), mine, 0, length) == 0;
    well = well && std::count(bytes.begin(), bytes.end(), 0) == length;
    bytes.assign(length, 9);
    well = well && ibv_memcpy_to_dm(mine, 0, bytes.data(), length) == 0;
    return well && ibv_free_dm(mine) == 0;
  });
  CHECK(child.ended_well());
  bytes.assign(length, 0);
  REQUIRE(ibv_memcpy_from_dm(bytes.data(), memory, 0, length) == 0);
  CHECK(std::count(bytes.begin(), bytes.end(), 7) == length);
  CHECK(ibv_free_dm(memory) == 0);
}
#endif
