// SPDX-License-Identifier: Apache-2.0

#include "../catch.hpp"
#include <verbspp/queue/queue_accounting.hpp>

#include <deque>
#include <random>

using verbspp::completion_queue_accounting;
using verbspp::send_queue_accounting;

TEST_CASE("a send queue is full if and only if all places are taken") {
  send_queue_accounting room(4);
  for (std::uint64_t i = 0; i < 4; ++i) {
    CHECK_FALSE(room.is_full());
    const auto ticket = room.take(true);
    REQUIRE(ticket);
    CHECK(ticket->position == i);
    CHECK(ticket->signaled);
  }
  CHECK(room.is_full());
  CHECK_FALSE(room.take(true));
  CHECK(room.outstanding() == 4);
  room.completed(1);  // also completes the request before it
  CHECK(room.outstanding() == 2);
  CHECK(room.take(false));
}

TEST_CASE("unsignaled requests do not fill the queue forever") {
  for (std::uint32_t capacity = 1; capacity <= 33; ++capacity) {
    send_queue_accounting room(capacity);
    std::deque<std::uint64_t> signaled;
    for (int i = 0; i < 1000; ++i) {
      auto ticket = room.take(false);
      if (!ticket) {
        // A full queue must always contain a signaled request, whose completion will free places.
        INFO("capacity " << capacity);
        REQUIRE_FALSE(signaled.empty());
        room.completed(signaled.front());
        signaled.pop_front();
        ticket = room.take(false);
      }
      REQUIRE(ticket);
      if (ticket->signaled) signaled.push_back(ticket->position);
    }
  }
}

TEST_CASE("the library does not signal requests by itself if the program signals often enough") {
  send_queue_accounting room(16);
  for (int i = 0; i < 100; ++i) {
    const auto ticket = room.take(i % 4 == 3);
    REQUIRE(ticket);
    CHECK(ticket->signaled == (i % 4 == 3));
    if (ticket->signaled) room.completed(ticket->position);
  }
}

TEST_CASE("a place that is returned without a request counts as never taken") {
  send_queue_accounting room(4);
  static_cast<void>(room.take(false));
  const auto ticket = room.take(false);
  REQUIRE(ticket);
  CHECK(ticket->signaled);  // otherwise, half of the queue would be unsignaled
  room.give_back(*ticket);
  CHECK(room.outstanding() == 1);
  const auto again = room.take(false);
  REQUIRE(again);
  CHECK(again->position == ticket->position);
  CHECK(again->signaled);
}

TEST_CASE("a full queue has a signaled request, even after several tickets were returned") {
  send_queue_accounting room(3);
  static_cast<void>(room.take(false));
  const auto second = room.take(false);
  const auto third = room.take(true);
  REQUIRE((second && third));
  CHECK(second->signaled);
  room.give_back(*third);
  room.give_back(*second);
  const auto again = room.take(false);
  const auto last = room.take(false);
  REQUIRE((again && last));
  CHECK(room.is_full());
  CHECK((again->signaled || last->signaled));
}

TEST_CASE("late or repeated completions do not free places twice") {
  send_queue_accounting room(4);
  for (int i = 0; i < 3; ++i) static_cast<void>(room.take(true));
  room.completed(2);
  room.completed(0);
  room.completed(2);
  CHECK(room.outstanding() == 0);
  static_cast<void>(room.take(true));
  room.reset();
  CHECK(room.outstanding() == 0);
  CHECK(room.take(true)->position == 0);
}

TEST_CASE("the room of a completion queue is counted so that it cannot overrun") {
  completion_queue_accounting room(4);
  CHECK(room.take(3));
  CHECK_FALSE(room.take(2));
  CHECK_FALSE(room.take(UINT64_MAX));
  CHECK(room.take());
  CHECK_FALSE(room.take());
  room.give_back(2);
  CHECK(room.expected() == 2);
  CHECK(room.take(2));
}

static_assert([] {
  send_queue_accounting room(2);
  return room.take(false)->signaled && room.take(true)->signaled && !room.take(true);
}());
