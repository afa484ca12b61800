// SPDX-License-Identifier: Apache-2.0
// Calls that lend memory, when the device does not revoke the access of the service.

#include "../eager.hpp"
#include "failing_verb.hpp"
#include "faulty_codec.hpp"
#include "lending.hpp"

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <optional>

using namespace verbspp;
using namespace verbspp::test;
using namespace std::chrono_literals;

namespace {

std::atomic<int> release_failures = 0;

/// A service, and a caller whose calls register the memory that they lend.
struct registering_caller {
  registering_caller() {
    release_failures = 0;
    // The bed resets the handler when it is destroyed. The handler stays set until then, because
    // memory that stays registered prevents the release of the bed's domain.
    set_destroy_failure_handler([](const error& /*cause*/) noexcept { ++release_failures; });
    must(calls->call<fill>(1, memory, patience));
  }

  testbed bed{};
  lending_service serving{bed};
  std::optional<caller> calls{serving.call({.copied_size = 0})};
  shared_buffer<plain_memory::rights> memory =
      must(filled<plain_memory>(bed, 256, std::byte{1}).share());
};

}  // namespace

TEST_CASE("a call that ends without an answer reports that the device did not revoke the access") {
  if (!device_name().starts_with("soft"))
    SKIP("with this driver, LeakSanitizer would report memory that the test leaks on purpose");
  registering_caller lending;
  caller& calls = *lending.calls;
  const auto& memory = lending.memory;
  const failing_verb refused("ibv_dereg_mr", EBUSY, convention::returns_errno);
  error ended(error_kind::not_found, "test", "no error");
  bool is_kept = true;
  SECTION("a call that blocks") {
    ended = failure_of(calls.call<keep>(1, memory, 50ms));
    is_kept = false;  // the program keeps the memory
  }
  SECTION("a handle") {
    auto handle = must(calls.post_call<keep>(1, memory));
    ended = failure_of(handle.wait(50ms));
  }
  SECTION("a coroutine") {
    const auto ask = [&]() -> eager<result<void>> {
      VERBSPP_CO_TRYV(co_await calls.async_call<keep>(1, memory, wait_limit(50ms)));
      co_return success();
    };
    auto asking = ask();
    wait_until(
        [&] {
          calls.link().poll();
          return asking.is_done();
        },
        "the coroutine");
    ended = failure_of(asking.get());
  }
  CHECK(refused.calls() == 1);
  CHECK(ended == error_kind::driver);
  CHECK_THAT(ended.message(), Catch::Contains("do not free the lent memory"));
  CHECK(memory.is_only() == !is_kept);
  CHECK(release_failures == 1);
}

TEST_CASE("a call reports that the device did not revoke the access, however the call ends") {
  if (!device_name().starts_with("soft"))
    SKIP("with this driver, LeakSanitizer would report memory that the test leaks on purpose");
  registering_caller lending;
  caller& calls = *lending.calls;
  const auto& memory = lending.memory;
  const failing_verb refused("ibv_dereg_mr", EBUSY, convention::returns_errno);
  const auto check = [](const auto& ended) {
    const error still_lent = failure_of(ended);
    CHECK(still_lent == error_kind::driver);
    CHECK_FALSE(is_refusal(still_lent));
  };
  using faulty = faulty_fill_of_any_size;
  SECTION("by an answer") { check(calls.call<fill>(1, memory, patience)); }
  SECTION("by a codec that fails") {
    check(calls.call<faulty>({codec_fault::fails}, memory, patience));
  }
  SECTION("by a codec that returns too large a size") {
    check(calls.call<faulty>({codec_fault::returns_too_large}, memory, patience));
  }
  CHECK(refused.calls() == 1);
}

TEST_CASE("a handle that outlives its caller reports that the device did not revoke the access") {
  if (!device_name().starts_with("soft"))
    SKIP("with this driver, LeakSanitizer would report memory that the test leaks on purpose");
  registering_caller lending;
  auto& calls = lending.calls;
  const auto& memory = lending.memory;
  const auto end_caller = [&] {
    // The service deregisters its memory while this is still possible.
    lending.serving.close();
    const failing_verb refused("ibv_dereg_mr", EBUSY, convention::returns_errno);
    calls.reset();
    CHECK(refused.calls() == 1);
  };
  SECTION("a call without an answer") {
    auto handle = must(calls->post_call<keep>(1, memory));
    static_cast<void>(lending.serving.take_kept());
    end_caller();
    CHECK(failure_of(handle.wait(patience)) == error_kind::driver);
  }
  SECTION("a call without an answer, by poll") {
    auto handle = must(calls->post_call<keep>(1, memory));
    static_cast<void>(lending.serving.take_kept());
    end_caller();
    const auto ended = handle.poll();
    REQUIRE(ended);
    CHECK(failure_of(*ended) == error_kind::driver);
  }
  SECTION("a call with an answer that was not taken") {
    auto handle = must(calls->post_call<fill>(1, memory));
    must(calls->call<sum_method>({}, patience));
    end_caller();
    CHECK(failure_of(handle.wait(patience)) == error_kind::driver);
  }
  CHECK(release_failures == 1);
  CHECK_FALSE(memory.is_only());
}
