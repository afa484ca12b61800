// SPDX-License-Identifier: Apache-2.0

#include "../catch.hpp"
#include "text.hpp"
#include <verbspp/work/transport_error.hpp>

#include <cerrno>
#include <string>
#include <system_error>

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

TEST_CASE("a transport error is the failed call or the failed request") {
  const transport_error call = failed_call;
  REQUIRE(call.call() != nullptr);
  CHECK(call.work() == nullptr);
  CHECK(call.call()->native_errno() == EIO);
  CHECK(call.message() == failed_call.message());
  CHECK(printed(call) == call.message());

  const transport_error work = failed_request;
  REQUIRE(work.work() != nullptr);
  CHECK(work.call() == nullptr);
  CHECK(work.work()->status() == work_status::flushed);
  CHECK(work.message() == failed_request.message());
  CHECK(printed(work) == work.message());
}

TEST_CASE("VERBSPP_TRY passes a failed call and a failed request on as a transport error") {
  const auto passed_on = [](auto operation) -> transport_result<int> {
    VERBSPP_TRY(value, operation());
    return value;
  };
  CHECK(passed_on(post).error().message() == failed_call.message());
  CHECK(passed_on(complete).error().message() == failed_request.message());
}

TEST_CASE("value() of a transport error throws what value() of the failure itself would") {
  CHECK_THROWS_AS(transport_result<int>(failed_call).value(), verbspp::exception);
  CHECK_THROWS_AS(transport_result<int>(failed_request).value(), verbspp::work_exception);
}
