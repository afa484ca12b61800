// SPDX-License-Identifier: Apache-2.0
// Memory windows, and requests that invalidate their rkeys.
#include "catch.hpp"
#include "support/fabric.hpp"
#include "support/held_page.hpp"
#include "support/peer.hpp"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <ctime>
#include <thread>
#include <utility>

namespace {

/// Returns options with which the peer can access memory only through windows.
options behind_windows(ibv_qp_type type = IBV_QPT_RC) {
  options result = with_atomics();
  result.type = type;
  result.region_access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND;
  return result;
}

/// A connection whose right end grants access to its memory through a window.
struct windowed : connection {
  explicit windowed(ibv_mw_type type, ibv_qp_type service = IBV_QPT_RC)
      : connection(behind_windows(service)), window(ibv_alloc_mw(right.domain, type)) {
    REQUIRE(window != nullptr);
    CHECK(window->type == type);
    CHECK(window->pd == right.domain);
    key = window->rkey;
  }
  windowed(const windowed&) = delete;
  windowed& operator=(const windowed&) = delete;
  ~windowed() {
    if (window != nullptr) ibv_dealloc_mw(window);
  }

  ibv_mw_bind_info part(std::size_t offset, std::size_t length, unsigned access) const {
    return {right.region, right.here().memory + offset, length, access};
  }
  /// Binds the window with the call that is meant for its type. Returns the result of that call.
  int bind(const ibv_mw_bind_info& info) {
    if (window->type == IBV_MW_TYPE_1) {
      ibv_mw_bind binding{};
      binding.wr_id = 50;
      binding.send_flags = IBV_SEND_SIGNALED;
      binding.bind_info = info;
      const int error = ibv_bind_mw(right.pair, window, &binding);
      key = window->rkey;
      return error;
    }
    ibv_send_wr request{};
    request.wr_id = 50;
    request.opcode = IBV_WR_BIND_MW;
    request.send_flags = IBV_SEND_SIGNALED;
    request.bind_mw = {window, ibv_inc_rkey(key), info};
    const int error = right.post(request, {});
    if (error == 0) key = request.bind_mw.rkey;
    return error;
  }
  void must_bind(const ibv_mw_bind_info& info) {
    REQUIRE(bind(info) == 0);
    const ibv_wc completed = right.wait();
    CHECK(completed.status == IBV_WC_SUCCESS);
    CHECK(completed.opcode == IBV_WC_BIND_MW);
    CHECK(completed.wr_id == 50);
  }
  void fails_to_bind(const ibv_mw_bind_info& info) {
    REQUIRE(bind(info) == 0);
    CHECK(right.wait().status == IBV_WC_MW_BIND_ERR);
    CHECK(right.state() == IBV_QPS_ERR);
  }
  address there() const {
    address result = right.here();
    result.rkey = key;
    return result;
  }
  ibv_wc_status write(std::uint64_t offset, std::uint32_t length) {
    REQUIRE(left.write(1, {left.piece(0, length)}, there(), offset) == 0);
    return left.wait().status;
  }
  int invalidate(std::uint32_t rkey) {
    ibv_send_wr request{};
    request.wr_id = 60;
    request.opcode = IBV_WR_LOCAL_INV;
    request.send_flags = IBV_SEND_SIGNALED;
    request.invalidate_rkey = rkey;
    return right.post(request, {});
  }
  int send_and_invalidate(std::uint32_t rkey) {
    ibv_send_wr request{};
    request.wr_id = 70;
    request.opcode = IBV_WR_SEND_WITH_INV;
    request.send_flags = IBV_SEND_SIGNALED;
    request.invalidate_rkey = rkey;
    return left.post(request, {left.piece(0, 100000)});
  }

  ibv_mw* window;
  std::uint32_t key = 0;
};

constexpr unsigned window_rights =
    IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

/// Returns true if the thread has used more processor time than it would in a call that doesn't
/// wait.
bool works_on(std::thread& thread) {
  clockid_t clock{};
  timespec worked{};
  REQUIRE(::pthread_getcpuclockid(thread.native_handle(), &clock) == 0);
  REQUIRE(::clock_gettime(clock, &worked) == 0);
  return worked.tv_sec > 0 || worked.tv_nsec > 50'000'000;
}

}  // namespace

TEST_CASE("a window offers a part of a region with access rights of its own") {
  for (const ibv_mw_type type : {IBV_MW_TYPE_1, IBV_MW_TYPE_2}) {
    windowed ends(type);
    ends.must_bind(ends.part(64, 128, window_rights));
    ends.left.memory[0] = 9;
    CHECK(ends.write(64, 128) == IBV_WC_SUCCESS);
    CHECK(ends.right.memory[64] == 9);
    REQUIRE(ends.left.read(2, {ends.left.piece(8, 8)}, ends.there(), 64) == 0);
    CHECK(ends.left.wait().status == IBV_WC_SUCCESS);
    REQUIRE(ends.left.fetch_and_add(3, ends.left.piece(8, 8), ends.there(), 1, 64) == 0);
    CHECK(ends.left.wait().status == IBV_WC_SUCCESS);
    CHECK(ends.right.memory[64] == 10);
    CHECK(ends.write(63, 8) == IBV_WC_REM_ACCESS_ERR);
  }
  for (const ibv_mw_type type : {IBV_MW_TYPE_1, IBV_MW_TYPE_2}) {
    windowed beyond(type);
    beyond.must_bind(beyond.part(64, 128, window_rights));
    CHECK(beyond.write(64, 129) == IBV_WC_REM_ACCESS_ERR);
    windowed reading(type);
    reading.must_bind(reading.part(64, 128, IBV_ACCESS_REMOTE_READ));
    CHECK(reading.write(64, 8) == IBV_WC_REM_ACCESS_ERR);
    windowed unbound(type);
    CHECK(unbound.write(0, 8) == IBV_WC_REM_ACCESS_ERR);
  }
}

TEST_CASE("a window has its own remote rights and the local rights of its region") {
  for (const ibv_mw_type type : {IBV_MW_TYPE_1, IBV_MW_TYPE_2}) {
    windowed ends(type);
    ends.must_bind(ends.part(64, 128, window_rights | IBV_ACCESS_LOCAL_WRITE));
    CHECK(ends.write(64, 128) == IBV_WC_SUCCESS);
    windowed relaxed(type);
    relaxed.must_bind(relaxed.part(0, 64, window_rights | IBV_ACCESS_RELAXED_ORDERING));
    CHECK(relaxed.write(0, 64) == IBV_WC_SUCCESS);
    windowed local(type);
    local.must_bind(local.part(0, 64, IBV_ACCESS_LOCAL_WRITE));
    CHECK(local.write(0, 8) == IBV_WC_REM_ACCESS_ERR);
  }
}

TEST_CASE("a window of type 1 can be bound again and its old key becomes invalid") {
  windowed ends(IBV_MW_TYPE_1);
  ends.must_bind(ends.part(0, 64, window_rights));
  const std::uint32_t old = ends.key;
  ends.must_bind(ends.part(64, 64, window_rights));
  CHECK(ends.key != old);
  CHECK((ends.key ^ old) <= 0xff);
  CHECK(ends.write(64, 64) == IBV_WC_SUCCESS);
  ends.key = old;
  CHECK(ends.write(0, 8) == IBV_WC_REM_ACCESS_ERR);

  windowed closed(IBV_MW_TYPE_1);
  closed.must_bind(closed.part(0, 64, window_rights));
  closed.must_bind({nullptr, 0, 0, 0});
  CHECK(closed.write(0, 8) == IBV_WC_REM_ACCESS_ERR);
}

TEST_CASE("binds are executed in order with the requests before and after them") {
  windowed ends(IBV_MW_TYPE_1);
  for (std::size_t count = 0; count < 5; ++count) {
    REQUIRE(ends.right.write(1, {ends.right.piece(0, 8)}, ends.left.here(), 0, 0) == 0);
    REQUIRE(ends.bind(ends.part(count * 8, 8, window_rights)) == 0);
  }
  // The left end has not granted this write.
  CHECK(ends.right.wait().status == IBV_WC_REM_ACCESS_ERR);
  for (int count = 0; count < 5; ++count) {
    const ibv_wc completed = ends.right.wait();
    CHECK(completed.status == IBV_WC_WR_FLUSH_ERR);
  }
  windowed again(IBV_MW_TYPE_1);
  for (std::size_t count = 0; count < 5; ++count)
    REQUIRE(again.bind(again.part(count * 8, 8, window_rights)) == 0);
  for (int count = 0; count < 5; ++count) CHECK(again.right.wait().status == IBV_WC_SUCCESS);
  CHECK(again.write(32, 8) == IBV_WC_SUCCESS);
}

TEST_CASE("a window of type 2 belongs to its queue pair until it is invalidated") {
  windowed ends(IBV_MW_TYPE_2);
  ends.must_bind(ends.part(0, 64, window_rights));
  const std::uint32_t old = ends.key;
  REQUIRE(ends.invalidate(old) == 0);
  const ibv_wc completed = ends.right.wait();
  CHECK(completed.status == IBV_WC_SUCCESS);
  CHECK(completed.opcode == IBV_WC_LOCAL_INV);
  CHECK(completed.wr_id == 60);
  ends.must_bind(ends.part(64, 64, window_rights));
  CHECK(ends.write(64, 64) == IBV_WC_SUCCESS);
  // The window can't be bound again until it has been invalidated.
  ends.fails_to_bind(ends.part(0, 64, window_rights));

  windowed other(IBV_MW_TYPE_2);
  other.must_bind(other.part(0, 64, window_rights));
  options guest = other.right.wanted;
  guest.host = &other.right;
  endpoint second(guest);
  endpoint peer;
  const address from_peer = peer.here();
  peer.connect(second.here());
  second.connect(from_peer);
  REQUIRE(peer.write(1, {peer.piece(0, 8)}, other.there()) == 0);
  CHECK(peer.wait().status == IBV_WC_REM_ACCESS_ERR);
  CHECK(other.write(0, 8) == IBV_WC_SUCCESS);
  // Resetting the queue pair unbinds the window.
  REQUIRE(other.right.change(IBV_QPS_RESET) == 0);
  CHECK(ibv_dereg_mr(other.right.region) == 0);
  other.right.region = nullptr;
}

TEST_CASE("a message can invalidate the rkey of a window") {
  windowed ends(IBV_MW_TYPE_2);
  ends.must_bind(ends.part(0, 64, window_rights));
  REQUIRE(ends.right.post_receive(1, {ends.right.piece(4096, 200000)}) == 0);
  REQUIRE(ends.send_and_invalidate(ends.key) == 0);
  CHECK(ends.left.wait().opcode == IBV_WC_SEND);
  const ibv_wc received = ends.right.wait();
  CHECK(received.status == IBV_WC_SUCCESS);
  CHECK(received.opcode == IBV_WC_RECV);
  CHECK(received.byte_len == 100000);
  CHECK(received.wc_flags == IBV_WC_WITH_INV);
  CHECK(received.invalidated_rkey == ends.key);
  CHECK(ends.write(0, 8) == IBV_WC_REM_ACCESS_ERR);
}

TEST_CASE("only a bound window of type 2 can be invalidated") {
  const auto by_message = [](windowed& ends, std::uint32_t rkey) {
    REQUIRE(ends.right.post_receive(1, {ends.right.piece(4096, 200000)}) == 0);
    REQUIRE(ends.send_and_invalidate(rkey) == 0);
    CHECK(ends.left.wait().status == IBV_WC_REM_ACCESS_ERR);
    CHECK(ends.right.wait().status == IBV_WC_WR_FLUSH_ERR);
    CHECK(ends.right.event().event_type == IBV_EVENT_QP_ACCESS_ERR);
  };
  const auto locally = [](windowed& ends, std::uint32_t rkey) {
    REQUIRE(ends.invalidate(rkey) == 0);
    CHECK(ends.right.wait().status == IBV_WC_LOC_QP_OP_ERR);
  };
  for (const bool is_local : {true, false}) {
    const auto attempt = [&](windowed& ends, std::uint32_t rkey) {
      is_local ? locally(ends, rkey) : by_message(ends, rkey);
    };
    windowed region(IBV_MW_TYPE_2);
    attempt(region, region.right.region->rkey);
    windowed unbound(IBV_MW_TYPE_2);
    attempt(unbound, unbound.key);
    windowed wrong(IBV_MW_TYPE_2);
    wrong.must_bind(wrong.part(0, 64, window_rights));
    attempt(wrong, wrong.key ^ 1);
    windowed first_type(IBV_MW_TYPE_1);
    first_type.must_bind(first_type.part(0, 64, window_rights));
    attempt(first_type, first_type.key);
  }
}

TEST_CASE("windows that exceed the rights or bounds of their region are refused") {
  const auto attempt = [](ibv_mw_type type, auto change) {
    windowed ends(type);
    ibv_mw_bind_info info = ends.part(0, 64, window_rights);
    change(ends, info);
    ends.fails_to_bind(info);
  };
  for (const ibv_mw_type type : {IBV_MW_TYPE_1, IBV_MW_TYPE_2}) {
    attempt(type, [](windowed&, ibv_mw_bind_info& info) { info.length = (1 << 20) + 1; });
    attempt(type, [](windowed&, ibv_mw_bind_info& info) { --info.addr; });
    attempt(type,
            [](windowed&, ibv_mw_bind_info& info) { info.mw_access_flags = IBV_ACCESS_HUGETLB; });
    windowed constant(type);
    const int rights = IBV_ACCESS_MW_BIND;
    ibv_mr* region = ibv_reg_mr(constant.right.domain, constant.right.memory.data(), 4096, rights);
    ibv_mw_bind_info info = constant.part(0, 64, IBV_ACCESS_REMOTE_READ);
    info.mr = region;
    constant.must_bind(info);
    CHECK(ibv_dereg_mr(region) == EBUSY);
    if (type == IBV_MW_TYPE_1)
      constant.must_bind({nullptr, 0, 0, 0});
    else {
      REQUIRE(constant.invalidate(constant.key) == 0);
      CHECK(constant.right.wait().status == IBV_WC_SUCCESS);
    }
    info.mw_access_flags = IBV_ACCESS_REMOTE_WRITE;
    constant.fails_to_bind(info);
    CHECK(ibv_dereg_mr(region) == 0);
  }
  attempt(IBV_MW_TYPE_1,
          [](windowed&, ibv_mw_bind_info& info) { info.mw_access_flags |= IBV_ACCESS_ZERO_BASED; });
  attempt(IBV_MW_TYPE_2, [](windowed&, ibv_mw_bind_info& info) { info.length = 0; });
  windowed ends(IBV_MW_TYPE_2);
  const int rights = IBV_ACCESS_LOCAL_WRITE;
  ibv_mr* region = ibv_reg_mr(ends.right.domain, ends.right.memory.data(), 4096, rights);
  ibv_mw_bind_info info = ends.part(0, 64, window_rights);
  info.mr = region;
  ends.fails_to_bind(info);
  CHECK(ibv_dereg_mr(region) == 0);
}

TEST_CASE("a window can be zero-based") {
  windowed ends(IBV_MW_TYPE_2);
  ends.must_bind(ends.part(256, 64, window_rights | IBV_ACCESS_ZERO_BASED));
  ends.left.memory[0] = 77;
  address there = ends.there();
  there.memory = 0;
  REQUIRE(ends.left.write(1, {ends.left.piece(0, 4)}, there, 60) == 0);
  CHECK(ends.left.wait().status == IBV_WC_SUCCESS);
  CHECK(ends.right.memory[316] == 77);
  REQUIRE(ends.left.write(1, {ends.left.piece(0, 4)}, there, 61) == 0);
  CHECK(ends.left.wait().status == IBV_WC_REM_ACCESS_ERR);
}

TEST_CASE("UC: windows are bound and invalidated locally but not by messages") {
  windowed ends(IBV_MW_TYPE_2, IBV_QPT_UC);
  ends.must_bind(ends.part(0, 64, IBV_ACCESS_REMOTE_WRITE));
  ends.left.memory[0] = 5;
  CHECK(ends.write(0, 8) == IBV_WC_SUCCESS);
  while (static_cast<volatile unsigned char&>(ends.right.memory[0]) != 5) ends.right.quiet();
  CHECK(ends.send_and_invalidate(ends.key) == EINVAL);
  REQUIRE(ends.invalidate(ends.key) == 0);
  CHECK(ends.right.wait().status == IBV_WC_SUCCESS);
  REQUIRE(ends.invalidate(ends.key) == 0);
  CHECK(ends.right.wait().status == IBV_WC_LOC_QP_OP_ERR);
  CHECK(ends.right.state() == IBV_QPS_SQE);
}

TEST_CASE("windows keep their domain busy and need a type") {
  open_context device;
  ibv_pd* domain = ibv_alloc_pd(device.verbs);
  ibv_mw* window = ibv_alloc_mw(domain, IBV_MW_TYPE_2);
  REQUIRE(window != nullptr);
  CHECK(ibv_dealloc_pd(domain) == EBUSY);
  CHECK(ibv_dealloc_mw(window) == 0);
  CHECK(refusal([&] { return ibv_alloc_mw(domain, static_cast<ibv_mw_type>(3)); }) == EINVAL);
  CHECK(ibv_dealloc_pd(domain) == 0);
  ibv_device_attr attributes{};
  REQUIRE(ibv_query_device(device.verbs, &attributes) == 0);
  constexpr unsigned flags =
      IBV_DEVICE_MEM_WINDOW | IBV_DEVICE_MEM_WINDOW_TYPE_2B | IBV_DEVICE_MEM_MGT_EXTENSIONS;
  CHECK((attributes.device_cap_flags & flags) == flags);
  CHECK(attributes.max_mw > 0);
}

TEST_CASE("a window is deallocated after a write through it has finished") {
  windowed ends(IBV_MW_TYPE_2);
  ends.must_bind(ends.part(0, 4096, window_rights));
  const held_page source(ends.left.domain);
  // If the write needed packets, the deallocation would not wait for the write, but for a lock that
  // the device holds.
  if (!source.may_hold() || !becomes_direct(ends.left, ends.there())) {
    SUCCEED("no thread can be stopped in the middle of a write here");
    return;
  }
  std::thread writer([&] { ends.left.write(7, {source.piece(64)}, ends.there()); });
  source.wait_for_reader();
  std::atomic<bool> is_gone{false};
  std::atomic<bool> may_end{false};
  std::thread remover([&] {
    ibv_dealloc_mw(std::exchange(ends.window, nullptr));
    is_gone = true;
    // The test reads this thread's clock, so the thread must not exit until the test is done with
    // it.
    while (!may_end) std::this_thread::yield();
  });
  // The deallocation waits by spinning, which uses processor time.
  CHECK(eventually([&] { return is_gone || works_on(remover); }));
  CHECK_FALSE(is_gone);
  source.let_go(0x5a);
  may_end = true;
  remover.join();
  writer.join();
  CHECK(ends.left.wait().status == IBV_WC_SUCCESS);
  CHECK(ends.right.memory[63] == 0x5a);
}
