// SPDX-License-Identifier: Apache-2.0
// Processes that are stopped or exit while they access the memory of another process directly.
#include "catch.hpp"
#include "support/fabric.hpp"
#include "support/peer.hpp"
#include "support/tracee.hpp"
#include "support/waiting_call.hpp"

#include <sys/syscall.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <thread>

namespace {

/// The time for which a call waits for a stopped process.
constexpr auto stopped_wait = std::chrono::seconds(5);

int take_rights(const endpoint& end) {
  ibv_qp_attr attributes{};
  return ibv_modify_qp(end.pair, &attributes, IBV_QP_ACCESS_FLAGS);
}

unsigned rights_of(const endpoint& end) {
  return attributes_of(end.pair, IBV_QP_ACCESS_FLAGS).qp_access_flags;
}

/// Another process, which is stopped just before it writes to the endpoint's memory.
struct halted_writer {
  explicit halted_writer(endpoint& target) : other("writer"), there(other.meet(target)) {
    // Wait until the other process's requests no longer need packets.
    other.tell('w');
    REQUIRE(other.hear() == '+');
    thread = std::make_unique<tracee>(other.process());
    std::fill(target.memory.begin(), target.memory.end(), static_cast<unsigned char>(1));
    other.tell('w');
    REQUIRE(thread->reaches(SYS_process_vm_writev));
  }

  peer other;
  address there;
  std::unique_ptr<tracee> thread;
};

}  // namespace

TEST_CASE("calls wait for a process that is stopped within a request and then return EBUSY") {
  if (!may_be_traced()) return;
  options wanted = patient();
  endpoint end(wanted);
  wanted.host = &end;
  connection beside(wanted, wanted);
  connection stranger;
  halted_writer writer(end);

  // Objects that the stopped process doesn't use can be changed or destroyed. If one of these calls
  // waited for the stopped process, it would return EBUSY.
  CHECK(ibv_dereg_mr(stranger.right.region) == 0);
  stranger.right.region = nullptr;
  CHECK(take_rights(stranger.right) == 0);
  CHECK(take_rights(beside.right) == 0);
  CHECK(ibv_destroy_qp(stranger.right.pair) == 0);
  stranger.right.pair = nullptr;

  // The thread executes the system call. The process is then stopped before it can announce that
  // the request has finished.
  ::kill(writer.other.process(), SIGSTOP);
  writer.thread->let_go();
  int status = 0;
  REQUIRE(::waitpid(writer.other.process(), &status, WUNTRACED) == writer.other.process());
  REQUIRE(WIFSTOPPED(status));
  CHECK(std::count(end.memory.begin(), end.memory.end(), 0x77) == 1 << 16);
  int of_region = 0;
  int of_change = 0;
  int of_pair = 0;
  const auto waited = time_of([&] {
    std::thread region([&] { of_region = ibv_dereg_mr(end.region); });
    std::thread change([&] { of_change = take_rights(end); });
    std::thread pair([&] { of_pair = ibv_destroy_qp(end.pair); });
    region.join();
    change.join();
    pair.join();
  });
  REQUIRE(of_region == EBUSY);
  REQUIRE(of_change == EBUSY);
  REQUIRE(of_pair == EBUSY);
  CHECK(waited >= stopped_wait);

  // The calls that returned EBUSY must not have changed anything.
  CHECK(end.state() == IBV_QPS_RTS);
  CHECK((rights_of(end) & IBV_ACCESS_REMOTE_WRITE) != 0);
  REQUIRE(beside.right.write(1, {beside.right.piece(0, 8)}, end.here()) == 0);
  CHECK(beside.right.wait().status == IBV_WC_SUCCESS);
  writer.other.resume();
  CHECK(writer.other.hear() == '+');
  writer.other.tell('w');
  CHECK(writer.other.hear() == '+');

  CHECK(take_rights(end) == 0);
  CHECK(ibv_destroy_qp(end.pair) == 0);
  end.pair = nullptr;
  CHECK(ibv_dereg_mr(end.region) == 0);
  end.region = nullptr;
  writer.other.finish();
}

TEST_CASE("closing a device waits until requests to it have finished") {
  if (!may_be_traced()) return;
  // The endpoint is never deleted, because closing the device destroys its objects.
  static endpoint* end = nullptr;
  end = new endpoint(patient());
  halted_writer writer(*end);
  // The call must return only after the other process's request has finished.
  CHECK(returns_only_after([&] { return ibv_close_device(end->context); },
                           [&] { writer.thread->let_go(); }) == 0);
  CHECK(std::count(end->memory.begin(), end->memory.end(), 0x77) == 1 << 16);
}

TEST_CASE("calls don't wait for a process that dies within a request and has written nothing") {
  if (!may_be_traced()) return;
  endpoint end(patient());
  halted_writer writer(end);
  const int of_region =
      returns_only_after([&] { return ibv_dereg_mr(end.region); }, [&] { writer.other.kill(); });
  CHECK(of_region == 0);
  if (of_region == 0) end.region = nullptr;
  CHECK(std::count(end.memory.begin(), end.memory.end(), 1) ==
        static_cast<std::ptrdiff_t>(end.memory.size()));
}

TEST_CASE("a region stays busy until a process that is exiting has finished its write") {
  if (!may_be_traced()) return;
  endpoint end(patient());
  peer other("hasty writer");
  other.meet(end);
  pid_t thread = -1;
  REQUIRE(eventually([&] {
    thread = thread_of(other.process(), "writer");
    return thread > 0;
  }));
  {
    tracee writer(thread);
    REQUIRE(writer.reaches(SYS_process_vm_writev));
    other.tell('q');
    // The region is busy, because the process might still write to it.
    CHECK(ibv_dereg_mr(end.region) == EBUSY);
  }
  int error = EBUSY;
  CHECK(eventually([&] {
    error = ibv_dereg_mr(end.region);
    return error != EBUSY;
  }));
  CHECK(error == 0);
  if (error == 0) end.region = nullptr;
  other.tell('x');
  CHECK(other.wait() == 0);
}
