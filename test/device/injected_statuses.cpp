// SPDX-License-Identifier: Apache-2.0
/// \file
/// Every status with which a work request can fail, including those that only a defective device
/// reports.

#include "device.hpp"
#include "failing_verb.hpp"
#include <verbspp/queue/completion_queue_with.hpp>

#include <array>
#include <string>
#include <vector>

using namespace verbspp;
using namespace verbspp::test;

namespace {

using enum work_status;

/// A status, together with its class, which tells where to look for the cause.
struct ending {
  work_status status;
  work_error_class error_class;
};
constexpr std::array endings{
    ending{local_length_error, work_error_class::local_programming},
    ending{local_queue_pair_operation_error, work_error_class::local_programming},
    ending{local_ee_context_operation_error, work_error_class::local_programming},
    ending{local_protection_error, work_error_class::local_programming},
    ending{flushed, work_error_class::flushed},
    ending{memory_window_bind_error, work_error_class::local_programming},
    ending{bad_response_error, work_error_class::transport},
    ending{local_access_error, work_error_class::local_programming},
    ending{remote_invalid_request_error, work_error_class::remote},
    ending{remote_access_error, work_error_class::remote},
    ending{remote_operation_error, work_error_class::remote},
    ending{retry_exceeded, work_error_class::timeout},
    ending{receiver_not_ready_retry_exceeded, work_error_class::timeout},
    ending{local_rdd_violation_error, work_error_class::local_programming},
    ending{remote_invalid_rd_request, work_error_class::remote},
    ending{remote_aborted, work_error_class::remote},
    ending{invalid_ee_context_number, work_error_class::local_programming},
    ending{invalid_ee_context_state, work_error_class::local_programming},
    ending{work_status::fatal, work_error_class::fatal},
    ending{response_timeout, work_error_class::timeout},
    ending{general_error, work_error_class::local_resource},
    ending{tag_matching_error, work_error_class::local_resource},
    ending{tag_matching_rendezvous_incomplete, work_error_class::local_resource},
    ending{static_cast<work_status>(31), work_error_class::unknown},  // a future status
};
static_assert(endings.size() == IBV_WC_TM_RNDV_INCOMPLETE + 1,
              "all statuses except success, and one more");

constexpr auto fields = completion_feature::byte_count | completion_feature::queue_pair_number;

/// Returns the specification of a fault: the n-th send or receive after its injection completes
/// with this status and vendor code.
std::string fault(const char* occasion, int number, work_status status, std::uint32_t vendor_code) {
  return std::string(occasion) + ':' + std::to_string(number) + '=' +
         std::to_string(static_cast<unsigned>(status)) + '/' + std::to_string(vendor_code);
}

/// Returns a vendor code that is unique to the status.
std::uint32_t vendor_code_of(work_status status) { return 0x100 + static_cast<unsigned>(status); }

void check_told(const work_error& told, const ending& expected, std::uint64_t id,
                queue_pair_number number) {
  INFO(told);
  CHECK(told.status() == expected.status);
  CHECK(told.error_class() == expected.error_class);
  CHECK(told.vendor_code() == vendor_code_of(expected.status));
  CHECK(told.wr_id() == id);
  CHECK(told.queue_pair_number() == number);
  const std::string message = told.message();
  CHECK(message.find('\n') == std::string::npos);
  CHECK_THAT(message, Catch::Contains("wr_id " + std::to_string(id)) &&
                          Catch::EndsWith(std::string("; ") + told.hint()));
}

/// Waits for at least `count` failed completions of an extended queue, and returns them.
std::vector<work_error> take_failures(const extended_completion_queue<fields>& queue,
                                      std::size_t count) {
  std::vector<work_error> failures;
  wait_until(
      [&] {
        must(queue.poll_each([&](const auto& completion) {
          const auto outcome = completion.get();
          if (outcome.has_error()) failures.push_back(outcome.error());
        }));
        return failures.size() >= count;
      },
      "failed completions");
  return failures;
}

}  // namespace

TEST_CASE("a request can end with each status and the requests after it are flushed") {
  const testbed bed;
  buffer<> target(bed.domain, 8);
  for (const ending& each : endings) {
    CAPTURE(static_cast<unsigned>(each.status));
    auto [left, right] = connect(bed);
    const failing_device fails(
        fault("send-completion", 2, each.status, vendor_code_of(each.status)).c_str());
    for (const std::uint64_t id : {701U, 702U, 703U})
      must(left.post_write({.remote = target.remote()}, {.id = id}));
    take_success(bed.left_queue, 701);
    check_told(failure_of(take_one(bed.left_queue).get()), each, 702, left.number());
    const work_error behind = failure_of(take_one(bed.left_queue).get());
    CHECK(behind.status() == flushed);
    CHECK(behind.wr_id() == 703);
    wait_for_error_state(left);
  }
}

TEST_CASE("a receive can end with each status") {
  const testbed bed;
  buffer<> inbox(bed.domain, 8);
  for (const ending& each : endings) {
    CAPTURE(static_cast<unsigned>(each.status));
    auto [left, right] = connect(bed);
    const failing_device fails(
        fault("receive-completion", 1, each.status, vendor_code_of(each.status)).c_str());
    must(right.post_receive({.elements = inbox.scatter()}, {.id = 801}));
    must(left.post_send({}, {.id = 802}));
    check_told(failure_of(take_one(bed.right_queue).get()), each, 801, right.number());
    // The sender's request has failed, too.
    CHECK(failure_of(take_one(bed.left_queue).get()).wr_id() == 802);
  }
}

TEST_CASE("an extended completion queue reports each status") {
  const testbed bed;
  const auto queue = supported(extended_completion_queue<fields>::create(bed.context, 64),
                               "extended completion queues with these fields");
  buffer<> target(bed.domain, 8);
  for (const ending& each : endings) {
    CAPTURE(static_cast<unsigned>(each.status));
    auto [left, right] =
        connect(must(bed.builder(queue).access(all_rights).build()), must(bed.right().build()));
    const failing_device fails(
        fault("send-completion", 2, each.status, vendor_code_of(each.status)).c_str());
    for (const std::uint64_t id : {901U, 902U, 903U})
      must(left.post_write({.remote = target.remote()}, {.id = id}));
    const std::vector<work_error> failures = take_failures(queue, 2);
    REQUIRE(failures.size() == 2);
    check_told(failures[0], each, 902, left.number());
    CHECK(failures[1].status() == flushed);
    CHECK(failures[1].wr_id() == 903);
  }
}
