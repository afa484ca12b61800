// SPDX-License-Identifier: Apache-2.0
/// \file
/// The list of a channel's inboxes, without a channel: the test plays the part of the device.
#include "channels.hpp"

#include <core/inbox_state.hpp>

#include <cstdint>
#include <vector>

using namespace verbspp;
using namespace verbspp::test;
using detail::inbox_list;
using detail::inbox_state;
using detail::pool_place;

namespace {

struct inboxes {
  detail::owned<inbox_state> make() {
    detail::owned<inbox_state> made(new inbox_state{.core = detail::channel_core::empty(),
                                                    .pool = pool,
                                                    .depth = 4,
                                                    .refill = 1,
                                                    .due_below = 4});
    list.add(*made.get());
    return made;
  }
  /// Posts receives into free places of the pool.
  void post(inbox_state& inbox, std::uint32_t count) {
    for (std::uint32_t i = 0; i < count; ++i) {
      pool_place* const place = pool.places()->take();
      REQUIRE(place != nullptr);
      inbox.places_posted.append(*place);
    }
    inbox.note_posted(count);
  }
  /// Completes the next receive of an inbox. \returns its place
  pool_place& complete(inbox_state& inbox) {
    pool_place& place = inbox.take_posted();
    place.fill(completed_work(0, 64, 0, 0));
    list.deliver(inbox, place);
    return place;
  }
  /// Fails all posted receives. \returns the inbox of each receive
  std::vector<const inbox_state*> flush() {
    std::vector<const inbox_state*> failed;
    list.flush([&](inbox_state& inbox) {
      failed.push_back(&inbox);
      inbox.take_posted().give_back_unfilled();
      inbox.note_ended();
      list.delete_if_finished(inbox);
    });
    return failed;
  }

  testbed bed{};
  message_pool pool = must(message_pool::create(bed.domain, 8, 64));
  inbox_list list{};
};

}  // namespace

TEST_CASE("each inbox finds its receives in the order in which they were posted") {
  inboxes all;
  const auto first = all.make();
  const auto second = all.make();
  CHECK(all.list.count() == 2);
  all.post(*first.get(), 2);
  all.post(*second.get(), 1);
  CHECK(all.list.posted() == 3);
  const pool_place* const oldest = first->places_posted.first;
  CHECK(first->tag != second->tag);
  CHECK(all.list.find(first->tag) == first.get());
  CHECK(all.list.find(second->tag) == second.get());

  const pool_place& place = all.complete(*first.get());
  CHECK(&place == oldest);
  CHECK(all.list.find(first->tag) == first.get());
  CHECK(all.list.posted() == 2);
  CHECK(all.list.has_messages());
  CHECK(&all.complete(*first.get()) != oldest);
  CHECK(all.list.find(first->tag) == nullptr);  // it has no posted receive any more
  CHECK(first->messages == 2);
  pool_place* const taken = first->take_listed();
  REQUIRE(taken == oldest);
  CHECK(first->messages == 1);
  CHECK(second->messages == 0);
  CHECK(all.list.has_messages());
  taken->give_back();
  first->take_listed()->give_back();
  CHECK(first->take_listed() == nullptr);
  CHECK_FALSE(all.list.has_messages());
  CHECK(all.flush() == std::vector<const inbox_state*>{second.get()});
  CHECK(second->in_use() == 0);
  CHECK(all.pool.available() == all.pool.size());
}

TEST_CASE("a destroyed inbox stays in the list until its last receive has finished") {
  inboxes all;
  auto destroyed = all.make();
  const auto other = all.make();  // comes after `destroyed` in the list
  inbox_state& left = *destroyed.get();
  all.post(left, 3);
  all.list.set_shared(left);
  all.list.remove(std::move(destroyed));
  CHECK(all.list.count() == 1);
  CHECK(all.list.shared() == nullptr);
  CHECK(all.list.posted() == 3);

  // A message for the destroyed inbox is dropped.
  const std::uint64_t earlier = left.tag;
  CHECK(all.list.find(earlier) == &left);
  all.complete(left);
  CHECK_FALSE(all.list.has_messages());
  CHECK(all.pool.available() == all.pool.size() - 2);

  CHECK(all.flush().size() == 2);
  CHECK(all.list.posted() == 0);
  CHECK(all.list.find(earlier) == nullptr);
  CHECK(all.pool.available() == all.pool.size());
}

TEST_CASE("an inbox without posted receives leaves the list when it is destroyed") {
  inboxes all;
  auto destroyed = all.make();
  all.post(*destroyed.get(), 1);
  all.complete(*destroyed.get()).give_back();
  all.list.remove(std::move(destroyed));
  CHECK(all.list.count() == 0);
  CHECK_FALSE(all.list.has_messages());
  CHECK(all.flush().empty());
}

TEST_CASE("receives of an earlier connection are not found after a flush") {
  inboxes all;
  const auto only = all.make();
  all.post(*only.get(), 1);
  const std::uint64_t earlier = only->tag;
  const pool_place* const place = only->places_posted.first;
  CHECK(all.flush().size() == 1);
  // The pool hands out the place that was freed last, so only the tag differs.
  all.post(*only.get(), 1);
  CHECK(only->places_posted.first == place);
  CHECK(all.list.find(earlier) == nullptr);
  CHECK(all.list.find(only->tag) == only.get());
  CHECK(all.flush().size() == 1);
}
