// SPDX-License-Identifier: Apache-2.0
#include "../catch.hpp"
#include <verbspp/core/detail/send_window.hpp>
#include <verbspp/work/detail/wr_id.hpp>

#include <infiniband/verbs.h>

#include <chrono>
#include <cstddef>
#include <cstdint>

using namespace verbspp;
using namespace verbspp::detail;

namespace {

/// Memory that counts how often requests have released it.
struct counting_keeper : memory_keeper {
  counting_keeper() noexcept
      : memory_keeper{
            [](memory_keeper& self) noexcept { ++static_cast<counting_keeper&>(self).releases; }} {}
  int releases = 0;
};

/// The send window of a connection whose send queue has the given capacity.
struct open_window {
  explicit open_window(std::uint32_t capacity) {
    REQUIRE(window.begin_connection(false, false).has_value());
    window.set_capacity(capacity);
    REQUIRE(window.allocate().has_value());
    REQUIRE(guard.allocate(window.places(), 1).has_value());
    window.open();
  }
  void post(std::uint32_t count, scope_state* scope = nullptr) { window.advance(count, scope); }
  void complete(std::uint64_t number) {
    window.complete(wr_id_of(work_operation::send, number), guard);
  }
  request of(std::uint64_t number) const {
    request one;
    one.number = number;
    one.operation = work_operation::rdma_write;
    return one;
  }

  send_window window{};
  memory_guard guard{};
};

}  // namespace

TEST_CASE("a later connection does not get more room than the send window has records") {
  open_window sends(4);
  sends.window.close();
  sends.window.set_capacity(100);
  sends.window.open();
  CHECK(sends.window.room() == 4);
}

TEST_CASE("a send window has as much room as the queue, and room returns when requests complete") {
  open_window sends(4);
  CHECK(sends.window.next() == 1);
  CHECK(sends.window.room() == 4);
  sends.post(3);
  CHECK(sends.window.room() == 1);
  CHECK(sends.window.outstanding() == 3);
  sends.post(1);
  CHECK_FALSE(sends.window.has_room());
  // When a signaled request completes, so do the requests before it.
  sends.complete(2);
  CHECK(sends.window.room() == 2);
  CHECK(sends.window.is_done(2));
  CHECK(sends.window.has_succeeded(2));
  CHECK_FALSE(sends.window.is_done(3));
  sends.window.close();
  CHECK(sends.window.room() == 0);
  sends.complete(4);
  CHECK(sends.window.room() == 0);
  CHECK(sends.window.outstanding() == 0);
}

TEST_CASE("a send window ignores completions of requests that have already completed") {
  open_window sends(4);
  sends.post(3);
  sends.complete(3);
  for (const std::uint64_t late : {1U, 2U}) {
    sends.complete(late);
    sends.window.complete_plainly(wr_id_of(work_operation::send, late));
    CHECK(sends.window.completed() == 4);
  }
}

TEST_CASE("a send window releases the memory of a request once when the request has completed") {
  open_window sends(8);
  counting_keeper first;
  counting_keeper last;
  sends.post(3);
  sends.window.keep(1, {.keeper = &first});
  sends.window.keep(3, {.keeper = &last});
  CHECK(sends.window.needs_care());
  sends.complete(2);
  CHECK(first.releases == 1);
  CHECK(last.releases == 0);
  CHECK(sends.window.needs_care());
  SECTION("the device has finished with the memory") {
    sends.complete(3);
    CHECK(last.releases == 1);
  }
  SECTION("the queue pair could not be destroyed, so the memory is never released") {
    sends.guard.set_lost(true);
    sends.complete(3);
    CHECK(last.releases == 0);
    // The memory must stay occupied even when a later request completes. That request's record has
    // the same index.
    sends.guard.set_lost(false);
    sends.window.need_care();
    sends.post(20);
    sends.complete(23);
    CHECK(last.releases == 0);
    return;
  }
  CHECK(first.releases == 1);
  CHECK_FALSE(sends.window.needs_care());
}

TEST_CASE("a send window completes the next request without care if it has succeeded") {
  counting_keeper keeper;
  open_window sends(4);
  const auto complete_next = [&](std::uint64_t number, std::uint32_t status = 0) {
    return sends.window.complete_next(wr_id_of(work_operation::rdma_write, number), status);
  };
  sends.post(4);
  sends.window.keep(2, {.keeper = &keeper});
  CHECK_FALSE(complete_next(2));
  CHECK(complete_next(1));
  CHECK(sends.window.has_succeeded(1));
  CHECK(sends.window.room() == 1);
  CHECK(keeper.releases == 0);
  CHECK(complete_next(2));
  CHECK(keeper.releases == 1);
  CHECK_FALSE(sends.window.needs_care());
  CHECK_FALSE(complete_next(2));
  CHECK_FALSE(complete_next(3, 5));
  CHECK_FALSE(sends.window.is_done(3));
}

TEST_CASE("a send window has a separate record for each request number that may be in use") {
  open_window sends(4);
  counting_keeper keeper;
  for (std::uint32_t number = 1; number <= 40; ++number) {
    sends.post(1);
    if (number % 3 == 0) sends.window.keep(number, {.keeper = &keeper});
    if (number % 4 == 0) sends.complete(number);
  }
  CHECK(keeper.releases == 13);
  CHECK_FALSE(sends.window.needs_care());
}

TEST_CASE("a send window finds the scope of each request in flight") {
  open_window sends(16);
  open_scopes scopes;
  scope_state outer;
  scope_state inner;
  scopes.open(outer, sends.window.next());
  sends.post(2, &outer);
  scopes.open(inner, sends.window.next());
  sends.post(2, &inner);
  sends.post(1);
  sends.post(1, &outer);
  sends.post(1, &inner);
  const auto scope_of = [&](std::uint64_t number) { return sends.window.scope_of(number, scopes); };
  for (const std::uint64_t number : {1U, 2U, 6U}) CHECK(scope_of(number) == &outer);
  for (const std::uint64_t number : {3U, 4U, 7U}) CHECK(scope_of(number) == &inner);
  CHECK(scope_of(5) == nullptr);
}

TEST_CASE("the scopes of many consecutive requests are found quickly") {
  constexpr std::uint32_t count = 400'000;
  open_window sends(count + 2);
  open_scopes scopes;
  scope_state outer;
  scope_state inner;
  scopes.open(outer, sends.window.next());
  sends.post(count, &outer);
  scopes.open(inner, sends.window.next());
  sends.post(1, &inner);
  sends.post(1, &outer);
  // If each call searched the whole run of requests, the test would take minutes.
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  std::uint32_t found = 0;
  for (std::uint64_t number = 1; number <= count; ++number) {
    if (sends.window.scope_of(number, scopes) == &outer) ++found;
    if (number % 1024 == 0 && std::chrono::steady_clock::now() > limit) break;
  }
  CHECK(found == count);
  CHECK(sends.window.scope_of(count + 1, scopes) == &inner);
}

TEST_CASE("a send window still finds all scopes after requests were posted between two searches") {
  open_window sends(8);
  open_scopes scopes;
  scope_state outer;
  scope_state inner;
  scopes.open(outer, sends.window.next());
  sends.post(2, &outer);
  scopes.open(inner, sends.window.next());
  sends.post(2, &inner);
  sends.post(1);
  sends.post(1, &inner);
  CHECK(sends.window.scope_of(1, scopes) == &outer);
  CHECK(sends.window.scope_of(5, scopes) == nullptr);
  CHECK(sends.window.scope_of(3, scopes) == &inner);
  sends.post(1, &outer);
  for (const std::uint64_t number : {1U, 2U, 7U})
    CHECK(sends.window.scope_of(number, scopes) == &outer);
  for (const std::uint64_t number : {3U, 4U, 6U})
    CHECK(sends.window.scope_of(number, scopes) == &inner);
}

TEST_CASE("a send window does not confuse the scopes of requests that use the same record") {
  open_window sends(4);
  open_scopes scopes;
  counting_keeper keeper;
  scope_state first;
  scope_state second;
  // Each scope has two runs of requests, separated by a request that does not belong to the scope.
  // The window keeps a record only for the earlier run.
  scopes.open(first, sends.window.next());
  sends.post(1, &first);
  sends.post(1);
  sends.post(1, &first);
  sends.complete(3);
  scopes.close(first);
  sends.post(static_cast<std::uint32_t>(sends.window.places()) - 3);
  sends.complete(sends.window.next() - 1);
  const std::uint64_t unscoped = sends.window.next();
  sends.post(1);
  sends.window.keep(unscoped, {.keeper = &keeper});
  scopes.open(second, sends.window.next());
  sends.post(1, &second);
  sends.post(1);
  sends.post(1, &second);
  CHECK(sends.window.place_of(unscoped) == sends.window.place_of(1));
  CHECK(sends.window.scope_of(unscoped, scopes) == nullptr);
  CHECK(sends.window.scope_of(unscoped + 1, scopes) == &second);
}

TEST_CASE("a send window has records for a batch in addition to those for a full queue") {
  for (const std::uint32_t capacity : {1U, 3U, 4U, 100U})
    CHECK(open_window(capacity).window.places() >= 2 * std::size_t{capacity});
}

TEST_CASE("a send window stores the first failed request and the cause of its failure") {
  open_window sends(8);
  sends.post(4);
  sends.complete(1);
  sends.window.set_queue_pair(17);
  sends.window.fail(2, IBV_WC_WR_FLUSH_ERR, 0);
  sends.window.fail(3, IBV_WC_REM_ACCESS_ERR, 5);
  sends.window.fail(4, IBV_WC_RETRY_EXC_ERR, 0);
  CHECK(sends.window.failure_of(1) == nullptr);
  const lost_sends* const lost = sends.window.failure_of(3);
  REQUIRE(lost != nullptr);
  CHECK(sends.window.failure_of(2) == lost);
  CHECK(lost->error_of(sends.of(2)).status() == work_status::flushed);
  CHECK(lost->error_of(sends.of(3)).status() == work_status::remote_access_error);
  CHECK(lost->error_of(sends.of(3)).vendor_code() == 5);
  CHECK(lost->error_of(sends.of(4)).status() == work_status::flushed);
}

TEST_CASE("a send window reports failures of an earlier connection while handles exist") {
  open_window sends(8);
  sends.post(2);
  sends.window.fail(1, IBV_WC_RETRY_EXC_ERR, 0);
  sends.window.set_suspect(true);
  sends.window.complete_until(3, sends.guard);
  const bool has_handles = GENERATE(true, false);
  REQUIRE(sends.window.begin_connection(has_handles, has_handles).has_value());
  sends.window.open();
  sends.post(2);
  sends.complete(3);
  CHECK((sends.window.failure_of(1) != nullptr) == has_handles);
  CHECK((sends.window.failure_of(2) != nullptr) == has_handles);
  CHECK(sends.window.failure_of(3) == nullptr);
  // If handles of the earlier connection exist, results are suspect, and no request is certain to
  // have succeeded.
  CHECK(sends.window.is_suspect() == has_handles);
  CHECK(sends.window.has_succeeded(3) != has_handles);
  if (has_handles) {
    CHECK_FALSE(sends.window.is_of_this_connection(*sends.window.failure_of(1)));
    sends.window.forget_earlier();
    sends.window.set_suspect(false);
    CHECK(sends.window.failure_of(1) == nullptr);
    CHECK(sends.window.has_succeeded(3));
  }
}

TEST_CASE("a send window keeps failures of earlier connections only for handles of its requests") {
  open_window sends(8);
  for (int i = 0; i < 10; ++i) CHECK(sends.window.begin_connection(true, false).has_value());
  CHECK(sends.window.kept_connections() == 1);
  // The number of earlier connections is so large that their destruction must not recurse.
  constexpr std::uint32_t renewals = 300'000;
  bool has_begun = true;
  for (std::uint32_t i = 0; i < renewals; ++i)
    has_begun = sends.window.begin_connection(true, true).has_value() && has_begun;
  CHECK(has_begun);
  CHECK(sends.window.kept_connections() == renewals + 1);
}

TEST_CASE("a send window counts the unsignaled requests after the last signaled one") {
  open_window sends(8);
  sends.window.note_signaled();
  CHECK(sends.window.longest_unsignaled() == 4);
  CHECK_FALSE(sends.window.may_have_unsignaled(1));
  sends.post(3);
  CHECK(sends.window.may_have_unsignaled(3));
  CHECK_FALSE(sends.window.may_have_unsignaled(4));
  sends.window.note_signaled();
  CHECK(sends.window.signaled_end() == 4);
  CHECK_FALSE(sends.window.may_have_unsignaled(1));
  // Requests from an earlier connection are not counted.
  sends.post(2);
  sends.window.close();
  sends.complete(5);
  sends.window.open();
  CHECK_FALSE(sends.window.may_have_unsignaled(1));
}

TEST_CASE("a request that was posted before a scope's first request is not in the scope") {
  open_window sends(8);
  open_scopes scopes;
  scope_state scope;
  sends.post(1);
  scopes.open(scope, sends.window.next());
  sends.post(1);
  sends.post(1, &scope);
  CHECK(sends.window.scope_of(1, scopes) == nullptr);
  CHECK(sends.window.scope_of(2, scopes) == nullptr);
  CHECK(sends.window.scope_of(3, scopes) == &scope);
}

TEST_CASE("a caller need not wait for room if there is some, or if there never will be") {
  CHECK_FALSE(send_window().is_open());
  open_window sends(4);
  CHECK(sends.window.is_open());
  sends.post(2);
  CHECK(sends.window.need_not_wait(2));
  CHECK_FALSE(sends.window.need_not_wait(3));
  CHECK_FALSE(sends.window.need_not_wait(4));
  CHECK(sends.window.need_not_wait(5));
  sends.window.close();
  CHECK_FALSE(sends.window.is_open());
  CHECK(sends.window.need_not_wait(3));
}

TEST_CASE("a stream signals at least every request after half of the queue, rounded up") {
  CHECK(open_window(1).window.longest_unsignaled() == 1);
  CHECK(open_window(5).window.longest_unsignaled() == 3);
}

TEST_CASE("requests that keep no memory complete by counting alone") {
  open_window sends(4);
  sends.post(3);
  CHECK_FALSE(sends.window.needs_care());
  sends.window.complete_plainly(wr_id_of(work_operation::rdma_write, 2));
  CHECK(sends.window.completed() == 3);
  CHECK(sends.window.room() == 3);
  CHECK(sends.window.has_succeeded(2));
  CHECK_FALSE(sends.window.has_succeeded(3));
  sends.window.need_care();
  CHECK(sends.window.needs_care());
}

TEST_CASE("a request without a handle is counted, and keeps its memory, until it completes") {
  open_window sends(4);
  counting_keeper keeper;
  sends.post(2);
  sends.window.keep_unheld(2, {.keeper = &keeper});
  CHECK(sends.window.unheld() == 1);
  CHECK(sends.window.needs_care());
  sends.complete(1);
  CHECK(sends.window.unheld() == 1);
  CHECK(keeper.releases == 0);
  sends.complete(2);
  CHECK(sends.window.unheld() == 0);
  CHECK(keeper.releases == 1);
  CHECK_FALSE(sends.window.needs_care());
}

TEST_CASE("requests whose handles were dropped are counted until they complete") {
  open_window sends(4);
  sends.post(3);
  sends.window.note_unheld(3);
  sends.window.note_unheld(1);
  CHECK(sends.window.unheld() == 2);
  sends.complete(1);
  CHECK(sends.window.unheld() == 1);
  sends.complete(3);
  CHECK(sends.window.unheld() == 0);
  // These requests have handles, although earlier requests with the same records had none.
  sends.post(4);
  sends.complete(7);
  sends.post(4);
  sends.window.note_unheld(11);
  CHECK(sends.window.unheld() == 1);
}

TEST_CASE(
    "while results are suspect, completions need care and no request is known to have succeeded") {
  open_window sends(4);
  sends.post(2);
  sends.complete(1);
  sends.window.set_suspect(true);
  sends.window.set_suspect(true);
  CHECK(sends.window.needs_care());
  CHECK(sends.window.is_done(1));
  CHECK_FALSE(sends.window.has_succeeded(1));
  sends.window.set_suspect(false);
  CHECK_FALSE(sends.window.needs_care());
  CHECK(sends.window.has_succeeded(1));
}
