// SPDX-License-Identifier: Apache-2.0

#include "../catch.hpp"
#include "text.hpp"
#include <verbspp/work/transport_error.hpp>

#include <array>
#include <cerrno>
#include <cstdint>
#include <string>
#include <system_error>
#include <utility>

using verbspp::batch_error;
using verbspp::error;
using verbspp::error_kind;
using verbspp::transport_error;
using verbspp::transport_result;
using verbspp::work_error;
using verbspp::work_status;
using verbspp::test::printed;

namespace {

const auto failed_call = verbspp::error::from_errno(EIO, "ibv_post_send (send)");
const work_error failed_request(work_status::flushed, 1, 2, 3);

verbspp::result<int> post() { return failed_call; }
verbspp::work_result<int> complete() { return failed_request; }

}  // namespace

TEST_CASE("a transport error contains the failed call or the failed request") {
  const transport_error call = failed_call;
  REQUIRE(call.call() != nullptr);
  CHECK(call.work() == nullptr);
  CHECK(call.call()->native_errno() == EIO);
  CHECK(call.message() == failed_call.message());
  CHECK(printed(call) == call.message());
  CHECK(call == failed_call.kind());
  CHECK(call != error_kind::timed_out);

  const transport_error work = failed_request;
  REQUIRE(work.work() != nullptr);
  CHECK(work.call() == nullptr);
  CHECK(work.work()->status() == work_status::flushed);
  CHECK(work.message() == failed_request.message());
  CHECK(printed(work) == work.message());
  CHECK(work == error(failed_request).kind());
}

TEST_CASE("the message of a failed request is complete, however long its cause is") {
  const std::string cause(2000, 'x');
  CHECK(failed_request.with_cause(cause.c_str()).message().ends_with(cause));
}

TEST_CASE("VERBSPP_TRY returns a failed call and a failed request as a transport error") {
  const auto passed_on = [](auto operation) -> transport_result<int> {
    VERBSPP_TRY(value, operation());
    return value;
  };
  CHECK(passed_on(post).error().message() == failed_call.message());
  CHECK(passed_on(complete).error().message() == failed_request.message());
}

TEST_CASE("value() of a transport_result throws the exception type of the failure that it holds") {
  CHECK_THROWS_AS(transport_result<int>(failed_call).value(), verbspp::exception);
  CHECK_THROWS_AS(transport_result<int>(failed_request).value(), verbspp::work_exception);
}

namespace {

const batch_error failed_batch(failed_call, 3);

verbspp::batch_result post_batch() { return failed_batch; }

void check_same(const work_error& one, const work_error& other) {
  CHECK(one.status() == other.status());
  CHECK(one.vendor_code() == other.vendor_code());
  CHECK(one.wr_id() == other.wr_id());
  CHECK(one.queue_pair_number() == other.queue_pair_number());
  CHECK(one.operation() == other.operation());
  CHECK(one.message() == other.message());
}

}  // namespace

TEST_CASE("a failed request loses no information when it is converted to a transport error") {
  for (const auto status : {work_status::retry_exceeded, static_cast<work_status>(0xfffffffe)})
    for (const bool operation_is_known : {false, true}) {
      work_error request(status, UINT32_MAX, UINT64_MAX, 0xffffff);
      if (operation_is_known) request = request.with_operation(verbspp::work_operation::receive);
      const error e = request;
      CHECK(e == verbspp::error_kind::failed_request);
      CHECK(e.native_errno() == 0);
      CHECK(e.message() == request.message());
      CHECK(e.hint() == std::string(request.hint()));
      REQUIRE(work_error::from(e));
      check_same(*work_error::from(e), request);
      CHECK_FALSE(batch_error::from(e));

      const transport_error either = e;
      REQUIRE(either.work() != nullptr);
      check_same(*either.work(), request);
      const error back = either;
      REQUIRE(work_error::from(back));
      check_same(*work_error::from(back), request);
    }
}

TEST_CASE("a failed request equals the std::errc of its class") {
  const std::array<std::pair<work_status, std::errc>, 8> conditions{{
      {work_status::local_protection_error, std::errc::invalid_argument},
      {work_status::general_error, std::errc::io_error},
      {work_status::fatal, std::errc::io_error},
      {static_cast<work_status>(200), std::errc::io_error},
      {work_status::bad_response_error, std::errc::protocol_error},
      {work_status::retry_exceeded, std::errc::timed_out},
      {work_status::receiver_not_ready_retry_exceeded, std::errc::timed_out},
      {work_status::flushed, std::errc::operation_canceled},
  }};
  for (const auto& [status, condition] : conditions) {
    const error e = work_error(status, 0, 0, 0);
    CAPTURE(e.message());
    CHECK(e.code() == condition);
    CHECK(e == condition);
  }
  CHECK(error(work_error(work_status::remote_access_error, 0, 0, 0)).code().value() == EREMOTEIO);
}

TEST_CASE("a failed batch loses no information when it is converted to a transport error") {
  const error e = failed_batch;
  CHECK(e.message() == failed_batch.message());
  CHECK(e.kind() == failed_call.kind());
  CHECK(e.native_errno() == EIO);
  REQUIRE(batch_error::from(e));
  CHECK(batch_error::from(e)->accepted() == 3);
  CHECK(batch_error::from(e)->cause().message() == failed_call.message());
  CHECK_FALSE(work_error::from(e));
  CHECK_FALSE(batch_error::from(failed_call));
  CHECK(batch_error::from(batch_error(failed_call, 0))->accepted() == 0);

  const transport_error either = failed_batch;
  REQUIRE(either.call() != nullptr);
  REQUIRE(batch_error::from(*either.call()));
  CHECK(batch_error::from(*either.call())->accepted() == 3);
  CHECK(either.message() == failed_batch.message());
}

TEST_CASE("VERBSPP_TRY converts every failure to a wider error type") {
  const auto to_error = [](auto operation) -> verbspp::result<void> {
    VERBSPP_TRYV(operation());
    return verbspp::success();
  };
  const auto to_either = [](auto operation) -> transport_result<void> {
    VERBSPP_TRYV(operation());
    return verbspp::success();
  };
  const auto either = [] { return transport_result<int>(failed_request); };
  CHECK(to_error(post).error().message() == failed_call.message());
  CHECK(to_error(complete).error().message() == failed_request.message());
  CHECK(to_error(post_batch).error().message() == failed_batch.message());
  CHECK(to_error(either).error().message() == failed_request.message());
  CHECK(to_either(post_batch).error().message() == failed_batch.message());
  CHECK(to_either(either).error().message() == failed_request.message());
}

TEST_CASE("value() of a batch also throws the number of accepted requests") {
  try {
    post_batch().value();
    FAIL("nothing was thrown");
  } catch (const verbspp::exception& e) {
    CHECK(e.what() == failed_batch.message());
    REQUIRE(batch_error::from(e.error()));
    CHECK(batch_error::from(e.error())->accepted() == 3);
  }
}
