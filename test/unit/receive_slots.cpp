// SPDX-License-Identifier: Apache-2.0
#include "../catch.hpp"
#include <verbspp/core/detail/receive_slots.hpp>

#include <cstdint>
#include <set>
#include <vector>

using namespace verbspp;
using namespace verbspp::detail;

namespace {

/// The slots of a connection whose receive queue has the given capacity.
struct open_slots {
  explicit open_slots(std::uint32_t capacity) {
    slots.set_capacity(capacity);
    REQUIRE(slots.allocate().has_value());
    REQUIRE(guard.allocate(slots.size(), 1).has_value());
    slots.open();
  }
  receive_slot& post(scope_state* scope = nullptr, bool is_held = true) {
    REQUIRE(slots.has_room());
    receive_slot& slot = slots.next();
    slots.commit(slot, scope, is_held);
    return slot;
  }
  void complete(receive_slot& slot) { slots.complete(slot, 0, guard); }
  static std::uint64_t wr_id(const receive_slot& slot) {
    return wr_id_of(work_operation::receive, slot.id);
  }

  receive_slots slots{};
  memory_guard guard{};
};

}  // namespace

TEST_CASE("receives occupy their slots until their results are taken") {
  open_slots receives(4);
  std::set<receive_slot*> posted;
  for (int i = 0; i < 4; ++i) posted.insert(&receives.post());
  CHECK(posted.size() == 4);
  CHECK(receives.slots.room() == 0);
  CHECK(receives.slots.outstanding() == 4);
  for (receive_slot* slot : posted) receives.complete(*slot);
  CHECK(receives.slots.outstanding() == 0);
  // As long as the result of a receive has not been taken, its slot is not reused.
  for (int i = 0; i < 4; ++i) CHECK_FALSE(posted.contains(&receives.post()));
  for (receive_slot* slot : posted) {
    CHECK(slot->is_done());
    receives.slots.release(*slot);
  }
}

TEST_CASE("the number of slots exceeds the capacity of the queue but is limited") {
  open_slots receives(4);
  std::vector<receive_slot*> done;
  while (receives.slots.has_room()) {
    receive_slot& slot = receives.post();
    receives.complete(slot);
    done.push_back(&slot);
  }
  CHECK(done.size() == receives.slots.size());
  CHECK(receives.slots.room() == 4);
  receives.slots.release(*done.back());
  CHECK(receives.slots.has_room());
  // Once their results were taken, all slots can be used again.
  done.pop_back();
  for (receive_slot* each : done) receives.slots.release(*each);
  std::set<receive_slot*> used;
  while (receives.slots.has_room()) {
    receive_slot& slot = receives.post();
    receives.complete(slot);
    used.insert(&slot);
  }
  CHECK(used.size() == receives.slots.size());
}

TEST_CASE("a late completion of an earlier receive finds no slot") {
  open_slots receives(1);
  receive_slot& slot = receives.post();
  const std::uint64_t first = open_slots::wr_id(slot);
  CHECK(receives.slots.find(first) == &slot);
  receives.complete(slot);
  CHECK(receives.slots.find(first) == nullptr);
  receives.slots.release(slot);
  REQUIRE(&receives.post() == &slot);
  CHECK(receives.slots.find(first) == nullptr);
  CHECK(receives.slots.find(open_slots::wr_id(slot)) == &slot);
  CHECK(receives.slots.find(wr_id_of(work_operation::receive, no_slot)) == nullptr);
  CHECK(receives.slots.find(wr_id_of(work_operation::receive, receives.slots.size())) == nullptr);
}

TEST_CASE("a scope counts its receives that have not completed") {
  open_slots receives(4);
  scope_state scope;
  receive_slot& held = receives.post(&scope);
  receive_slot& unheld = receives.post(&scope, false);
  CHECK(scope.receives == 2);
  receives.complete(held);
  CHECK(scope.receives == 1);
  CHECK(held.is_done());
  // If a receive has no handle, its slot is freed as soon as the receive completes.
  receives.complete(unheld);
  CHECK(scope.receives == 0);
  CHECK(unheld.is == receive_slot::state::free);
}

TEST_CASE("receives without handles are counted until they complete") {
  open_slots receives(4);
  receive_slot& first = receives.post(nullptr, false);
  receive_slot& second = receives.post();
  CHECK(receives.slots.unheld() == 1);
  CHECK(receives.slots.held() == 1);
  receives.slots.note_unheld(second);
  CHECK(receives.slots.unheld() == 2);
  CHECK(receives.slots.held() == 0);
  receives.complete(first);
  CHECK(receives.slots.unheld() == 1);
  receives.complete(second);
  CHECK(receives.slots.unheld() == 0);
}

TEST_CASE("a caller need not wait for room in a receive queue if there never will be any") {
  CHECK_FALSE(receive_slots().is_open());
  open_slots receives(1);
  CHECK(receives.slots.is_open());
  CHECK(receives.slots.need_not_wait());
  receive_slot& slot = receives.post();
  CHECK_FALSE(receives.slots.need_not_wait());
  receives.slots.close();
  CHECK_FALSE(receives.slots.is_open());
  CHECK(receives.slots.need_not_wait());
  receives.complete(slot);
  // A channel that uses a shared receive queue has no receives of its own.
  receive_slots none;
  none.open();
  CHECK(none.need_not_wait());
}

TEST_CASE("a receive that completes releases its memory unless the device still has access") {
  static int given_back = 0;
  given_back = 0;
  memory_keeper keeper{[](memory_keeper&) noexcept { ++given_back; }};
  open_slots receives(2);
  receive_slot& slot = receives.post();
  receive_slots::keep(slot, {.keeper = &keeper});
  const bool is_lost = GENERATE(false, true);
  receives.guard.set_lost(is_lost);
  receives.complete(slot);
  CHECK(given_back == (is_lost ? 0 : 1));
}

TEST_CASE("all receives in flight can be visited") {
  open_slots receives(4);
  receive_slot& first = receives.post();
  receive_slot& second = receives.post();
  receives.complete(first);
  std::vector<receive_slot*> visited;
  receives.slots.for_each_posted([&](receive_slot& slot) { visited.push_back(&slot); });
  CHECK(visited == std::vector<receive_slot*>{&second});
}

TEST_CASE("receives of inboxes occupy the queue but no slots") {
  open_slots receives(4);
  receives.slots.note_posted(3);
  CHECK(receives.slots.room() == 1);
  receive_slot& slot = receives.post();
  CHECK_FALSE(receives.slots.has_room());
  CHECK(receives.slots.held() == 1);
  // Receives complete in the order of posting. Once the three receives of inboxes have left the
  // queue, the one in `slot` is next.
  for (int i = 0; i < 3; ++i) receives.slots.note_left();
  CHECK(receives.slots.number_of(slot) == receives.slots.completed());
  receives.complete(slot);
  CHECK(receives.slots.room() == 4);
}
