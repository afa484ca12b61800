// SPDX-License-Identifier: Apache-2.0
/// \file
/// Leases that are refused, that fail in the driver, or that cannot be revoked.
#include "failing_verb.hpp"
#include "leases.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <optional>
#include <string>
#include <thread>
#include <utility>

namespace verbspp::test::leases {

namespace {

std::vector<std::string> reports;  // about objects that could not be released

}  // namespace

TEST_CASE("memory that cannot be leased is refused with a message") {
  lease_bed bed;
  leased_memory memory(bed.domain, 64);
  const auto& region = memory.region();
  CHECK(failure_of(channel().lease<both_ways>(region, 0, 64)) == error_kind::not_connected);
  for (const auto& [offset, length] :
       {std::pair<std::size_t, std::size_t>{0, 65}, {65, 0}, {64, 1}, {1, SIZE_MAX}}) {
    CHECK(failure_of(bed.owner.lease<both_ways>(region, offset, length)) ==
          error_kind::invalid_input);
  }
  CHECK_THAT(failure_of(bed.owner.lease<both_ways>(region, 64, 0)).message(),
             Catch::Contains("0 bytes"));
  const auto gone = [&] {
    auto moved = must(register_memory<for_all>(bed.domain, memory.content()));
    static_cast<void>(memory_region<for_all>(std::move(moved)));
    return failure_of(bed.owner.lease<both_ways>(anyhow(moved), 0, 0));
  };
  CHECK(gone() == error_kind::invalid_input);
  auto buffer_gone = must(whole_buffer::allocate(bed.domain, 8));
  {
    const auto taken = std::move(buffer_gone);
  }
  CHECK(failure_of(bed.owner.lease<both_ways>(std::move(anyhow(buffer_gone)))) ==
        error_kind::invalid_input);

  const auto elsewhere = must(protection_domain::allocate(bed.context));
  leased_memory of_another(elsewhere, 64);
  if (bed.has_windows())
    CHECK(failure_of(bed.owner.lease<both_ways>(of_another.region(), 0, 64)) ==
          error_kind::invalid_input);
  CHECK(failure_of(bed.owner.lease<both_ways, lease_by::connection>(of_another.region(), 0, 64)) ==
        error_kind::invalid_input);
  // A lease of this kind registers the memory again, this time in the channel's protection domain.
  auto lease = must(bed.owner.lease<both_ways, lease_by::registration>(of_another.region(), 0, 64));
  must(write(bed.peer, buffer<>(bed.domain, 64), must(lease.remote())));

  channel_pair plain = connect_channels(bed.domain.build_channel());
  const error e = failure_of(plain.left.lease<access::remote_atomic>(region, 0, 8));
  CHECK(e == error_kind::permission);
  CHECK_THAT(e.message(), Catch::Contains(".access("));
  CHECK(plain.left.is_connected());
  CHECK(bed.owner.is_connected());
}

TEST_CASE("without revocable windows, the error names the other kinds of lease") {
  lease_bed bed;
  leased_memory memory(bed.domain, 64);
  const auto check = [&](channel& owner) {
    const error e = failure_of(owner.lease<access::remote_write>(memory.region(), 0, 64));
    CHECK(e == error_kind::not_supported);
    CHECK_THAT(e.message(), Catch::Contains("lease_by::registration") &&
                                Catch::Contains("lease_by::connection"));
    CHECK(owner.is_connected());
  };
  SECTION("on UC") {
    channel_pair ends = connect_channels(bed.domain.build_channel<transport::uc>());
    check(ends.right);
    auto lease = must(
        ends.right.lease<access::remote_write, lease_by::registration>(memory.region(), 0, 64));
    const buffer<> source(bed.domain, pattern(64, 11));
    auto received = must(ends.right.post_receive({}));
    must(ends.left.write({.elements = source.gather(),
                          .remote = must(lease.remote()),
                          .immediate = immediate_data(1)}));
    must(received.wait(patience));
    CHECK(memory.bytes() == source.bytes());
    must(lease.revoke());
  }
  SECTION("on a device that reports that it has none") {
    const claimed_capabilities none(IBV_DEVICE_MEM_WINDOW_TYPE_2A | IBV_DEVICE_MEM_WINDOW_TYPE_2B,
                                    0);
    check(bed.owner);
  }
  SECTION("on a device whose requests cannot invalidate") {
    const claimed_capabilities none(IBV_DEVICE_MEM_MGT_EXTENSIONS, 0);
    check(bed.owner);
  }
  SECTION("on a device whose driver has none") {
    bed.need_windows();
    auto kept = must(bed.owner.lease<both_ways>(memory.region(), 0, 64));
    const failing_operation refused(bed.context.native_handle()->ops.alloc_mw, EOPNOTSUPP,
                                    convention::null);
    check(bed.owner);
  }
}

TEST_CASE("a lease by a window is refused at once on a channel whose send queue has length 0") {
  lease_bed bed;
  bed.need_windows();
  leased_memory memory(bed.domain, 64);
  const auto hub = must(channel_hub::create(bed.domain, {.channels = 2, .completions = 64}));
  channel_pair ends = connect_channels(
      bed.domain.build_channel().hub(hub).access(all_rights).max_send_work_requests(0));
  const error e =
      failure_of(ends.left.lease<access::remote_write>(memory.region(), 0, 64, short_limit));
  CHECK(e == error_kind::invalid_input);
  CHECK_THAT(e.message(), Catch::Contains("max_send_work_requests"));
  CHECK(ends.left.is_connected());
}

TEST_CASE_METHOD(memory_for_windows, "a bind that fails breaks the channel and leaves no lease") {
  const failing_device fails("send-completion=mw-bind-err");
  SECTION("if the caller waits for the lease") {
    const error e = failure_of(bed.owner.lease<both_ways>(memory.region(), 0, 64));
    CHECK(status_of(e) == work_status::memory_window_bind_error);
  }
  SECTION("if the caller does not wait for the lease") {
    auto lease = must(bed.owner.post_lease<both_ways>(memory.region(), 0, 64));
    must(lease.revoke());
  }
  CHECK(bed.owner.state() == channel_state::broken);
}

TEST_CASE_METHOD(memory_for_windows,
                 "a lease that the driver refuses to post leaves the channel unchanged") {
  auto lease = must(bed.owner.lease<both_ways>(memory.region(), 0, 64));
  const auto far = must(lease.remote());
  {
    const failing_operation refused(bed.context.native_handle()->ops.post_send, EINVAL,
                                    convention::returns_errno);
    CHECK(failure_of(bed.owner.lease<both_ways>(memory.region(), 0, 64)) ==
          error_kind::invalid_input);
    // The lease is revoked even though it is not possible to post a request.
    must(lease.revoke());
  }
  CHECK(bed.owner.is_connected());
  must(must(bed.owner.lease<both_ways>(memory.region(), 0, 64)).revoke());
  check_closed(bed.peer, bed.domain, memory, far);
}

TEST_CASE("a lease in flight is revoked when it has completed even if no request can be posted") {
  // After a message for which no receive was posted, Linux's software driver may continue only when
  // another request is posted.
  if (!device_name().starts_with("soft"))
    SKIP("this driver may need another request, which this test refuses to post");
  lease_bed bed;
  bed.need_windows();
  leased_memory memory(bed.domain, 64);
  const buffer<> message(bed.domain, 8);
  buffer<> inbox(bed.domain, 8);
  auto blocking = block(bed.owner, message);
  auto lease = must(bed.owner.post_lease<both_ways>(memory.region(), 0, 64));
  const auto far = must(lease.remote());
  std::optional<pending<>> received;
  std::thread receiver([&] {
    // steady: after this pause, the revocation has likely begun; it also succeeds if it begins
    // later
    std::this_thread::sleep_for(moment);
    received = must(bed.peer.post_receive({.elements = inbox.scatter()}));
  });
  const auto revoked = [&] {
    const failing_operation refused(bed.context.native_handle()->ops.post_send, EINVAL,
                                    convention::returns_errno);
    return lease.revoke();
  }();
  receiver.join();
  must(revoked);
  must(blocking.wait(patience));
  must(received->wait(patience));
  must(bed.owner.write({.elements = message.gather(), .remote = inbox.remote()}));
  check_closed(bed.peer, bed.domain, memory, far);
}

TEST_CASE_METHOD(memory_for_windows,
                 "a lease that the device fails to revoke reports the failure") {
  auto lease = must(bed.owner.lease<both_ways>(memory.region(), 0, 64));
  ibv_mw* const window = lease.native_handle();
  reports.clear();
  const destroy_failure_handler before = set_destroy_failure_handler(
      [](const error& cause) noexcept { reports.push_back(cause.message()); });
  std::optional<error> told;
  {
    const failing_operation refused(bed.context.native_handle()->ops.dealloc_mw, EIO,
                                    convention::returns_errno);
    SECTION("when it is revoked") { told = failure_of(lease.revoke(std::chrono::seconds(-1))); }
    // Here, Linux's software driver would wait for the destruction of the window.
    if (!device_name().starts_with("rxe")) SECTION("when it is revoked after its channel") {
        bed.owner = channel();
        told = failure_of(lease.revoke());
      }
    SECTION("when it is dropped") {
      const buffer<> message(bed.domain, 8);
      auto blocking = block(bed.owner, message);
      {
        const auto dropped = std::move(lease);
      }
      CHECK(bed.owner.is_connected());
      static_cast<void>(failure_of(blocking.wait(short_limit)));
    }
  }
  set_destroy_failure_handler(before);
  CHECK(ibv_dealloc_mw(window) == 0);
  CHECK(reports.size() == (told ? 0U : 1U));
  const std::string message = told ? told->message() : reports.front();
  CHECK_THAT(message,
             Catch::Contains("ibv_dealloc_mw") && Catch::Contains("may still have access"));
  if (told) CHECK(*told == error_kind::driver);
}

TEST_CASE("memory is not freed if the device has failed to revoke its lease") {
  if (!device_name().starts_with("soft"))
    SKIP("with this driver, LeakSanitizer would report memory that the test leaks on purpose");
  lease_bed bed;
  std::array<std::byte, 64> mark{};
  mark.fill(std::byte{0x33});
  reports.clear();
  // The bed resets this handler when it is destroyed. The handler stays set until then, because the
  // memory that stays registered prevents the release of the bed's domain.
  set_destroy_failure_handler(
      [](const error& cause) noexcept { reports.push_back(cause.message()); });
  std::size_t reported = 1;
  const std::byte* where = nullptr;
  SECTION("an owned buffer") {
    auto lease = must(bed.owner.lease<both_ways, lease_by::registration>(
        must(whole_buffer::allocate(bed.domain, 64))));
    std::copy(mark.begin(), mark.end(), lease.memory().begin());
    where = lease.memory().data();
    const failing_verb refused("ibv_dereg_mr", EBUSY, convention::returns_errno);
    {
      const auto dropped = std::move(lease);
    }
    CHECK(refused.calls() == 1);
  }
  SECTION("an owned buffer that `revoke` would return") {
    auto lease = must(bed.owner.lease<both_ways, lease_by::registration>(
        must(whole_buffer::allocate(bed.domain, 64))));
    std::copy(mark.begin(), mark.end(), lease.memory().begin());
    where = lease.memory().data();
    const failing_verb refused("ibv_dereg_mr", EBUSY, convention::returns_errno);
    const auto [revoked, memory] = std::move(lease).revoke();
    CHECK(failure_of(revoked) == error_kind::driver);
    CHECK(failure_of(revoked).native_errno() == EBUSY);
    CHECK(memory.data() == nullptr);
    reported = 0;
  }
  SECTION("a shared buffer") {
    auto shared = must(must(whole_buffer::allocate(bed.domain, 64)).share());
    auto lease = must(bed.owner.lease<both_ways, lease_by::registration>(shared));
    std::copy(mark.begin(), mark.end(), shared.begin());
    where = shared.data();
    const failing_verb refused("ibv_dereg_mr", EBUSY, convention::returns_errno);
    {
      const auto dropped = std::move(lease);
    }
    CHECK(refused.calls() == 1);
    CHECK_FALSE(shared.is_only());
  }
  CHECK(std::equal(mark.begin(), mark.end(), where));
  CHECK(reports.size() == reported);
}

}  // namespace verbspp::test::leases
