// SPDX-License-Identifier: Apache-2.0
// Messages that arrive in the pool of a hub.

#include "hubs.hpp"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <optional>
#include <random>
#include <set>
#include <span>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

using namespace verbspp;
using namespace verbspp::test;

TEST_CASE("a sleeping hub wakes for a message although an earlier event is unread") {
  const testbed bed;
  const auto pool = must(message_pool::create(bed.domain, 48, 128));
  auto hub = hub_with(bed, pool, {.receives = 16, .waiting = wait_mode::sleep()});
  channel_pair ends = connect_to_hub(bed, *hub);
  buffer<> from(bed.domain, pattern(128, 2));
  std::array<arrival, 1> slot;
  for (int i = 0; i < 3; ++i) {
    // The wait requests an event. The poll then takes the message but does not read the event.
    CHECK(failure_of(hub->wait(slot, short_limit)) == error_kind::timed_out);
    must(ends.right.send({.elements = from.gather()}));
    for (const wait_limit limit = patience; must(hub->poll(slot)).empty();)
      REQUIRE_FALSE(limit.has_passed());
    CHECK(slot[0].message);
    CHECK(failure_of(hub->wait(slot, short_limit)) == error_kind::timed_out);
    must(ends.right.send({.elements = from.gather()}));
    CHECK(must(hub->wait(slot, patience)).size() == 1);
    CHECK(slot[0].message);
  }
}

TEST_CASE("a hub with a pool returns messages together with their channels") {
  const testbed bed;
  const auto pool = must(message_pool::create(bed.domain, 48, 128));
  auto hub = hub_with(bed, pool, {.channels = 8, .receives = 16, .refill = 8});
  CHECK(hub->receives_posted() == 16);
  std::vector<channel_pair> all;
  for (int i = 0; i < 3; ++i) all.push_back(connect_to_hub(bed, *hub));
  buffer<> from(bed.domain, pattern(128, 2));
  const auto poll_it = [&](channel_id source) {
    for (channel_pair& each : all)
      if (each.left.id() == source) each.left.poll();
  };
  CHECK(failure_of(all[0].left.post_receive({.elements = from.scatter()})) ==
        error_kind::invalid_input);

  for (std::uint32_t i = 0; i < 100; ++i) {
    channel_pair& which = all[i % 3];
    must(which.right.send({.elements = from.gather(0, i), .immediate = immediate_data(i)}));
    arrival got = next_message(*hub, poll_it);
    CHECK(got.source == which.left.id());
    CHECK(got.message.source() == which.left.id());
    CHECK(got.message.immediate() == immediate_data(i));
    CHECK(std::vector<std::byte>(got.message.bytes().begin(), got.message.bytes().end()) ==
          from.front(i));
  }
  CHECK(hub->receives_posted() >= 8);

  SECTION("a message that is too long breaks its channel and is reported") {
    buffer<> much(bed.domain, 200);
    CHECK(all[1].right.send({.elements = much.gather()}).has_error());
    std::array<arrival, 4> slots;
    channel_id told{};
    wait_until(
        [&] {
          const auto arrived = must(hub->poll(slots));
          if (!arrived.empty()) told = arrived[0].source;
          return told != channel_id();
        },
        "the arrival");
    CHECK(told == all[1].left.id());
    all[1].left.poll();
    REQUIRE(all[1].left.failure());
    CHECK(all[1].left.state() == channel_state::broken);
    must(all[0].right.send({.elements = from.gather(0, 5)}));
    CHECK(next_message(*hub, poll_it).source == all[0].left.id());
    // The place of the failed receive has returned to the pool.
    CHECK(pool.available() == pool.size() - hub->receives_posted());
  }
  SECTION("a slot that is filled again drops the message that it still contains") {
    std::array<arrival, 2> slots;
    for (std::uint32_t i = 0; i < 20; ++i) {
      must(all[i % 3].right.send({.elements = from.gather(0, i)}));
      CHECK(must(hub->wait(slots, patience)).size() == 1);
      CHECK(slots[0].source == all[i % 3].left.id());
      CHECK(slots[0].message.size() == i);
    }
    slots[0].message = {};
    CHECK(pool.available() == pool.size() - hub->receives_posted());
  }
  SECTION("a write with immediate data arrives as a message without bytes") {
    buffer<> theirs(bed.domain, 4096);
    buffer<> much(bed.domain, 4096);
    must(all[1].right.write(
        {.elements = much.gather(), .remote = theirs.remote(), .immediate = immediate_data(6)}));
    const arrival got = next_message(*hub, poll_it);
    CHECK(got.source == all[1].left.id());
    CHECK(got.message.size() == 0);
    CHECK(got.message.immediate() == immediate_data(6));
    CHECK(got.message.received().value().byte_count() == 4096);
  }
  SECTION("an empty pool makes senders wait until places are returned") {
    std::vector<message> kept;
    for (auto taken = pool.take(); taken.has_value(); taken = pool.take())
      kept.push_back(std::move(taken).assume_value());
    const std::uint32_t posted = hub->receives_posted();
    for (std::uint32_t i = 0; i < posted; ++i) {
      must(all[0].right.send({.elements = from.gather(0, 5)}));
      kept.push_back(next_message(*hub, poll_it).message);
    }
    CHECK(hub->receives_posted() == 0);
    auto late = must(all[0].right.post_send({.elements = from.gather(0, 6)}));
    CHECK_FALSE(late.poll());
    kept.clear();
    CHECK(next_message(*hub, poll_it).message.size() == 6);
    must(late.wait(patience));
  }
  SECTION("messages that were not taken are released when their channel is destroyed") {
    must(all[2].right.send({.elements = from.gather(0, 5)}));
    all[0].left.poll();
    all[2].left = channel();
    CHECK(hub->size() == 2);
    must(all[0].right.send({.elements = from.gather(0, 7)}));
    CHECK(next_message(*hub, poll_it).message.size() == 7);
  }
  SECTION("an index that is used again has another generation") {
    const channel_id before = all[2].left.id();
    const auto stays = all[2].right.endpoint();
    must(all[2].right.send({.elements = from.gather(0, 5)}));
    all.pop_back();
    all.push_back(connect_to_hub(bed, *hub));
    CHECK(all[2].left.id().index == before.index);
    CHECK(all[2].left.id() != before);
    CHECK(stays.number != all[2].right.endpoint().number);
    std::array<arrival, 4> slots;
    hub->wake(before);
    CHECK(must(hub->poll(slots)).empty());
    hub->wake(all[2].left.id());
    CHECK(must(hub->poll(slots)).size() == 1);
    CHECK(slots[0].source == all[2].left.id());
    must(all[2].right.send({.elements = from.gather(0, 9)}));
    const arrival got = next_message(*hub, poll_it);
    CHECK(got.source == all[2].left.id());
    CHECK(got.message.size() == 9);
  }
  std::ostringstream text;
  text << *hub;
  CHECK(text.str().find(" of 8 channels") != std::string::npos);
  all.clear();
  CHECK(hub->size() == 0);
  hub.reset();
  CHECK(pool.available() == pool.size());
}

TEST_CASE("hubs that share a pool return exactly their own places when they are destroyed") {
  const testbed bed;
  const auto pool = must(message_pool::create(bed.domain, 32, 128));
  const hub_options options{.channels = 2, .receives = 8, .refill = 4};
  std::array hubs{hub_with(bed, pool, options), hub_with(bed, pool, options)};
  std::array ends{connect_to_hub(bed, *hubs[0]), connect_to_hub(bed, *hubs[1])};
  CHECK(pool.available() == 16);
  const auto content_of = [](const message& one) {
    return std::vector<std::byte>(one.bytes().begin(), one.bytes().end());
  };
  // The peer sends a message, and the hub's channel returns it in the place in which it arrived.
  const auto exchange = [&](std::size_t which, unsigned seed) {
    channel_pair& both = ends[which];
    message asked = must(pool.take());
    CHECK_FALSE(asked.received());
    must(asked.assign(pattern(64, seed)));
    must(both.right.send(std::move(asked), patience));
    auto answer = must(both.right.post_receive(must(pool.take())));
    arrival got = next_message(*hubs[which], [&](channel_id) { both.left.poll(); });
    CHECK(content_of(got.message) == pattern(64, seed));
    must(both.left.send(std::move(got.message), patience));
    auto done = answer.wait(patience);
    must(done.result);
    CHECK(content_of(done.memory) == pattern(64, seed));
  };
  for (unsigned i = 0; i < 50; ++i) exchange(i % 3 == 0 ? 0 : 1, i);

  ends[0] = {};
  hubs[0].reset();
  CHECK(pool.available() == 32 - hubs[1]->receives_posted());
  for (unsigned i = 0; i < 20; ++i) exchange(1, i);
  ends[1] = {};
  hubs[1].reset();
  CHECK(pool.available() == 32);
  // A later hub may have the address of an earlier one, and post fewer receives.
  for (const std::uint32_t receives : {8U, 4U, 2U}) {
    const auto later_hub = hub_with(bed, pool, {.channels = 1, .receives = receives, .refill = 1});
    CHECK(pool.available() == 32 - receives);
  }
  CHECK(pool.available() == 32);
  std::vector<message> all;
  std::set<const std::byte*> places;
  for (unsigned i = 0; i < 32; ++i) {
    all.push_back(must(pool.take()));
    places.insert(all.back().bytes().data());
  }
  CHECK(places.size() == 32);
}

TEST_CASE("a hub finds each of several channels whose queue pair numbers end in the same bits") {
  const testbed bed;
  const auto pool = must(message_pool::create(bed.domain, 16, 64));
  auto hub = hub_with(bed, pool, {.channels = 3, .completions = 128, .receives = 8});
  const auto low_bits = [](const channel_pair& of) { return of.left.native_handle()->qp_num % 8; };
  std::vector<channel_pair> all;
  // These channels use up numbers, if the device assigns the lowest one that is free.
  std::vector<prepared_channel> others;
  for (int tries = 0; all.size() < 3 && tries < 40; ++tries) {
    channel_pair made = connect_to_hub(bed, *hub);
    if (all.empty() || low_bits(made) == low_bits(all.front()))
      all.push_back(std::move(made));
    else if (tries % 2 == 0)
      others.push_back(must(small_channel(bed).build()));
  }
  const buffer<> from(bed.domain, pattern(64, 2));
  const auto check_all = [&] {
    for (channel_pair& each : all) {
      must(each.right.send({.elements = from.gather()}));
      CHECK(next_message(*hub, [](channel_id) {}).source == each.left.id());
    }
  };
  check_all();
  if (all.size() > 1) {
    channel_pair& last = all.back();
    static_cast<void>(must(last.left.renew()));
    static_cast<void>(must(last.right.renew()));
    must(last.left.handshake(last.right.endpoint()));
    must(last.right.handshake(last.left.endpoint()));
    check_all();
    all.erase(all.begin());
    check_all();
  }
}

TEST_CASE("arrivals wake a sleeping hub and its sleeping channels") {
  const testbed bed;
  const auto pool = must(message_pool::create(bed.domain, 8, 64));
  auto hub = hub_with(bed, pool, {.receives = 4, .refill = 2, .waiting = wait_mode::sleep()});
  const auto sleeping = small_channel(bed).waiting(wait_mode::sleep());
  auto served = must(sleeping.hub(*hub).build());
  auto client = must(sleeping.build());
  const auto answers_pool = must(message_pool::create(bed.domain, 8, 64));
  auto answers = must(inbox::open(client, answers_pool));
  const endpoint served_end = served.endpoint();
  channel there = must(std::move(served).handshake(client.endpoint()));
  channel here = must(std::move(client).handshake(served_end));

  std::array<arrival, 4> slots;
  CHECK(failure_of(hub->wait(slots, short_limit)) == error_kind::timed_out);
  CHECK(failure_of(answers.wait(short_limit)) == error_kind::timed_out);
  std::vector<message> kept;
  std::atomic<bool> ready{false};
  std::thread server([&] {
    std::array<arrival, 4> arrived;
    for (int left = 200; left != 0;)
      for (arrival& each : must(hub->wait(arrived, patience))) {
        there.poll();
        if (!each.message) continue;
        // The wait for this send sleeps on the same completion queue as the wait on the hub.
        must(must(there.post_send(std::move(each.message))).wait(patience));
        --left;
      }
    ready = true;
  });
  for (int i = 0; i < 200; ++i) {
    must(must(here.post_send(must(answers_pool.take()))).wait(patience));
    CHECK(must(answers.wait(patience)).size() == 64);
  }
  server.join();
  CHECK(ready);
  SECTION("places that are returned are used again") {
    for (auto more = pool.take(); more.has_value(); more = pool.take())
      kept.push_back(std::move(more).assume_value());
    buffer<> from(bed.domain, 8);
    for (std::uint32_t left = hub->receives_posted(); left != 0; --left) {
      must(here.send({.elements = from.gather()}));
      kept.push_back(next_message(*hub, [&](channel_id) { there.poll(); }).message);
    }
    auto late = must(here.post_send({.elements = from.gather()}));
    std::thread giver = later([&] { kept.clear(); }, short_limit);
    const arrival last = next_message(*hub, [&](channel_id) { there.poll(); });
    giver.join();
    CHECK(last.message.size() == 8);
    must(late.wait(patience));
  }
}

TEST_CASE("two threads answer a hub's fifty clients, any of which may be killed at any moment") {
  constexpr std::uint32_t clients = 50;
  // On devices other than softverbs, a message of this length is sent in several packets, so a
  // client may be killed in the middle of a message.
  constexpr std::uint32_t long_message = 10000;
  const testbed bed;
  const auto pool = must(message_pool::create(bed.domain, 300, long_message));
  auto hub = hub_with(bed, pool, {.channels = clients, .completions = 1024, .receives = 128});
  struct served {
    std::mutex lock;
    channel link;
  };
  std::vector<served> table(clients);
  std::atomic<bool> stop{false};
  std::atomic<std::uint64_t> echoed{0};
  const auto serve = [&] {
    std::array<arrival, 8> slots;
    while (!stop) {
      const auto arrived = hub->poll(slots);
      if (!arrived.has_value()) break;
      if (arrived.assume_value().empty()) std::this_thread::yield();
      for (arrival& each : arrived.assume_value()) {
        served& client = table[each.source.index];
        const std::lock_guard guard(client.lock);
        if (client.link.id() != each.source) continue;
        client.link.poll();
        if (!each.message) continue;
        ++echoed;
        // The message is dropped if the queue is full or the client has disconnected.
        static_cast<void>(client.link.post_send(std::move(each.message)));
      }
    }
  };
  std::vector<std::thread> threads;
  threads.emplace_back(serve);
  threads.emplace_back(serve);

  struct client {
    channel link;
    std::optional<inbox> arrivals;
  };
  const auto inboxes = must(message_pool::create(bed.domain, 8 * clients, long_message));
  const auto join = [&](std::uint32_t which) {
    served& mine = table[which];
    const std::lock_guard guard(mine.lock);
    mine.link = channel();
    auto there = must(small_channel(bed).hub(*hub).build());
    auto here = must(small_channel(bed).build());
    client made;
    made.arrivals = must(inbox::open(here, inboxes));
    const endpoint end = there.endpoint();
    channel link = must(std::move(there).handshake(here.endpoint()));
    made.link = must(std::move(here).handshake(end));
    // `serve` uses the index of the channel at which a message arrived as an index into `table`, so
    // the new channel must get the index of the previous one.
    if (link.id().index == which)
      mine.link = std::move(link);
    else
      throw failure(__FILE__, __LINE__, "the free index was not reused");
    return made;
  };
  try {
    std::vector<client> all;
    for (std::uint32_t i = 0; i < clients; ++i) all.push_back(join(i));
    std::mt19937 engine(11);
    std::uint64_t verified = 0;
    for (std::uint32_t round = 0; round < repetitions(1500); ++round) {
      const std::uint32_t which = engine() % clients;
      client& one = all[which];
      if (engine() % 10 != 0) {
        std::array<std::uint32_t, 8> content{};
        for (std::uint32_t& word : content) word = static_cast<std::uint32_t>(engine());
        const std::size_t length = 4 * (1 + engine() % 8);
        message request = must(inboxes.take());
        must(request.assign(std::as_bytes(std::span(content)).first(length)));
        CHECK(one.link.post_send(std::move(request)).has_value());
        const message answer = must(one.arrivals->wait(patience));
        if (answer.size() != length ||
            std::memcmp(answer.bytes().data(), content.data(), length) != 0)
          throw failure(__FILE__, __LINE__, "the answer differs from the message");
        ++verified;
        continue;
      }
      // Posts up to three messages, and then destroys or breaks the client's channel, or destroys
      // the channel of the hub.
      for (unsigned i = engine() % 4; i != 0; --i) {
        auto taken = inboxes.take();
        if (!taken.has_value()) break;
        if (!one.link.post_send(std::move(taken).assume_value()).has_value()) break;
      }
      switch (engine() % 3) {
        case 0:
          one.link = channel();
          break;
        case 1:
          move_to_error(one.link.native_handle());
          break;
        default: {
          const std::lock_guard guard(table[which].lock);
          table[which].link = channel();
        }
      }
      one = join(which);
    }
    CHECK(verified > repetitions(1000));
    // Now the channels are closed under load.
    for (client& each : all)
      if (auto taken = inboxes.take(); taken.has_value())
        static_cast<void>(each.link.post_send(std::move(taken).assume_value()));
    for (served& each : table) {
      const std::lock_guard guard(each.lock);
      must(each.link.close());
      each.link = channel();
    }
  } catch (...) {
    stop = true;
    for (std::thread& each : threads) each.join();
    throw;
  }
  stop = true;
  for (std::thread& each : threads) each.join();
  CHECK(echoed > repetitions(1000));
  CHECK(inboxes.available() == inboxes.size());
  CHECK(hub->size() == 0);
  CHECK(hub->receives_posted() + pool.available() == pool.size());
  CHECK(hub->receives_posted() >= 100);

  // The hub has counted the device's receives correctly if each of them can receive a message.
  channel_pair last = connect_to_hub(bed, *hub);
  std::vector<message> taken;
  for (auto more = pool.take(); more.has_value(); more = pool.take())
    taken.push_back(std::move(more).assume_value());
  for (std::uint32_t left = hub->receives_posted(); left != 0; --left) {
    must(last.right.send({.elements = must(taken[0].gather())}, patience));
    taken.push_back(next_message(*hub, [&](channel_id) { last.left.poll(); }).message);
  }
  CHECK(hub->receives_posted() == 0);
  last = {};
  taken.clear();
  hub.reset();
  CHECK(pool.available() == pool.size());
}
