// SPDX-License-Identifier: Apache-2.0
// Coroutines that await a lease, or its revocation, and senders for both.

#include "coroutines.hpp"
#include "failing_verb.hpp"
#include "leases.hpp"
#include <verbspp/sender.hpp>

#include <cerrno>
#include <cstddef>
#include <optional>
#include <stop_token>
#include <utility>
#include <vector>

namespace verbspp::test::leases {

namespace {

using routine = eager<result<void>>;
using whole_lease = lease<both_ways, whole_buffer>;

/// Awaits the revocation of a lease. The caller keeps the lease.
routine revoke(lease<both_ways>& granted, wait_limit limit = patience) {
  VERBSPP_CO_TRYV(co_await granted.async_revoke(limit));
  co_return success();
}

/// Returns an awaitable for a lease of the kind `by`. The kind is an argument, because g++ 11
/// crashes while it compiles a coroutine with a template parameter that is a value of an
/// enumeration.
template <class... Arguments>
auto async_lease(channel& from, lease_by by, Arguments&&... arguments) {
  if (by == lease_by::window)
    return from.async_lease<both_ways>(std::forward<Arguments>(arguments)...);
  if (by == lease_by::registration)
    return from.async_lease<both_ways, lease_by::registration>(
        std::forward<Arguments>(arguments)...);
  return from.async_lease<both_ways, lease_by::connection>(std::forward<Arguments>(arguments)...);
}
/// Awaits a lease, and moves it to `into`.
routine grant(channel& from, const leased_memory& memory, std::optional<lease<both_ways>>& into,
              wait_limit limit = patience, lease_by by = lease_by::window) {
  constexpr std::size_t length = 64;
  VERBSPP_CO_TRY(granted,
                 co_await async_lease(from, by, memory.region(), std::size_t{0}, length, limit));
  into.emplace(std::move(granted));
  co_return success();
}
/// Awaits a lease that owns its memory.
routine grant_whole(channel& from, whole_buffer& memory, std::optional<whole_lease>& into,
                    wait_limit limit = patience, lease_by by = lease_by::window) {
  VERBSPP_CO_TRY(granted, co_await async_lease(from, by, std::move(memory), limit));
  into.emplace(std::move(granted));
  co_return success();
}

/// Ends the connection in one of four ways.
/// \param blocking a request that cannot finish
void end_connection(channel& owner, pending<>& blocking) {
  SECTION("by closing the channel") { must(owner.close()); }
  SECTION("by renewing the channel") { must(owner.renew()); }
  SECTION("by destroying the channel") { owner = channel(); }
  SECTION("by a failure") {
    static_cast<void>(failure_of(blocking.wait(short_limit)));
    owner.poll();
  }
}

/// Leases memory, and fills the owner's send queue with requests that cannot finish, because the
/// peer has posted no receive.
struct full_queue {
  full_queue() {
    bed.need_windows();
    bed.owner = channel();
    channel_pair ends = connect_channels(
        bed.domain.build_channel().access(for_all - access::window_bind).max_send_work_requests(2));
    bed.peer = std::move(ends.left);
    bed.owner = std::move(ends.right);
    granted.emplace(must(bed.owner.lease<both_ways>(memory.region(), 0, 64)));
    far.emplace(must(granted->remote()));
    while (bed.owner.outstanding() < bed.owner.capacities().max_send_work_requests)
      blocking.push_back(block(bed.owner, message));
  }
  /// Skips the test if the coroutine has revoked its lease without a request.
  void need_request(const routine& revoking) {
    if (!revoking.is_done()) return;
    release();  // otherwise, the handles would wait until their limit
    SKIP("the device does not invalidate windows by requests");
  }
  /// Lets the requests of the owner finish.
  void release() {
    for (std::size_t i = 0; i < blocking.size(); ++i)
      received.push_back(must(bed.peer.post_receive({.elements = inbox.scatter()})));
    for (pending<>& each : blocking) must(each.wait(patience));
  }

  lease_bed bed;
  leased_memory memory{bed.domain, 64};
  buffer<> message{bed.domain, 8};
  buffer<> inbox{bed.domain, 8};
  std::optional<lease<both_ways>> granted{};
  std::optional<remote_memory<both_ways>> far{};
  std::vector<pending<>> blocking{};
  std::vector<pending<>> received{};
};

}  // namespace

TEST_CASE("a coroutine awaits each kind of lease") {
  for_each_way([]<lease_by By>(lease_bed& bed) {
    leased_memory memory(bed.domain, 64);
    std::optional<lease<both_ways>> granted;
    routine granting = grant(bed.owner, memory, granted, patience, By);
    must(run(granting, bed.owner));
    CHECK(bed.owner.outstanding() == 0);
    const auto far = must(granted->remote());
    must(write(bed.peer, buffer<>(bed.domain, 64), far));
    must(granted->revoke());
    check_closed(bed.peer, bed.domain, memory, far);
  });
}

TEST_CASE("awaited leases own or share their memory") {
  for_each_way([]<lease_by By>(lease_bed& bed) {
    auto memory = must(whole_buffer::allocate(bed.domain, 64));
    const std::byte* const first = memory.data();
    std::optional<whole_lease> owning;
    routine granting = grant_whole(bed.owner, memory, owning, patience, By);
    must(run(granting, bed.owner));
    CHECK(owning->memory().data() == first);
    must(write(bed.peer, buffer<>(bed.domain, 64), must(owning->remote())));
    auto returned = std::move(*owning).revoke();
    must(returned.result);

    if (!bed.owner.is_connected()) bed.connect();
    const auto shared = must(std::move(returned.memory).share());
    std::optional<lease<both_ways>> sharing;
    const auto share = [&]() -> routine {
      VERBSPP_CO_TRY(granted, co_await bed.owner.async_lease<both_ways, By>(shared));
      sharing.emplace(std::move(granted));
      co_return success();
    };
    routine again = share();
    must(run(again, bed.owner));
    CHECK(must(sharing->remote()).length() == 64);
  });
}

TEST_CASE_METHOD(memory_for_windows, "a coroutine awaits a lease of a window part") {
  const auto part = must(memory.region().window_part<both_ways>(0, 64));
  bool is_open = false;
  const auto use = [&]() -> routine {
    VERBSPP_CO_TRY(granted, co_await bed.owner.async_lease(part));
    is_open = granted.is_open();
    co_return success();
  };
  routine using_it = use();
  must(run(using_it, bed.owner));
  CHECK(is_open);
}

TEST_CASE("an awaited lease that is refused leaves the memory to the caller") {
  const lease_bed bed;
  channel_pair ends = connect_channels(bed.domain.build_channel().access(access::remote_read));
  auto memory = must(whole_buffer::allocate(bed.domain, 64));
  const std::byte* const first = memory.data();
  std::optional<whole_lease> none;
  routine granting = grant_whole(ends.left, memory, none, patience, lease_by::registration);
  REQUIRE(granting.is_done());
  CHECK(failure_of(granting.get()) == error_kind::permission);
  CHECK(memory.data() == first);
  const leased_memory region(bed.domain, 32);
  std::optional<lease<both_ways>> neither;
  routine too_long = grant(ends.left, region, neither, patience, lease_by::registration);
  REQUIRE(too_long.is_done());
  CHECK(failure_of(too_long.get()) == error_kind::invalid_input);
}

TEST_CASE_METHOD(full_queue, "an awaited lease waits for room in the send queue") {
  std::optional<lease<both_ways>> second;
  std::optional<routine> granting(grant(bed.owner, memory, second));
  CHECK_FALSE(granting->is_done());
  CHECK(bed.owner.outstanding() == 2);
  SECTION("and is granted when there is room") {
    release();
    must(run(*granting, bed.owner));
    must(write(bed.peer, buffer<>(bed.domain, 64), must(second->remote())));
  }
  SECTION("and posts nothing if the coroutine is destroyed") {
    granting.reset();
    release();
    received.push_back(must(bed.peer.post_receive({.elements = inbox.scatter()})));
    const auto next = bed.owner.async_send({});
    CHECK(bed.owner.outstanding() == 1);
  }
  CHECK(bed.owner.is_connected());
}

TEST_CASE_METHOD(full_queue, "an awaited lease that gets no room in time is not granted") {
  std::optional<lease<both_ways>> none;
  std::stop_source source;
  const bool by_stop = GENERATE(false, true);
  routine granting = by_stop ? grant(bed.owner, memory, none, source.get_token())
                             : grant(bed.owner, memory, none, short_limit);
  source.request_stop();
  CHECK(failure_of(run(granting, bed.owner)) ==
        (by_stop ? error_kind::cancelled : error_kind::timed_out));
  CHECK(bed.owner.is_connected());
  CHECK(bed.owner.outstanding() == 2);
  release();
}

TEST_CASE_METHOD(memory_for_windows,
                 "the limit of an awaited lease breaks the channel if its bind is in flight") {
  const buffer<> message(bed.domain, 8);
  auto whole = must(whole_buffer::allocate(bed.domain, 64));
  const std::byte* const first = whole.data();
  auto blocking = block(bed.owner, message);
  std::optional<whole_lease> none;
  routine granting = grant_whole(bed.owner, whole, none, short_limit);
  if (granting.is_done()) SKIP("the device binds windows before earlier requests have completed");
  CHECK(failure_of(run(granting, bed.owner)) == error_kind::timed_out);
  CHECK(bed.owner.state() == channel_state::broken);
  CHECK(whole.data() == first);
  static_cast<void>(failure_of(blocking.wait(short_limit)));
}

TEST_CASE_METHOD(memory_for_windows,
                 "a lease that is being granted is revoked when its coroutine is destroyed") {
  const buffer<> message(bed.domain, 8);
  buffer<> inbox(bed.domain, 8);
  auto whole = must(whole_buffer::allocate(bed.domain, 64));
  const std::byte* const first = whole.data();
  const bool finishes = GENERATE(true, false);
  std::optional<pending<>> received;
  if (finishes) received.emplace(must(bed.peer.post_receive({.elements = inbox.scatter()})));
  auto before = must(bed.owner.post_send({.elements = message.gather()}));
  std::optional<whole_lease> none;
  {
    const routine granting = grant_whole(bed.owner, whole, none);
    if (granting.is_done()) SKIP("the device binds windows before earlier requests have completed");
    if (finishes) must(received->wait(patience));
  }
  CHECK(bed.owner.outstanding() == 0);
  CHECK(whole.data() == first);
  CHECK(before.wait(short_limit).has_value() == finishes);
}

TEST_CASE_METHOD(memory_for_windows, "the end of a connection ends awaited leases") {
  const buffer<> message(bed.domain, 8);
  auto whole = must(whole_buffer::allocate(bed.domain, 64));
  const std::byte* const first = whole.data();
  auto blocking = block(bed.owner, message);
  std::optional<whole_lease> none;
  routine granting = grant_whole(bed.owner, whole, none);
  if (granting.is_done()) SKIP("the device binds windows before earlier requests have completed");
  end_connection(bed.owner, blocking);
  REQUIRE(granting.is_done());
  CHECK(granting.get().has_error());
  CHECK(whole.data() == first);
}

TEST_CASE("a coroutine awaits the revocation of each kind of lease") {
  for_each_way([]<lease_by By>(lease_bed& bed) {
    leased_memory memory(bed.domain, 64);
    auto granted = must(bed.owner.lease<both_ways, By>(memory.region(), 0, 64));
    const auto far = must(granted.remote());
    must(write(bed.peer, buffer<>(bed.domain, 64), far));
    routine revoking = revoke(granted);
    must(run(revoking, bed.owner));
    CHECK(bed.owner.outstanding() == 0);
    CHECK(bed.owner.is_connected() == (By != lease_by::connection));
    CHECK_FALSE(anyhow(granted).is_open());
    check_closed(bed.peer, bed.domain, memory, far);
    routine again = revoke(anyhow(granted));
    CHECK(failure_of(run(again, bed.owner)) == error_kind::invalid_input);
  });
}

TEST_CASE("awaiting the revocation of a lease returns the memory that the lease owned") {
  for_each_way([]<lease_by By>(lease_bed& bed) {
    std::optional<whole_buffer> returned;
    const auto revoke_whole = [&](whole_lease granted) -> routine {
      auto [done, memory] = co_await std::move(granted).async_revoke(patience);
      returned = std::move(memory);
      VERBSPP_CO_TRYV(done);
      co_return success();
    };
    auto memory = must(whole_buffer::allocate(bed.domain, 64));
    const std::byte* const first = memory.data();
    routine revoking =
        revoke_whole(must(bed.owner.lease<both_ways, By>(std::move(memory), patience)));
    must(run(revoking, bed.owner));
    CHECK(returned.value().data() == first);
  });
}

TEST_CASE_METHOD(memory_for_windows,
                 "an awaited revocation needs no request if the device refuses it") {
  auto granted = must(bed.owner.lease<both_ways>(memory.region(), 0, 64));
  const auto far = must(granted.remote());
  {
    const failing_operation refused(bed.context.native_handle()->ops.post_send, EINVAL,
                                    convention::returns_errno);
    routine revoking = revoke(granted);
    must(run(revoking, bed.owner));
  }
  CHECK(bed.owner.is_connected());
  check_closed(bed.peer, bed.domain, memory, far);
}

TEST_CASE_METHOD(full_queue, "an awaited revocation waits for room in the send queue") {
  const auto shared = must(shared_buffer<>::of(must(registered_buffer<>::allocate(bed.domain, 8))));
  routine revoking = revoke(*granted);
  need_request(revoking);
  bed.owner.poll();
  CHECK(bed.owner.outstanding() == 2);
  CHECK(granted->is_open());
  // If another request is awaited now, it is queued behind the revocation.
  bool was_sent_first = false;
  const auto send = [&]() -> routine {
    must(co_await bed.owner.async_send({.elements = shared}, patience));
    was_sent_first = granted->is_open();
    co_return success();
  };
  routine sending = send();
  received.push_back(must(bed.peer.post_receive({.elements = inbox.scatter()})));
  release();
  must(run(revoking, bed.owner));
  must(run(sending, bed.owner));
  CHECK_FALSE(was_sent_first);
  CHECK(bed.owner.is_connected());
  check_closed(bed.peer, bed.domain, memory, *far);
}

TEST_CASE_METHOD(memory_for_windows,
                 "an awaited revocation whose limit was reached before needs no request") {
  auto granted = must(bed.owner.lease<both_ways>(memory.region(), 0, 64));
  const auto far = must(granted.remote());
  routine revoking = revoke(granted, clock::now());
  REQUIRE(revoking.is_done());
  must(revoking.get());
  CHECK(bed.owner.outstanding() == 0);
  CHECK(bed.owner.is_connected());
  check_closed(bed.peer, bed.domain, memory, far);
}

TEST_CASE_METHOD(full_queue, "a revocation that gets no room in time needs no request") {
  std::stop_source source;
  const bool by_stop = GENERATE(false, true);
  routine revoking = by_stop ? revoke(*granted, source.get_token()) : revoke(*granted, short_limit);
  source.request_stop();
  must(run(revoking, bed.owner));
  CHECK(bed.owner.is_connected());
  CHECK(bed.owner.outstanding() == 2);
  release();
  // No request waits for room any more, so the next one is posted immediately.
  received.push_back(must(bed.peer.post_receive({.elements = inbox.scatter()})));
  const auto next = bed.owner.async_send({});
  CHECK(bed.owner.outstanding() == 1);
  check_closed(bed.peer, bed.domain, memory, *far);
}

TEST_CASE_METHOD(full_queue,
                 "destroying a coroutine that waits for room to revoke a lease leaves it open") {
  const auto shared = must(shared_buffer<>::of(must(registered_buffer<>::allocate(bed.domain, 8))));
  {
    const routine revoking = revoke(*granted);
    need_request(revoking);
  }
  CHECK(granted->is_open());
  release();
  // No coroutine waits for room any more, so the next request is posted immediately.
  const auto send = [&]() -> routine {
    must(co_await bed.owner.async_send({.elements = shared}, patience));
    co_return success();
  };
  received.push_back(must(bed.peer.post_receive({.elements = inbox.scatter()})));
  routine sending = send();
  CHECK(bed.owner.outstanding() == 1);
  must(run(sending, bed.owner));
  must(write(bed.peer, buffer<>(bed.domain, 64), *far));
  must(granted->revoke());
  check_closed(bed.peer, bed.domain, memory, *far);
}

TEST_CASE_METHOD(memory_for_windows,
                 "a revocation behind a request that does not finish ends at its limit") {
  const buffer<> message(bed.domain, 8);
  auto granted = must(bed.owner.lease<both_ways>(memory.region(), 0, 64));
  const auto far = must(granted.remote());
  auto blocking = block(bed.owner, message);
  std::stop_source source;
  const bool by_stop = GENERATE(false, true);
  routine revoking = by_stop ? revoke(granted, source.get_token()) : revoke(granted, short_limit);
  if (revoking.is_done()) SKIP("the device does not invalidate windows by requests");
  source.request_stop();
  const auto& done = run(revoking, bed.owner);
  if (done.has_value()) {
    WARN("this device closes windows before earlier requests have completed");
  } else {
    CHECK(done.error() == (by_stop ? error_kind::cancelled : error_kind::timed_out));
    CHECK(bed.owner.state() == channel_state::broken);
  }
  check_closed(bed.peer, bed.domain, memory, far);
  static_cast<void>(failure_of(blocking.wait(short_limit)));
}

TEST_CASE_METHOD(
    memory_for_windows,
    "a lease whose revocation is in flight is revoked when its coroutine is destroyed") {
  const buffer<> message(bed.domain, 8);
  buffer<> inbox(bed.domain, 8);
  auto whole = must(whole_buffer::allocate(bed.domain, 64));
  const auto revoke_whole = [](whole_lease granted) -> routine {
    auto [done, returned] = co_await std::move(granted).async_revoke();
    VERBSPP_CO_TRYV(done);
    co_return success();
  };
  auto granted = must(bed.owner.lease<both_ways>(std::move(whole), patience));
  const auto far = must(granted.remote());
  const bool finishes = GENERATE(true, false);
  std::optional<pending<>> received;
  if (finishes) received.emplace(must(bed.peer.post_receive({.elements = inbox.scatter()})));
  auto before = must(bed.owner.post_send({.elements = message.gather()}));
  {
    const routine revoking = revoke_whole(std::move(granted));
    if (revoking.is_done()) SKIP("the device does not invalidate windows by requests");
    if (finishes) must(received->wait(patience));
    if (GENERATE(false, true)) bed.owner = channel();
  }
  CHECK(bed.owner.outstanding() == 0);
  CHECK(write(bed.peer, buffer<>(bed.domain, 64), far, short_limit).has_error());
  static_cast<void>(before.wait(short_limit));
}

TEST_CASE_METHOD(memory_for_windows, "the end of a connection ends awaited revocations") {
  const buffer<> message(bed.domain, 8);
  auto granted = must(bed.owner.lease<both_ways>(memory.region(), 0, 64));
  const auto far = must(granted.remote());
  auto blocking = block(bed.owner, message);
  routine revoking = revoke(granted);
  if (revoking.is_done()) SKIP("the device does not invalidate windows by requests");
  end_connection(bed.owner, blocking);
  REQUIRE(revoking.is_done());
  must(revoking.get());
  CHECK_FALSE(anyhow(granted).is_open());
  check_closed(bed.peer, bed.domain, memory, far);
}

TEST_CASE_METHOD(memory_for_windows, "a sender revokes a lease") {
  struct receiver {
    bool* is_revoked;
    std::optional<whole_buffer>* returned;
    void set_value() && noexcept { *is_revoked = true; }
    void set_value(whole_buffer&& memory) && noexcept { *returned = std::move(memory); }
    void set_error(const error& /*failed*/) && noexcept {}
    void set_error(const revoked<whole_buffer>& /*failed*/) && noexcept {}
    void set_stopped() && noexcept {}
  };
  bool is_revoked = false;
  std::optional<whole_buffer> returned;
  auto granted = must(bed.owner.lease<both_ways>(memory.region(), 0, 64));
  auto owning =
      must(bed.owner.lease<both_ways>(must(whole_buffer::allocate(bed.domain, 64)), patience));
  auto first =
      as_sender([&] { return granted.async_revoke(); }).connect(receiver{&is_revoked, &returned});
  auto second = as_sender([&] {
                  return std::move(owning).async_revoke();
                }).connect(receiver{&is_revoked, &returned});
  first.start();
  second.start();
  wait_until(
      [&] {
        bed.owner.poll();
        return is_revoked && returned.has_value();
      },
      "both senders");
  CHECK(bed.owner.is_connected());
}

TEST_CASE_METHOD(memory_for_windows, "a sender grants a lease") {
  struct receiver {
    std::optional<lease<both_ways>>* granted;
    void set_value(lease<both_ways>&& made) && noexcept { granted->emplace(std::move(made)); }
    void set_error(const error& /*failed*/) && noexcept {}
    void set_stopped() && noexcept {}
  };
  std::optional<lease<both_ways>> granted;
  auto granting = as_sender([&] {
                    return bed.owner.async_lease<both_ways>(memory.region(), 0, 64);
                  }).connect(receiver{&granted});
  granting.start();
  wait_until([&] { return (bed.owner.poll(), granted.has_value()); }, "the sender");
  must(write(bed.peer, buffer<>(bed.domain, 64), must(granted->remote())));
}

}  // namespace verbspp::test::leases
