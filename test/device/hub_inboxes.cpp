// SPDX-License-Identifier: Apache-2.0
// Inboxes of channels whose messages arrive in the pool of a hub, and `channel_hub::poll()`.

#include "../eager.hpp"
#include "../socket_pair.hpp"
#include "channels.hpp"
#include "event_loop.hpp"
#include <verbspp/coroutine.hpp>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

using namespace verbspp;
using namespace verbspp::test;

namespace {

using routine = eager<transport_result<void>>;

/// A hub with a pool. The hub's channels (`here`) are connected to clients (`there`), which do not
/// use a hub.
class served_clients {
 public:
  static constexpr hub_options default_options{.channels = 32, .receives = 32, .refill = 4};

  /// Skips the test if the device has no shared receive queues.
  explicit served_clients(unsigned count, const hub_options& options = default_options)
      : hub(supported(channel_hub::create(bed.domain, pool, options), shared_receive_queues)) {
    for (unsigned i = 0; i < count; ++i) add();
  }
  void add() {
    const auto small = bed.domain.build_channel().max_send_work_requests(8).max_inline_data(32);
    auto served = must(small.hub(*hub).build());
    auto client = must(small.max_receive_work_requests(8).build());
    channel_pair made = connect_channels(std::move(served), std::move(client));
    here.push_back(std::make_unique<channel>(std::move(made.left)));
    there.push_back(std::move(made.right));
  }

  const testbed bed{};
  message_pool pool = must(message_pool::create(bed.domain, 128, 32));
  std::optional<channel_hub> hub;
  std::vector<std::unique_ptr<channel>> here{};
  std::vector<channel> there{};
};

void send_text(channel& link, std::string_view text) {
  must(link.send({.elements = inline_payload(text)}));
}

std::string text_of(const message& from) {
  return {reinterpret_cast<const char*>(from.bytes().data()), from.size()};
}

/// Echoes the messages from one client until it sends "end".
routine echo(channel& link, inbox requests) {
  for (;;) {
    VERBSPP_CO_TRY(request, co_await requests.async_wait(wait_limit::forever()));
    if (text_of(request) == "end") co_return success();
    VERBSPP_CO_TRYV(co_await link.async_send(std::move(request)));
  }
}

}  // namespace

TEST_CASE("an inbox returns the messages of its channel from the pool of a hub in order") {
  served_clients all(2);
  inbox messages = must(inbox::open(*all.here[0], all.pool));
  CHECK(messages.posted() == 0);
  CHECK_FALSE(messages.poll());
  for (int i = 0; i < 200; ++i) {
    const std::string text = std::to_string(i);
    send_text(all.there[0], text);
    const message got = must(messages.wait(patience));
    CHECK(text_of(got) == text);
    CHECK(got.source() == all.here[0]->id());
  }
  // The hub returns the messages of the other channel. For the channel that has an inbox, it
  // returns only arrivals that carry no message.
  send_text(all.there[1], "other");
  send_text(all.there[0], "mine");
  bool has_news = false;
  std::string other;
  wait_until(
      [&] {
        std::array<arrival, 4> slots;
        for (const arrival& each : must(all.hub->poll(slots))) {
          if (each.message)
            other += text_of(each.message);
          else
            has_news = has_news || each.source == all.here[0]->id();
        }
        return has_news && !other.empty();
      },
      "both arrivals");
  CHECK(other == "other");
  CHECK(text_of(must(messages.wait(patience))) == "mine");
}

TEST_CASE("a sleeping inbox of a hub wakes for a message and ends at its limit") {
  served_clients all(1, {.channels = 2, .receives = 8, .refill = 4, .waiting = wait_mode::sleep()});
  inbox messages = must(inbox::open(*all.here[0], all.pool));
  CHECK(failure_of(messages.wait(short_limit)) == error_kind::timed_out);
  CHECK(all.here[0]->is_connected());
  for (int i = 0; i < 20; ++i) {
    std::thread sender(
        [&] { static_cast<void>(all.there[0].send({.elements = inline_payload(i)})); });
    CHECK(must(messages.wait(patience)).size() == sizeof i);
    sender.join();
  }
}

TEST_CASE("an inbox of a hub gets messages again when places return to the pool") {
  served_clients all(1, {.channels = 2, .receives = 4, .refill = 2});
  inbox messages = must(inbox::open(*all.here[0], all.pool));
  std::vector<message> kept;
  // The test takes all remaining places, so the hub is left with the four receives that it has
  // posted.
  while (all.pool.available() > 0) kept.push_back(must(all.pool.take()));
  for (int i = 0; i < 4; ++i) {
    send_text(all.there[0], "text");
    kept.push_back(must(messages.wait(patience)));
  }
  auto late = must(all.there[0].post_send({.elements = inline_payload(7)}));
  CHECK(failure_of(messages.wait(short_limit)) == error_kind::timed_out);
  kept.clear();
  CHECK(must(messages.wait(patience)).size() == sizeof(int));
  must(late.wait(patience));
}

TEST_CASE("an inbox of a hub returns the messages that arrived before its channel broke") {
  served_clients all(1);
  std::optional<inbox> messages = must(inbox::open(*all.here[0], all.pool));
  send_text(all.there[0], "first");
  send_text(all.there[0], "second");
  SECTION("it then returns the cause") {
    must(all.here[0]->close(patience));
    CHECK(text_of(must(messages->wait(patience))) == "first");
    CHECK(text_of(must(messages->wait(patience))) == "second");
    const error gone = failure_of(messages->wait(patience));
    CHECK(gone == error_kind::not_connected);
    CHECK_THAT(gone.message(), Catch::Contains("next message of an inbox"));
  }
  SECTION("it returns them although the channel was destroyed") {
    all.here[0].reset();
    CHECK(text_of(must(messages->wait(patience))) == "first");
    CHECK(text_of(must(messages->wait(patience))) == "second");
    CHECK(messages->wait(patience).has_error());
  }
  SECTION("it returns its places to the pool when it is destroyed") {
    all.here[0].reset();
    messages.reset();
    all.hub.reset();
    CHECK(all.pool.available() == all.pool.size());
  }
}

TEST_CASE("the hub returns the messages of a channel again after its inbox was destroyed") {
  served_clients all(1);
  std::optional<inbox> messages = must(inbox::open(*all.here[0], all.pool));
  send_text(all.there[0], "text");
  std::array<arrival, 1> slot;
  static_cast<void>(must(all.hub->wait(slot, patience)));
  CHECK_FALSE(slot[0].message);
  messages.reset();
  static_cast<void>(must(all.hub->wait(slot, patience)));
  CHECK(text_of(slot[0].message) == "text");
  CHECK(inbox::open(*all.here[0], all.pool).has_value());
}

TEST_CASE("the inbox of a hub's channel refuses invalid calls with a message") {
  served_clients all(1);
  const message_pool other = must(message_pool::create(all.bed.domain, 8, 32));
  const error foreign = failure_of(inbox::open(*all.here[0], other));
  CHECK(foreign == error_kind::invalid_input);
  CHECK_THAT(foreign.message(), Catch::Contains("open the inbox with that pool"));
  const inbox first = must(inbox::open(*all.here[0], all.pool));
  const error second = failure_of(inbox::open(*all.here[0], all.pool));
  CHECK(second == error_kind::busy);
  CHECK_THAT(second.message(), Catch::Contains("one inbox at a time"));
}

TEST_CASE("a hub's poll resumes the coroutines of all its channels") {
  served_clients all(8, {.channels = 8, .receives = 64, .waiting = wait_mode::sleep()});
  std::vector<std::optional<routine>> serving;
  for (const auto& each : all.here)
    serving.emplace_back(echo(*each, must(inbox::open(*each, all.pool))));
  const message_pool answers_pool = must(message_pool::create(all.bed.domain, 64, 32));
  // Each client is a thread, and Catch's assertions may be used only on the test's own thread.
  std::vector<std::string> failures(all.there.size());
  std::vector<std::thread> clients;
  for (std::size_t i = 0; i < all.there.size(); ++i)
    clients.emplace_back([&, i] {
      const auto talk = [&]() -> transport_result<void> {
        VERBSPP_TRY(answers, inbox::open(all.there[i], answers_pool, {.depth = 4}));
        for (int n = 0; n < 50; ++n) {
          const std::string text = std::to_string(i) + ' ' + std::to_string(n);
          VERBSPP_TRYV(all.there[i].send({.elements = inline_payload(std::string_view(text))}));
          VERBSPP_TRY(answer, answers.wait(patience));
          if (text_of(answer) != text) failures[i] = "wrong answer: " + text_of(answer);
        }
        VERBSPP_TRYV(all.there[i].send({.elements = inline_payload(std::string_view("end"))}));
        return success();
      };
      if (const auto done = talk(); done.has_error()) failures[i] = done.error().message();
    });
  serve(*all.hub, [&] {
    must(all.hub->poll());
    for (std::size_t i = 0; i < serving.size(); ++i)
      if (serving[i] && serving[i]->is_done()) {
        must(serving[i]->get());
        serving[i].reset();
        all.here[i].reset();
      }
    return all.hub->size() == 0;
  });
  for (std::thread& each : clients) each.join();
  for (const std::string& each : failures) CHECK(each.empty());
}

TEST_CASE("a coroutine that a hub resumes may destroy channels and the hub") {
  served_clients all(3);
  const auto end_all = [&](inbox messages) -> routine {
    VERBSPP_CO_TRYV(co_await messages.async_wait(wait_limit::forever()));
    all.here.clear();
    all.hub.reset();
    co_return success();
  };
  routine first = end_all(must(inbox::open(*all.here[1], all.pool)));
  for (channel& each : all.there) send_text(each, "text");
  wait_until(
      [&] {
        if (all.hub) must(all.hub->poll());
        return first.is_done();
      },
      "the coroutine");
  must(first.get());
}

TEST_CASE("a hub's poll reports the failure of a channel to its coroutine") {
  served_clients all(2);
  routine serving = echo(*all.here[0], must(inbox::open(*all.here[0], all.pool)));
  buffer<> long_one(all.bed.domain, 64);
  CHECK(all.there[0].send({.elements = long_one.gather()}).has_error());
  wait_until(
      [&] {
        must(all.hub->poll());
        return serving.is_done();
      },
      "the coroutine");
  CHECK(serving.get().has_error());
}

TEST_CASE("poll() of a hub leaves the messages of channels that have no inbox for poll(slots)") {
  served_clients all(2);
  for (channel& each : all.there) send_text(each, "text");
  for (int i = 0; i < 10; ++i) must(all.hub->poll());
  std::size_t count = 0;
  wait_until(
      [&] {
        std::array<arrival, 4> slots;
        for (const arrival& each : must(all.hub->poll(slots))) count += each.message ? 1 : 0;
        must(all.hub->poll());
        return count == 2;
      },
      "both messages");
}

TEST_CASE("poll() of a hub handles events although it leaves messages for poll(slots)") {
  served_clients all(2);
  socket_pair sockets;
  all.here[1]->watch(sockets[0]);
  // Both messages have arrived before the wait returns. The second one is then in the hub's list,
  // or in its completion queue.
  for (int i = 0; i < 2; ++i) send_text(all.there[0], "text");
  std::array<arrival, 1> slot;
  static_cast<void>(must(all.hub->wait(slot, patience)));
  CHECK(slot[0].message);
  must(all.hub->poll());
  CHECK(all.here[1]->is_connected());
  sockets.close(1);
  must(all.hub->poll());
  CHECK(all.here[1]->state() == channel_state::broken);
  static_cast<void>(must(all.hub->wait(slot, patience)));
  CHECK(slot[0].source == all.here[0]->id());
  CHECK(slot[0].message);
}

TEST_CASE("the limits of coroutines wake a sleeping hub and leave it idle") {
  served_clients all(2, {.channels = 2, .receives = 8, .waiting = wait_mode::sleep()});
  const auto wait_for_message = [&](channel& link, std::chrono::milliseconds limit) -> routine {
    inbox messages = must(inbox::open(link, all.pool));
    VERBSPP_CO_TRYV(co_await messages.async_wait(limit));
    co_return success();
  };
  for (int i = 0; i < 2; ++i) {
    std::array waiting{wait_for_message(*all.here[0], 2 * short_limit),
                       wait_for_message(*all.here[1], short_limit)};
    serve(*all.hub, [&] {
      must(all.hub->poll());
      return waiting[0].is_done() && waiting[1].is_done();
    });
    for (routine& each : waiting) CHECK(error(failure_of(each.get())) == error_kind::timed_out);
    wait_until([&] { return !must(all.hub->request_notification()); }, "the hub to need no poll");
    // If an alarm was reported again and again, the wait would always find an arrival.
    std::array<arrival, 1> slot;
    wait_until([&] { return all.hub->wait(slot, short_limit).has_error(); }, "the hub to be idle");
  }
}

TEST_CASE("a hub that is destroyed closes its descriptors") {
  const auto count = [] {
    return std::ranges::distance(std::filesystem::directory_iterator("/proc/self/fd"));
  };
  std::ptrdiff_t before = 0;
  // The first round opens descriptors that the process keeps.
  for (int round = 0; round < 3; ++round) {
    {
      served_clients all(2, {.channels = 2, .receives = 8, .waiting = wait_mode::sleep()});
      CHECK(all.hub->file_descriptor() >= 0);
      const auto wait_for_message = [&](channel& link) -> routine {
        inbox messages = must(inbox::open(link, all.pool));
        VERBSPP_CO_TRYV(co_await messages.async_wait(patience));
        co_return success();
      };
      // Each of these coroutines sets an alarm.
      std::array waiting{wait_for_message(*all.here[0]), wait_for_message(*all.here[1])};
      for (channel& each : all.there) send_text(each, "text");
      serve(*all.hub, [&] {
        must(all.hub->poll());
        return waiting[0].is_done() && waiting[1].is_done();
      });
    }
    if (round == 0)
      before = count();
    else
      wait_until([&] { return count() <= before; }, "the descriptors to be closed");
  }
}

TEST_CASE("an inbox gets the messages of a client in a table") {
  served_clients all(0);
  auto clients = must(hub_clients<std::optional<inbox>>::create(*all.hub));
  all.add();
  channel& there = all.there[0];
  send_text(there, "early");
  std::optional<inbox> messages = must(inbox::open(*all.here[0], all.pool));
  static_cast<void>(must(clients.add(std::move(*all.here[0]), std::move(messages))));
  send_text(there, "late");
  std::string seen;
  wait_until(
      [&] {
        auto turn = must(clients.wait(patience));
        CHECK_FALSE(turn.next());
        while (auto next = turn.data()->poll()) seen += text_of(must(std::move(*next))) + ' ';
        return seen == "early late ";
      },
      "both messages");
  CHECK(failure_of(all.hub->poll()) == error_kind::invalid_input);
}

TEST_CASE("polling a moved-from hub is refused") {
  const testbed bed;
  auto hub = must(channel_hub::create(bed.domain, {.channels = 1, .completions = 16}));
  const channel_hub moved = std::move(hub);
  CHECK(failure_of(hub.poll()) == error_kind::invalid_input);
  must(moved.poll());
}
