// SPDX-License-Identifier: Apache-2.0
#include "support/faults.hpp"

#include "support/intruder.hpp"
#include "support/peer.hpp"
#include "support/work_queues.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <deque>
#include <numeric>
#include <set>
#include <string>
#include <thread>
#include <vector>

namespace {

using namespace std::chrono_literals;

/// Posts three requests in one list, so that all of them are posted before any of them can fail.
void write_together(endpoint& from, const address& to) {
  ibv_sge piece = from.piece(0, 8);
  std::vector<ibv_send_wr> requests = list_of_writes(3, piece, to);
  for (ibv_send_wr& each : requests) each.wr.rdma.remote_addr += (each.wr_id - 1) * 8;
  ibv_send_wr* bad = nullptr;
  REQUIRE(ibv_post_send(from.pair, requests.data(), &bad) == 0);
}

}  // namespace

TEST_CASE("a fault takes effect at the specified occurrence", "[in front]") {
  open_context device;
  const auto tries = [&](const std::string& text) {
    const faults set(text);
    std::string result;
    for (int round = 0; round < 6; ++round) {
      ibv_pd* domain = ibv_alloc_pd(device.verbs);
      result += domain == nullptr ? (errno == ENOMEM ? 'm' : errno == EAGAIN ? 'a' : '?') : '.';
      if (domain != nullptr) REQUIRE(ibv_dealloc_pd(domain) == 0);
    }
    return result;
  };
  CHECK(tries("") == "......");
  CHECK(tries("ibv_alloc_pd=ENOMEM") == "m.....");
  CHECK(tries(" ibv_alloc_pd : 3 = ENOMEM ; ") == "..m...");
  CHECK(tries("ibv_alloc_pd:3+=ENOMEM") == "..mmmm");
  CHECK(tries("ibv_alloc_pd:*=12") == "mmmmmm");
  CHECK(tries("ibv_alloc_pd:2=ENOMEM;ibv_alloc_pd:4=EAGAIN") == ".m.a..");
  CHECK(tries("ibv_alloc_pd:2=ENOMEM;ibv_alloc_pd:*=EWOULDBLOCK") == "amaaaa");
  CHECK(tries("ibv_dereg_mr:*=ENOMEM") == "......");
}

TEST_CASE("an error is reported with the chosen convention", "[in front]") {
  endpoint end;
  const auto post = [&](const std::string& text) {
    const faults set(text);
    errno = 0;
    return end.send(1, {});
  };
  CHECK(post("ibv_post_send=ENOMEM") == ENOMEM);
  CHECK(errno == 0);
  CHECK(post("ibv_post_send=+ENOMEM") == ENOMEM);
  CHECK(post("ibv_post_send=-ENOMEM") == -ENOMEM);
  CHECK(errno == 0);
  CHECK(post("ibv_post_send=-1/ENOMEM") == -1);
  CHECK(errno == ENOMEM);
  const faults set("ibv_poll_cq=+EIO");
  ibv_wc completion{};
  CHECK(ibv_poll_cq(end.queue, 1, &completion) == EIO);
}

TEST_CASE("an invalid fault list is refused as a whole") {
  open_context device;
  for (const char* text : {"x",
                           "=",
                           "ibv_alloc_pd",
                           "ibv_alloc_pd=",
                           "ibv_alloc_pd=EFOO",
                           "ibv_alloc_pd=0",
                           "ibv_alloc_pd:0=EIO",
                           "ibv_alloc_pd:x=EIO",
                           "ibv_alloc_pd:=EIO",
                           "ibv_alloc_pd:-1=EIO",
                           "ibv_alloc_pd@5=EIO",
                           "ibv_alloc_pd=-EIO",
                           "ibv_alloc_pd=-1/EIO",
                           "ibv_alloc=EIO",
                           "IBV_ALLOC_PD=EIO",
                           "completion=success",
                           "completion=0",
                           "completion=32",
                           "completion=EIO",
                           "completion=5/",
                           "completion=5/x",
                           "completion@0x1000000=5",
                           "completion@=5",
                           "completion=5parsec",
                           "packet=5",
                           "packet=5ms",
                           "packet=skew/5ms",
                           "completion=skew/5",
                           "completion=5ms..1ms",
                           "completion=5ms..",
                           "completion:0%=5ms",
                           "completion:101%=5ms",
                           "completion:nan%=5ms",
                           "completion:%=5ms",
                           "ibv_alloc_pd=skew/5ms",
                           "seed=",
                           "seed=x",
                           "must-strike@soft0",
                           "ibv_alloc_pd=must-strike",
                           "after=port-down",
                           "after:5=port-down",
                           "after:5ms=EIO",
                           "after:99999999999999999999s=port-down",
                           "port-down@1",
                           "port-down@soft64",
                           "port-down@soft0/",
                           "port-down@soft0/0",
                           "port-down@soft0/3",
                           "device-fatal@soft0/1",
                           "peer-lost@soft0",
                           "peer-lost@",
                           "device_fatally"}) {
    INFO(text);
    CHECK(softverbs_inject(("ibv_alloc_pd:*=EIO;" + std::string(text)).c_str()) == EINVAL);
    ibv_pd* domain = ibv_alloc_pd(device.verbs);
    CHECK(domain != nullptr);
    if (domain != nullptr) ibv_dealloc_pd(domain);
  }
  CHECK(softverbs_faults_struck() == 0);
  CHECK(softverbs_inject("") == 0);
  CHECK(softverbs_inject(" ; ;") == 0);
}

TEST_CASE("a fault can complete a work request with any status by name or number", "[in front]") {
  const char* const names[] = {
      nullptr,
      "IBV_WC_LOC_LEN_ERR",
      "local_queue_pair_operation_error",
      "loc_eec_op_err",
      "local-protection-error",
      "IBV_WC_WR_FLUSH_ERR",
      "mw_bind_err",
      "bad_resp_err",
      "Loc_Access_Err",
      "remote_invalid_request_error",
      "remote_access_error",
      "remote-operation-error",
      "retry_exceeded",
      "rnr_retry_exc_err",
      "loc_rdd_viol_err",
      "rem_inv_rd_req_err",
      "rem_abort_err",
      "inv_eecn_err",
      "inv_eec_state_err",
      "fatal",
      "resp_timeout_err",
      "general_error",
      "tm_err",
      "tm_rndv_incomplete",
  };
  connection link;
  const auto attempt = [&](const std::string& status, int number) {
    INFO(status);
    link.left.change(IBV_QPS_RESET);
    link.right.change(IBV_QPS_RESET);
    link.left.connect(link.right.here());
    link.right.connect(link.left.here());
    link.left.memory[0] = static_cast<unsigned char>(number);
    const faults set("completion:2=" + status + "/0x89");
    REQUIRE(link.left.post_receive(10, {}) == 0);
    write_together(link.left, link.right.here());
    completes(link.left, 1, IBV_WC_SUCCESS);
    const ibv_wc failed = link.left.wait();
    CHECK(failed.wr_id == 2);
    CHECK(static_cast<int>(failed.status) == number);
    CHECK(failed.vendor_err == 0x89);
    completes(link.left, 3, IBV_WC_WR_FLUSH_ERR);
    completes(link.left, 10, IBV_WC_WR_FLUSH_ERR);
    CHECK(link.left.state() == IBV_QPS_ERR);
    CHECK(link.right.memory[0] == number);
    // The failed request was not executed, unless libsoftverbs-faults injects the faults in front
    // of the device.
    if (!faults_are_in_front()) CHECK(link.right.memory[8] == 0);
    CHECK(link.right.state() == IBV_QPS_RTS);
  };
  for (int number = 1; number < 24; ++number) attempt(names[number], number);
  for (int number = 1; number < 32; ++number) attempt(std::to_string(number), number);
}

TEST_CASE("a receive that fails makes the request of its sender fail as well") {
  const auto attempt = [](const std::string& status, ibv_wc_status here, ibv_wc_status there) {
    connection link;
    const faults set("receive-completion:2=" + status);
    for (std::uint64_t id = 1; id <= 3; ++id) {
      REQUIRE(link.right.post_receive(id, {link.right.piece(0, 8)}) == 0);
      REQUIRE(link.left.send(10 + id, {link.left.piece(0, 8)}) == 0);
    }
    completes(link.right, 1, IBV_WC_SUCCESS);
    completes(link.right, 2, here);
    completes(link.right, 3, IBV_WC_WR_FLUSH_ERR);
    completes(link.left, 11, IBV_WC_SUCCESS);
    completes(link.left, 12, there);
    completes(link.left, 13, IBV_WC_WR_FLUSH_ERR);
  };
  attempt("local_length_error", IBV_WC_LOC_LEN_ERR, IBV_WC_REM_INV_REQ_ERR);
  attempt("local_protection_error", IBV_WC_LOC_PROT_ERR, IBV_WC_REM_OP_ERR);
}

TEST_CASE("a fault that names a queue pair doesn't affect others", "[in front]") {
  connection link;
  const faults set("completion" + at(link.right) + "=general_error");
  REQUIRE(link.left.write(1, {link.left.piece(0, 8)}, link.right.here()) == 0);
  completes(link.left, 1, IBV_WC_SUCCESS);
  REQUIRE(link.right.write(2, {link.right.piece(0, 8)}, link.left.here()) == 0);
  completes(link.right, 2, IBV_WC_GENERAL_ERR);
}

TEST_CASE("unsignaled requests are counted for a fault and complete if they fail") {
  connection link;
  const faults set("send-completion:3=general_error");
  for (std::uint64_t id = 1; id <= 3; ++id)
    REQUIRE(link.left.write(id, {link.left.piece(0, 8)}, link.right.here(), 0, 0) == 0);
  completes(link.left, 3, IBV_WC_GENERAL_ERR);
}

TEST_CASE("a failed send of an unreliable connection stops only its send queue") {
  connection link(of_type(IBV_QPT_UC));
  const faults set("send-completion=local_protection_error");
  REQUIRE(link.left.send(1, {link.left.piece(0, 8)}) == 0);
  completes(link.left, 1, IBV_WC_LOC_PROT_ERR);
  CHECK(link.left.state() == IBV_QPS_SQE);
  REQUIRE(link.left.post_receive(2, {link.left.piece(0, 8)}) == 0);
  REQUIRE(link.right.send(3, {link.right.piece(0, 8)}) == 0);
  completes(link.left, 2, IBV_WC_SUCCESS);
}

TEST_CASE("delayed completions arrive late and in order", "[in front]") {
  connection link;
  const faults set("send-completion" + at(link.left) + "=40ms");
  const auto start = std::chrono::steady_clock::now();
  REQUIRE(link.left.write(1, {link.left.piece(0, 8)}, link.right.here()) == 0);
  REQUIRE(link.left.write(2, {link.left.piece(0, 8)}, link.right.here()) == 0);
  completes(link.left, 1, IBV_WC_SUCCESS);
  CHECK(std::chrono::steady_clock::now() - start >= 40ms);
  completes(link.left, 2, IBV_WC_SUCCESS);
  CHECK(link.left.quiet());

  // A thread that waits for a completion event is also delayed.
  endpoint end(options{.channel = true});
  end.connect(end.here());
  faults::add("completion=40ms");
  REQUIRE(ibv_req_notify_cq(end.queue, 0) == 0);
  const auto again = std::chrono::steady_clock::now();
  REQUIRE(end.write(3, {end.piece(0, 8)}, end.here()) == 0);
  ibv_cq* const queue = take_event_of(end.channel);
  CHECK(std::chrono::steady_clock::now() - again >= 40ms);
  ibv_ack_cq_events(queue, 1);
  completes(end, 3, IBV_WC_SUCCESS);
}

TEST_CASE("a delayed completion is removed with its queue pair", "[in front]") {
  connection link;
  const faults set("completion:*=10s");
  REQUIRE(link.left.write(1, {link.left.piece(0, 8)}, link.right.here()) == 0);
  REQUIRE(link.left.change(IBV_QPS_RESET) == 0);
  CHECK(link.left.quiet());
  REQUIRE(ibv_destroy_qp(link.left.pair) == 0);
  link.left.pair = nullptr;
  CHECK(link.left.quiet());
}

TEST_CASE("a verb can be delayed", "[in front]") {
  open_context device;
  const faults set("ibv_alloc_pd=30ms");
  const auto start = std::chrono::steady_clock::now();
  ibv_pd* domain = ibv_alloc_pd(device.verbs);
  CHECK(domain != nullptr);
  CHECK(std::chrono::steady_clock::now() - start >= 30ms);
}

TEST_CASE("faults can take a port down and bring it up again") {
  options second = impatient();
  second.device = "soft1";
  endpoint other(second);
  connection link;
  const faults set("ibv_post_send:2=port-down@soft0");
  CHECK(port_of(link.left) == IBV_PORT_ACTIVE);
  REQUIRE(link.left.write(1, {link.left.piece(0, 8)}, link.right.here()) == 0);
  completes(link.left, 1, IBV_WC_SUCCESS);
  REQUIRE(link.left.write(2, {link.left.piece(0, 8)}, link.right.here()) == 0);
  ibv_async_event event = link.left.event();
  CHECK(event.event_type == IBV_EVENT_PORT_ERR);
  CHECK(event.element.port_num == 1);
  CHECK(link.right.event().event_type == IBV_EVENT_PORT_ERR);
  CHECK(port_of(link.left) == IBV_PORT_DOWN);
  CHECK(port_of(other) == IBV_PORT_ACTIVE);
  CHECK(link.left.quiet());
  faults::add("port-up@soft0");
  event = link.left.event();
  CHECK(event.event_type == IBV_EVENT_PORT_ACTIVE);
  CHECK(event.element.port_num == 1);
  completes(link.left, 2, IBV_WC_SUCCESS);
  CHECK(port_of(link.left) == IBV_PORT_ACTIVE);

  // The ports of all devices are down, so soft1 can't send packets either.
  other.connect(link.right.here());
  faults::add("port-down");
  CHECK(other.event().event_type == IBV_EVENT_PORT_ERR);
  REQUIRE(other.write(3, {other.piece(0, 8)}, link.right.here()) == 0);
  completes(other, 3, IBV_WC_RETRY_EXC_ERR);
}

TEST_CASE("a queue pair that is destroyed while its port is down sends no acknowledgement") {
  connection link(impatient());
  const standstill held;
  const faults set;
  link.left.memory[0] = 7;
  REQUIRE(link.left.write(1, {link.left.piece(0, 1)}, link.right.here()) == 0);
  const auto* written = static_cast<volatile unsigned char*>(link.right.memory.data());
  while (*written != 7) REQUIRE(softverbs_step() == 1);
  faults::add("port-down");
  REQUIRE(ibv_destroy_qp(link.right.pair) == 0);
  link.right.pair = nullptr;
  faults::add("port-up");
  for (int steps = 0; steps < 1000 && softverbs_step() == 1; ++steps) {
  }
  completes(link.left, 1, IBV_WC_RETRY_EXC_ERR);
}

TEST_CASE("scheduled changes of a port happen without any call by the program", "[in front]") {
  endpoint end;
  const faults set("after:20ms=port-down; after:40ms=port-up");
  CHECK(end.event().event_type == IBV_EVENT_PORT_ERR);
  CHECK(end.event().event_type == IBV_EVENT_PORT_ACTIVE);
  CHECK(softverbs_faults_struck() == 2);
}

TEST_CASE("a fatal device error wakes each thread that waits for completions", "[in front]") {
  endpoint end(options{.channel = true});
  end.initialize();
  REQUIRE(end.post_receive(1, {end.piece(0, 8)}) == 0);
  REQUIRE(ibv_req_notify_cq(end.queue, 0) == 0);
  std::atomic<int> woken{0};
  const auto wait = [&] {
    ibv_cq* queue = nullptr;
    void* context = nullptr;
    if (ibv_get_cq_event(end.channel, &queue, &context) == -1 && errno == EIO) ++woken;
  };
  {
    const faults set("after:20ms=device-fatal");
    std::thread first(wait);
    std::thread second(wait);
    first.join();
    second.join();
    CHECK(woken == 2);
    wait();
    CHECK(woken == 3);
    CHECK(end.event().event_type == IBV_EVENT_DEVICE_FATAL);
  }
  // The destructor of `set` has repaired the device, so the error has no further effect.
  CHECK(!is_readable(end.channel->fd));
  end.connect(end.here());
  REQUIRE(end.write(2, {end.piece(0, 8)}, end.here()) == 0);
  CHECK(is_readable(end.channel->fd, patience));
  ibv_cq* const queue = take_event_of(end.channel);
  ibv_ack_cq_events(queue, 1);
}

TEST_CASE("an overrun wakes a thread that waits for a solicited completion") {
  endpoint end(options{.cq_entries = 1, .channel = true});
  end.connect(end.here());
  REQUIRE(ibv_req_notify_cq(end.queue, 1) == 0);
  for (std::uint64_t id = 1; id <= 3; ++id)
    REQUIRE(end.write(id, {end.piece(0, 8)}, end.here()) == 0);
  REQUIRE(is_readable(end.channel->fd, patience));
  ibv_cq* const queue = take_event_of(end.channel);
  CHECK(queue == end.queue);
  ibv_ack_cq_events(queue, 1);
}

TEST_CASE("a reset restores a device after a fatal error") {
  connection link;
  {
    const faults set("completion:2=device-fatal");
    for (std::uint64_t id = 1; id <= 2; ++id)
      REQUIRE(link.left.write(id, {link.left.piece(0, 8)}, link.right.here()) == 0);
    CHECK(link.left.event().event_type == IBV_EVENT_DEVICE_FATAL);
    ibv_wc completion{};
    CHECK(ibv_poll_cq(link.left.queue, 1, &completion) == -EIO);
    CHECK(link.left.change(IBV_QPS_ERR) == EIO);
  }
  CHECK(softverbs_faults_struck() == 0);
  completes(link.left, 1, IBV_WC_SUCCESS);
  completes(link.left, 2, IBV_WC_SUCCESS);
}

TEST_CASE("faults may be set while other threads work", "[in front]") {
  connection link;
  std::atomic<bool> stop{false};
  std::thread meddler([&] {
    while (!stop) {
      softverbs_inject("ibv_post_send=ENOMEM; completion=100us; after:1ms=port-up");
      if (!faults_are_in_front()) softverbs_inject("packet:50=lost");
      softverbs_faults_struck();
      softverbs_reset_faults();
    }
  });
  for (std::uint64_t id = 0; id < 300; ++id) {
    const int error = link.left.write(id, {link.left.piece(0, 8)}, link.right.here());
    if (error == 0 && link.left.wait().status != IBV_WC_SUCCESS) break;
  }
  stop = true;
  meddler.join();
  softverbs_reset_faults();
  CHECK(link.left.state() == IBV_QPS_RTS);
}

TEST_CASE("after a reset, requests still complete behind a delayed one, while others work") {
  connection link;
  connection other;
  std::atomic<bool> stop{false};
  // The receiver is not ready at first, so the engine sets deadlines for these requests all the
  // time.
  std::thread worker([&] {
    ibv_wc none{};
    while (!stop && other.left.send(1, {}) == 0) {
      for (int polls = 0; polls < 100 && !stop; ++polls) ibv_poll_cq(other.left.queue, 1, &none);
      if (other.right.post_receive(2, {}) != 0 || other.right.wait().status != IBV_WC_SUCCESS ||
          other.left.wait().status != IBV_WC_SUCCESS)
        return;
    }
  });
  struct joins {
    std::atomic<bool>& stop;
    std::thread& worker;
    ~joins() {
      stop = true;
      if (worker.joinable()) worker.join();
    }
  } const guard{stop, worker};
  const auto post = [&](std::uint64_t id) {
    return link.left.write(id, {link.left.piece(0, 8)}, link.right.here());
  };
  constexpr std::uint64_t count = 40;
  std::vector<std::uint64_t> wanted(count);
  std::iota(wanted.begin(), wanted.end(), 1U);
  std::vector<std::uint64_t> got;
  for (int round = 0; round < 20; ++round) {
    got.clear();
    {
      const faults set("send-completion" + at(link.left) + "=30ms");
      if (post(1) != 0 || !eventually([] { return softverbs_faults_struck() == 1; })) break;
    }
    // These requests are carried out without packets.
    for (std::uint64_t id = 2; id <= count; ++id) REQUIRE(post(id) == 0);
    while (got.size() < count) {
      const ibv_wc completion = link.left.wait();
      if (completion.status != IBV_WC_SUCCESS) break;
      got.push_back(completion.wr_id);
    }
    if (got != wanted) break;
  }
  stop = true;
  worker.join();
  CHECK(got == wanted);
  CHECK(other.left.state() == IBV_QPS_RTS);
}

TEST_CASE("random faults have the same outcome with the same seed", "[in front]") {
  open_context device;
  const auto tries = [&](const std::string& text) {
    const faults set(text);
    std::string result;
    for (int round = 0; round < 200; ++round) {
      ibv_pd* domain = ibv_alloc_pd(device.verbs);
      result += domain == nullptr ? 'm' : '.';
      if (domain != nullptr) REQUIRE(ibv_dealloc_pd(domain) == 0);
    }
    return result;
  };
  const std::string some = tries("seed=3; ibv_alloc_pd:25%=ENOMEM");
  CHECK(some == tries("seed=3; ibv_alloc_pd:25%=ENOMEM"));
  CHECK(some != tries("seed=4; ibv_alloc_pd:25%=ENOMEM"));
  const auto failed = std::count(some.begin(), some.end(), 'm');
  CHECK(failed > 20);
  CHECK(failed < 80);
  CHECK(tries("ibv_alloc_pd:100%=ENOMEM") == std::string(200, 'm'));
  CHECK(tries("ibv_alloc_pd:0.0001%=ENOMEM") == std::string(200, '.'));
}

TEST_CASE("each fault counts how often it has taken effect", "[in front]") {
  open_context device;
  const faults set("ibv_alloc_pd:2=ENOMEM; ibv_dereg_mr=EBUSY;ibv_alloc_pd:4+=EIO");
  for (int round = 0; round < 6; ++round)
    if (ibv_pd* domain = ibv_alloc_pd(device.verbs)) ibv_dealloc_pd(domain);
  CHECK(softverbs_fault_struck("ibv_alloc_pd:2=ENOMEM") == 1);
  CHECK(softverbs_fault_struck(" ibv_alloc_pd:4+=EIO ") == 3);
  CHECK(softverbs_fault_struck("ibv_dereg_mr=EBUSY") == 0);
  CHECK(softverbs_fault_struck("ibv_dereg_mr=EIO") == ~0ULL);
  CHECK(softverbs_faults_struck() == 4);
}

TEST_CASE("with must-strike, a process fails if one of its faults never took effect",
          "[in front]") {
  // The other process gets exactly one completion, and that one belongs to a receive.
  const auto outcome = [](const std::string& list) {
    peer other("leaver", ("SOFTVERBS_FAULTS=" + list).c_str());
    endpoint end;
    other.meet(end);
    REQUIRE(end.send(1, {end.piece(0, 8)}) == 0);
    return other.wait();
  };
  CHECK(outcome("must-strike") == 0);
  CHECK(outcome("receive-completion=1ms; must-strike") == 0);
  CHECK(outcome("receive-completion:2=fatal") == 0);
  CHECK(outcome("receive-completion:2=fatal; must-strike") == 86);
  CHECK(outcome("must-strike; receive-completion=1ms; ibv_alloc_mw:*=ENOMEM") == 86);
}

TEST_CASE("skewed completions are late and completions of other queue pairs overtake them",
          "[in front]") {
  endpoint first;
  endpoint second(options{.host = &first});
  first.connect(first.here());
  second.connect(second.here());
  const auto order = [&](const std::string& text, bool resets = false) {
    const faults set("send-completion" + at(first) + ":*=" + text);
    REQUIRE(first.write(1, {first.piece(0, 8)}, first.here()) == 0);
    REQUIRE(first.write(2, {first.piece(0, 8)}, first.here()) == 0);
    std::string result;
    const auto look = [&] {
      ibv_wc completion{};
      if (ibv_poll_cq(first.queue, 1, &completion) == 1) result += std::to_string(completion.wr_id);
    };
    // Waits until both completions are held back.
    REQUIRE(eventually([&] {
      look();
      return softverbs_faults_struck() == 2;
    }));
    // Without faults, the next request is carried out directly.
    if (resets) softverbs_reset_faults();
    REQUIRE(second.write(3, {second.piece(0, 8)}, second.here()) == 0);
    CHECK(eventually([&] {
      look();
      return result.size() == 3;
    }));
    return result;
  };
  CHECK(order("100ms") == "123");
  CHECK(order("skew/2s") == "312");
  CHECK(order("skew/2s..2100ms", true) == "312");
}

TEST_CASE("skewed completions of a work queue are overtaken only by those of other queues",
          "[in front]") {
  if (!may_send_frames()) return;
  frame_end sender;
  work_queues end(1);
  ibv_wq_init_attr same_completions = end.asked(0);
  end.queues.push_back(ibv_create_wq(end.context, &same_completions));
  REQUIRE(end.queues[1] != nullptr);
  REQUIRE(change(end.queues[1], IBV_WQS_RDY) == 0);
  REQUIRE(end.post_to(1, 5) == 0);
  end.spread(ipv4_addresses);
  const auto send_to = [&](std::size_t number) {
    REQUIRE(sender.send_frame(from(end.source_for(number))) == IBV_WC_SUCCESS);
  };
  const std::string skewed = "receive-completion" + at(end.queues[0]->wq_num) + "=skew/";
  const faults set(skewed + "100ms");
  send_to(0);
  send_to(0);
  CHECK(end.next(0).wr_id == 0);
  CHECK(end.next(0).wr_id == 1);
  CHECK(softverbs_faults_struck() == 1);
  // The delay is so long that the completion of the other work queue comes first even on a slow
  // machine.
  faults::add(skewed + "1000s");
  send_to(0);
  send_to(0);
  send_to(1);
  ibv_wc completion{};
  REQUIRE(eventually([&] { return ibv_poll_cq(end.completion_queues[0], 1, &completion) == 1; }));
  CHECK(completion.wr_id == 5);
  CHECK(completion.qp_num == end.queues[1]->wq_num);
  CHECK(ibv_poll_cq(end.completion_queues[0], 1, &completion) == 0);
}

namespace {

/// Returns the order in which writes on several queue pairs complete if the device runs in single
/// steps.
std::string order_of_steps(unsigned long long seed) {
  constexpr std::size_t pairs = 6;
  endpoint host;
  const options wants{.host = &host};
  std::deque<endpoint> all;
  for (std::size_t number = 0; number < pairs; ++number) {
    all.emplace_back(wants);
    all.back().connect(all.back().here());
  }
  // Waits until the device has accepted all earlier connections.
  let_everybody_in(host.pair->qp_num);
  standstill held(seed);
  for (std::size_t number = 0; number < pairs; ++number)
    REQUIRE(all[number].write('a' + number, {all[number].piece(0, 8)}, all[number].here()) == 0);
  CHECK(host.quiet());
  std::string result;
  ibv_wc completion{};
  for (int steps = 0; steps < 1000 && result.size() < pairs; ++steps) {
    softverbs_step();
    while (ibv_poll_cq(host.queue, 1, &completion) == 1) {
      CHECK(completion.status == IBV_WC_SUCCESS);
      result += static_cast<char>(completion.wr_id);
    }
  }
  held.go_on();
  softverbs_reset_faults();
  return result;
}

}  // namespace

TEST_CASE("in single-step mode the seed determines the order of the steps") {
  const std::string one = order_of_steps(1);
  CHECK(one.size() == 6);
  CHECK(order_of_steps(1) == one);
  std::set<std::string> all;
  for (unsigned long long seed = 1; seed <= 8; ++seed) all.insert(order_of_steps(seed));
  CHECK(all.size() > 2);
}

TEST_CASE("in single-step mode timeouts expire by steps instead of by time") {
  connection link(impatient());
  const standstill held;
  const faults set("packet:*=lost");
  REQUIRE(link.left.write(1, {link.left.piece(0, 8)}, link.right.here()) == 0);
  ibv_wc completion{};
  // steady: this pause only gives a mistake time to show: a correct device passes after any pause
  std::this_thread::sleep_for(50ms);
  CHECK(ibv_poll_cq(link.left.queue, 1, &completion) == 0);
  int steps = 0;
  while (ibv_poll_cq(link.left.queue, 1, &completion) == 0 && steps < 1000 && softverbs_step() == 1)
    ++steps;
  CHECK(static_cast<int>(completion.status) == IBV_WC_RETRY_EXC_ERR);
}

TEST_CASE("after single-step mode ends, requests take the direct path again") {
  connection link;
  softverbs_hold(1);
  softverbs_go_on();
  CHECK(becomes_direct(link.left, link.right.here()));
  // Requests from another process are direct, too, if the two processes share memory.
  peer other("writer");
  endpoint end(patient());
  other.meet(end);
  other.tell('w');
  CHECK(other.hear() == '+');
  other.finish();
}
