// SPDX-License-Identifier: Apache-2.0

#include "../catch.hpp"
#include "text.hpp"
#include <verbspp/work/work_completion.hpp>

#include <arpa/inet.h>
#include <infiniband/verbs.h>

#include <array>
#include <cstring>
#include <optional>
#include <set>
#include <string>
#include <system_error>

using verbspp::immediate_data;
using verbspp::queue_pair_number;
using verbspp::work_completion;
using verbspp::work_error;
using verbspp::work_error_class;
using verbspp::work_operation;
using verbspp::work_status;
using verbspp::test::contains;
using verbspp::test::printed;

namespace {

struct status_meaning {
  ibv_wc_status status;
  work_error_class error_class;
};

// Every status except success.
constexpr std::array<status_meaning, 23> status_meanings{{
    {IBV_WC_LOC_LEN_ERR, work_error_class::local_programming},
    {IBV_WC_LOC_QP_OP_ERR, work_error_class::local_programming},
    {IBV_WC_LOC_EEC_OP_ERR, work_error_class::local_programming},
    {IBV_WC_LOC_PROT_ERR, work_error_class::local_programming},
    {IBV_WC_WR_FLUSH_ERR, work_error_class::flushed},
    {IBV_WC_MW_BIND_ERR, work_error_class::local_programming},
    {IBV_WC_BAD_RESP_ERR, work_error_class::transport},
    {IBV_WC_LOC_ACCESS_ERR, work_error_class::local_programming},
    {IBV_WC_REM_INV_REQ_ERR, work_error_class::remote},
    {IBV_WC_REM_ACCESS_ERR, work_error_class::remote},
    {IBV_WC_REM_OP_ERR, work_error_class::remote},
    {IBV_WC_RETRY_EXC_ERR, work_error_class::timeout},
    {IBV_WC_RNR_RETRY_EXC_ERR, work_error_class::timeout},
    {IBV_WC_LOC_RDD_VIOL_ERR, work_error_class::local_programming},
    {IBV_WC_REM_INV_RD_REQ_ERR, work_error_class::remote},
    {IBV_WC_REM_ABORT_ERR, work_error_class::remote},
    {IBV_WC_INV_EECN_ERR, work_error_class::local_programming},
    {IBV_WC_INV_EEC_STATE_ERR, work_error_class::local_programming},
    {IBV_WC_FATAL_ERR, work_error_class::fatal},
    {IBV_WC_RESP_TIMEOUT_ERR, work_error_class::timeout},
    {IBV_WC_GENERAL_ERR, work_error_class::local_resource},
    {IBV_WC_TM_ERR, work_error_class::local_resource},
    {IBV_WC_TM_RNDV_INCOMPLETE, work_error_class::local_resource},
}};

ibv_wc failed(ibv_wc_status status) {
  // The fields that the verbs leave undefined are filled with invalid values here.
  ibv_wc native;
  std::memset(&native, 0xa5, sizeof native);
  native.wr_id = 42;
  native.status = status;
  native.vendor_err = 0x81;
  native.qp_num = 0x1234;
  return native;
}

ibv_wc succeeded(ibv_wc_opcode opcode) {
  ibv_wc native{};
  native.wr_id = 43;
  native.status = IBV_WC_SUCCESS;
  native.opcode = opcode;
  native.byte_len = 4096;
  native.qp_num = 0x1234;
  return native;
}

}  // namespace

TEST_CASE("a failed request reports its status, its class and its usual cause") {
  for (const auto& [status, error_class] : status_meanings) {
    CAPTURE(static_cast<int>(status));
    const work_completion completion(failed(status));
    CHECK_FALSE(completion.is_success());
    CHECK_FALSE(completion);
    CHECK(completion.wr_id() == 42);
    const auto outcome = completion.get();
    REQUIRE(outcome.has_error());
    const work_error& failure = outcome.error();
    CHECK(static_cast<int>(failure.status()) == static_cast<int>(status));
    CHECK(to_string(failure.error_class()) == std::string(to_string(error_class)));
    CHECK(failure.vendor_code() == 0x81);
    CHECK(failure.wr_id() == 42);
    CHECK(failure.queue_pair_number() == verbspp::queue_pair_number(0x1234));
    CHECK_FALSE(failure.operation());
    CHECK(std::string(failure.hint()).size() > 10);
    CHECK(contains(failure.message(), to_string(failure.status())));
    CHECK(contains(failure.message(), failure.hint()));
  }
}

TEST_CASE("no two statuses have the same name") {
  std::set<std::string> names{to_string(work_status::success)};
  for (const auto& each : status_meanings)
    names.insert(to_string(static_cast<work_status>(each.status)));
  CHECK(names.size() == status_meanings.size() + 1);
  CHECK(names.count("unknown status") == 0);
}

TEST_CASE("an unknown status is kept as a number") {
  ibv_wc native = failed(IBV_WC_GENERAL_ERR);
  const unsigned unknown = 77;
  std::memcpy(&native.status, &unknown, sizeof unknown);
  const auto outcome = work_completion(native).get();
  REQUIRE(outcome.has_error());
  CHECK(static_cast<int>(outcome.error().status()) == 77);
  CHECK(outcome.error().error_class() == work_error_class::unknown);
  CHECK(contains(outcome.error().message(), "status 77"));
  CHECK(to_string(outcome.error().status()) == std::string("unknown status"));
}

TEST_CASE("the message of a failed request is one line with all known details") {
  const auto failure = work_completion(failed(IBV_WC_REM_ABORT_ERR)).get().error();
  CHECK(failure.message() ==
        "work request: remote aborted (status 16, vendor code 0x81, wr_id 42, queue pair "
        "0x001234); the peer aborted the operation");
  const auto told = failure.with_operation(work_operation::rdma_read);
  CHECK(told.operation() == work_operation::rdma_read);
  CHECK(told.message() == "RDMA read" + failure.message().substr(std::strlen("work request")));
  CHECK(printed(told) == told.message());
  CHECK_FALSE(told.peer());
  const auto named = told.with_peer(queue_pair_number(0xabcdef));
  CHECK(named.peer() == queue_pair_number(0xabcdef));
  CHECK(contains(named.message(), "queue pair 0x001234, peer's queue pair 0xabcdef); the peer"));
  const auto again = work_error::from(error(named));
  REQUIRE(again);
  CHECK(again->peer() == named.peer());
  CHECK(again->operation() == work_operation::rdma_read);
  CHECK(again->queue_pair_number() == named.queue_pair_number());
  CHECK(again->message() == named.message());
}

TEST_CASE("value() of a failed request throws a std::system_error that contains the work error") {
  const auto outcome = work_completion(failed(IBV_WC_RETRY_EXC_ERR)).get();
  try {
    static_cast<void>(outcome.value());
    FAIL("nothing was thrown");
  } catch (const verbspp::work_exception& e) {
    CHECK(e.error().status() == work_status::retry_exceeded);
    CHECK(e.what() == outcome.error().message());
    CHECK(e.code() == std::errc::io_error);
  }
  CHECK_THROWS_AS(outcome.value(), std::system_error);
}

TEST_CASE("a completed request reports its operation") {
  struct told {
    ibv_wc_opcode opcode;
    work_operation operation;
    const char* name;
    bool is_receive;
    bool has_byte_count;
  };
  const std::array<told, 9> operations{{
      {IBV_WC_SEND, work_operation::send, "send", false, false},
      {IBV_WC_RDMA_WRITE, work_operation::rdma_write, "RDMA write", false, false},
      {IBV_WC_RDMA_READ, work_operation::rdma_read, "RDMA read", false, true},
      {IBV_WC_COMP_SWAP, work_operation::compare_and_swap, "compare and swap", false, false},
      {IBV_WC_FETCH_ADD, work_operation::fetch_and_add, "fetch and add", false, false},
      {IBV_WC_BIND_MW, work_operation::bind_memory_window, "bind memory window", false, false},
      {IBV_WC_LOCAL_INV, work_operation::local_invalidate, "local invalidate", false, false},
      {IBV_WC_RECV, work_operation::receive, "receive", true, true},
      {IBV_WC_RECV_RDMA_WITH_IMM, work_operation::receive_of_rdma_write, "receive of RDMA write",
       true, true},
  }};
  for (const told& each : operations) {
    CAPTURE(each.name);
    const work_completion completion(succeeded(each.opcode));
    CHECK(completion.is_success());
    CHECK(completion);
    CHECK(completion.wr_id() == 43);
    CHECK(completion.queue_pair_number() == verbspp::queue_pair_number(0x1234));
    const auto outcome = completion.get();
    REQUIRE(outcome.has_value());
    const auto& work = outcome.value();
    CHECK(work.operation() == each.operation);
    CHECK(to_string(work.operation()) == std::string(each.name));
    CHECK(work.is_receive() == each.is_receive);
    CHECK(work.byte_count() == (each.has_byte_count ? std::optional(4096U) : std::nullopt));
    CHECK_FALSE(work.immediate());
    CHECK_FALSE(work.invalidated_rkey());
  }
}

TEST_CASE("an unknown operation is reported as such") {
  CHECK(to_string(static_cast<work_operation>(1000)) == std::string("unknown operation"));
}

TEST_CASE("immediate data arrives in host byte order") {
  ibv_wc native = succeeded(IBV_WC_RECV);
  native.wc_flags = IBV_WC_WITH_IMM;
  native.imm_data = htonl(0x01020304);
  const auto work = work_completion(native).get().value();
  CHECK(work.immediate() == immediate_data(0x01020304));
  CHECK_FALSE(work.invalidated_rkey());
}

TEST_CASE("an rkey that the peer's send invalidated is returned as it was registered") {
  ibv_wc native = succeeded(IBV_WC_RECV);
  native.wc_flags = IBV_WC_WITH_INV;
  native.invalidated_rkey = 0x01020304;
  const auto work = work_completion(native).get().value();
  CHECK(work.invalidated_rkey() == verbspp::remote_key(0x01020304U));
  CHECK_FALSE(work.immediate());
}

TEST_CASE("the classes of work errors have names") {
  std::set<std::string> names;
  for (const auto each :
       {work_error_class::local_programming, work_error_class::local_resource,
        work_error_class::remote, work_error_class::transport, work_error_class::timeout,
        work_error_class::flushed, work_error_class::fatal, work_error_class::unknown})
    names.insert(to_string(each));
  CHECK(names.size() == 8);
}
