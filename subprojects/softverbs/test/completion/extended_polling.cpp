// SPDX-License-Identifier: Apache-2.0
#include "catch.hpp"
#include "support/fabric.hpp"

#include <endian.h>
#include <time.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <thread>

namespace {

std::uint64_t wall() {
  timespec time{};
  ::clock_gettime(CLOCK_REALTIME, &time);
  return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000'000 +
         static_cast<std::uint64_t>(time.tv_nsec);
}

std::uint64_t device_clock(ibv_context* context) {
  ibv_values_ex values{};
  values.comp_mask = IBV_VALUES_MASK_RAW_CLOCK;
  REQUIRE(ibv_query_rt_values_ex(context, &values) == 0);
  REQUIRE(values.comp_mask == IBV_VALUES_MASK_RAW_CLOCK);
  REQUIRE(values.raw_clock.tv_sec == 0);
  return static_cast<std::uint64_t>(values.raw_clock.tv_nsec);
}

}  // namespace

TEST_CASE("an extended completion queue is read field by field") {
  extended_endpoint end;
  end.connect(end.here());
  CHECK(end.extended->cqe >= 64);
  ibv_poll_cq_attr nothing{};
  CHECK(ibv_start_poll(end.extended, &nothing) == ENOENT);
  const std::uint64_t ticks_before = device_clock(end.context);
  const std::uint64_t wall_before = wall();
  REQUIRE(end.post_receive(1, {end.piece(0, 64)}) == 0);
  ibv_send_wr request{};
  request.wr_id = 2;
  request.opcode = IBV_WR_SEND_WITH_IMM;
  request.imm_data = htobe32(0x12345678);
  request.send_flags = IBV_SEND_SIGNALED;
  REQUIRE(end.post(request, {end.piece(64, 24)}) == 0);
  bool sent = false;
  bool received = false;
  for (int left = 2; left > 0; --left) {
    end.start();
    CHECK(end.extended->status == IBV_WC_SUCCESS);
    CHECK(ibv_wc_read_qp_num(end.extended) == end.pair->qp_num);
    CHECK(ibv_wc_read_completion_ts(end.extended) >= ticks_before);
    CHECK(ibv_wc_read_completion_ts(end.extended) <= device_clock(end.context));
    CHECK(ibv_wc_read_completion_wallclock_ns(end.extended) >= wall_before);
    CHECK(ibv_wc_read_completion_wallclock_ns(end.extended) <= wall());
    if (ibv_wc_read_opcode(end.extended) == IBV_WC_RECV) {
      received = true;
      CHECK(end.extended->wr_id == 1);
      CHECK(ibv_wc_read_byte_len(end.extended) == 24);
      CHECK(ibv_wc_read_wc_flags(end.extended) == IBV_WC_WITH_IMM);
      CHECK(be32toh(ibv_wc_read_imm_data(end.extended)) == 0x12345678);
      CHECK(ibv_wc_read_src_qp(end.extended) == end.pair->qp_num);
      CHECK(ibv_wc_read_slid(end.extended) == end.here().lid);
      CHECK(ibv_wc_read_sl(end.extended) == 0);
      CHECK(ibv_wc_read_dlid_path_bits(end.extended) == 0);
    } else {
      sent = true;
      CHECK(ibv_wc_read_opcode(end.extended) == IBV_WC_SEND);
      CHECK(end.extended->wr_id == 2);
    }
    ibv_end_poll(end.extended);
  }
  CHECK(sent);
  CHECK(received);
}

TEST_CASE("one poll session reads all available completions") {
  extended_endpoint end;
  REQUIRE(end.initialize() == 0);
  for (std::uint64_t id = 0; id < 5; ++id) REQUIRE(end.post_receive(id, {}) == 0);
  REQUIRE(end.change(IBV_QPS_ERR) == 0);
  end.start();
  for (std::uint64_t id = 0; id < 5; ++id) {
    CHECK(end.extended->wr_id == id);
    CHECK(end.extended->status == IBV_WC_WR_FLUSH_ERR);
    CHECK(ibv_wc_read_vendor_err(end.extended) == 0);
    CHECK(ibv_wc_read_qp_num(end.extended) == end.pair->qp_num);
    int error = ENOENT;
    const auto deadline = std::chrono::steady_clock::now() + patience;
    while (id < 4 && error == ENOENT && std::chrono::steady_clock::now() < deadline)
      error = ibv_next_poll(end.extended);
    if (id < 4) REQUIRE(error == 0);
  }
  CHECK(ibv_next_poll(end.extended) == ENOENT);
  ibv_end_poll(end.extended);
  ibv_poll_cq_attr unknown{1};
  CHECK(ibv_start_poll(end.extended, &unknown) == EINVAL);
}

TEST_CASE("an extended completion queue is also a completion queue") {
  extended_endpoint end({}, options{.channel = true});
  end.connect(end.here());
  REQUIRE(ibv_req_notify_cq(end.queue, 0) == 0);
  REQUIRE(end.write(1, {end.piece(0, 8)}, end.here()) == 0);
  ibv_cq* source = nullptr;
  void* user_context = nullptr;
  REQUIRE(ibv_get_cq_event(end.channel, &source, &user_context) == 0);
  CHECK(source == end.queue);
  CHECK(user_context == static_cast<void*>(&end));
  ibv_ack_cq_events(source, 1);
  CHECK(end.wait().wr_id == 1);
  CHECK(ibv_resize_cq(end.queue, 200) == 0);
  CHECK(end.extended->cqe >= 200);
  REQUIRE(end.write(2, {end.piece(0, 8)}, end.here()) == 0);
  end.start();
  CHECK(end.extended->wr_id == 2);
  ibv_end_poll(end.extended);
  CHECK(ibv_destroy_cq(end.queue) == EBUSY);
}

TEST_CASE("only the requested fields can be read and unsupported fields are refused") {
  ibv_cq_init_attr_ex asked{};
  asked.wc_flags = IBV_WC_EX_WITH_BYTE_LEN;
  extended_endpoint end(asked);
  CHECK(end.extended->read_byte_len != nullptr);
  CHECK(end.extended->read_opcode != nullptr);
  CHECK(end.extended->read_imm_data == nullptr);
  CHECK(end.extended->read_completion_ts == nullptr);

  const auto refused = [&](int error, auto change) {
    ibv_cq_init_attr_ex attributes{};
    attributes.cqe = 16;
    change(attributes);
    CHECK(refusal([&] { return ibv_create_cq_ex(end.context, &attributes); }) == error);
  };
  for (const std::uint64_t field : {IBV_WC_EX_WITH_CVLAN, IBV_WC_EX_WITH_TM_INFO})
    refused(EOPNOTSUPP, [&](ibv_cq_init_attr_ex& to) { to.wc_flags = field; });
  refused(EOPNOTSUPP, [](ibv_cq_init_attr_ex& to) { to.wc_flags = std::uint64_t{1} << 40; });
  refused(EINVAL, [](ibv_cq_init_attr_ex& to) { to.comp_mask = 1U << 20; });
  refused(EINVAL, [](ibv_cq_init_attr_ex& to) { to.cqe = 0; });
  refused(EINVAL, [](ibv_cq_init_attr_ex& to) { to.cqe = 0xffffffff; });
  refused(EINVAL, [&](ibv_cq_init_attr_ex& to) {
    to.comp_vector = static_cast<std::uint32_t>(end.context->num_comp_vectors);
  });
  refused(EINVAL, [](ibv_cq_init_attr_ex& to) {
    to.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS;
    to.flags = 1U << 20;
  });
}

TEST_CASE("a queue that ignores overruns loses completions, but does not fail") {
  ibv_cq_init_attr_ex asked{};
  asked.cqe = 1;
  asked.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS;
  asked.flags = IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN | IBV_CREATE_CQ_ATTR_SINGLE_THREADED;
  extended_endpoint end(asked);
  endpoint other;
  end.connect(other.here());
  other.connect(end.here());
  for (std::uint64_t id = 1; id <= 8; ++id)
    REQUIRE(end.write(id, {end.piece(0, 8)}, other.here()) == 0);
  REQUIRE(other.post_receive(1, {}) == 0);
  REQUIRE(end.send(9, {}, 0) == 0);
  CHECK(other.wait().wr_id == 1);
  // All requests have been started. The event SQ_DRAINED reports when they are done, so the test
  // doesn't have to poll the queue for that.
  ibv_qp_attr drained{};
  drained.qp_state = IBV_QPS_SQD;
  drained.en_sqd_async_notify = 1;
  REQUIRE(ibv_modify_qp(end.pair, &drained, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY) == 0);
  CHECK(end.event().event_type == IBV_EVENT_SQ_DRAINED);
  REQUIRE(end.change(IBV_QPS_RTS) == 0);
  end.start();
  CHECK(end.extended->status == IBV_WC_SUCCESS);
  CHECK(end.extended->wr_id == 8);
  ibv_end_poll(end.extended);
  // The completions of the earlier requests were lost, but the queue pair still accepts requests.
  for (std::uint64_t id = 0; id < 40; ++id)
    REQUIRE(end.write(id, {end.piece(0, 8)}, other.here(), 0, 0) == 0);
}

TEST_CASE("threads that poll one extended queue get each completion once") {
  extended_endpoint end;
  REQUIRE(end.initialize() == 0);
  constexpr std::uint64_t count = 60;
  for (std::uint64_t id = 0; id < count; ++id) REQUIRE(end.post_receive(id, {}) == 0);
  REQUIRE(end.change(IBV_QPS_ERR) == 0);
  std::array<std::atomic<int>, count> seen{};
  std::atomic<std::uint64_t> total{0};
  const auto work = [&] {
    const auto deadline = std::chrono::steady_clock::now() + patience;
    while (total < count && std::chrono::steady_clock::now() < deadline) {
      ibv_poll_cq_attr nothing{};
      if (ibv_start_poll(end.extended, &nothing) != 0) continue;
      do {
        ++seen.at(end.extended->wr_id);
        ++total;
      } while (ibv_next_poll(end.extended) == 0);
      ibv_end_poll(end.extended);
    }
  };
  std::thread one(work);
  std::thread two(work);
  one.join();
  two.join();
  for (const auto& times : seen) CHECK(times == 1);
}

TEST_CASE("the device reports the frequency of its clock") {
  open_context device;
  ibv_device_attr_ex attributes{};
  REQUIRE(ibv_query_device_ex(device.verbs, nullptr, &attributes) == 0);
  CHECK(attributes.completion_timestamp_mask == ~std::uint64_t{0});
  CHECK(attributes.hca_core_clock == 1'000'000);
  const std::uint64_t before = device_clock(device.verbs);
  // steady: the device's clock has to advance by at least this much
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
  CHECK(device_clock(device.verbs) - before >= 2'000'000);
  ibv_values_ex unknown{};
  unknown.comp_mask = 1U << 20;
  CHECK(ibv_query_rt_values_ex(device.verbs, &unknown) == EINVAL);
}
