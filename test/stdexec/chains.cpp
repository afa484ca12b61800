// SPDX-License-Identifier: Apache-2.0
// Senders of the library in algorithms of stdexec.

#include "../device/channels.hpp"
#include <verbspp/sender.hpp>

#include <array>
#include <optional>
#include <thread>
#include <utility>

using namespace verbspp;
using namespace verbspp::test;

namespace {

struct note {
  int values = 0;
  int errors = 0;
  int stops = 0;
  std::thread::id completed_on{};
  [[nodiscard]] bool is_done() const { return values + errors + stops != 0; }
};

struct receiver {
  using receiver_concept = stdexec::receiver_tag;
  note* to;
  stdexec::inplace_stop_token token;

  template <class... Values>
  void set_value(Values&&... /*values*/) && noexcept {
    end(to->values);
  }
  template <class Error>
  void set_error(Error&& /*failed*/) && noexcept {
    end(to->errors);
  }
  void set_stopped() && noexcept { end(to->stops); }
  [[nodiscard]] auto get_env() const noexcept {
    return stdexec::prop{stdexec::get_stop_token, token};
  }
  void end(int& count) const {
    ++count;
    to->completed_on = std::this_thread::get_id();
  }
};

auto send_nothing(channel& link) {
  return as_sender([&link] { return link.async_send({}); });
}
auto wait_for_message(inbox& messages) {
  return as_sender([&messages] { return messages.async_wait(); });
}

static_assert(stdexec::sender_in<decltype(send_nothing(std::declval<channel&>())), stdexec::env<>>);
static_assert(stdexec::sender_to<decltype(send_nothing(std::declval<channel&>())), receiver>);
static_assert(stdexec::sender_to<decltype(wait_for_message(std::declval<inbox&>())), receiver>);
static_assert(stdexec::scheduler<hub_scheduler>);
static_assert(stdexec::sender_to<hub_scheduler::sender, receiver>);
static_assert(
    stdexec::operation_state<
        stdexec::connect_result_t<decltype(send_nothing(std::declval<channel&>())), receiver>>);

}  // namespace

TEST_CASE("a chain started by another thread continues on the thread that polls the hub") {
  const testbed bed;
  const channel_hub hub = must(channel_hub::create(bed.domain, {.waiting = wait_mode::sleep()}));
  channel_pair ends =
      connect_channels(bed.domain.build_channel().hub(hub).waiting(wait_mode::sleep()));
  auto arriving = must(ends.right.post_receive({}));
  note seen;
  auto chain = hub_scheduler(hub).schedule() |
               stdexec::let_value([&]() noexcept { return send_nothing(ends.left); }) |
               stdexec::then([](const completed_work& /*work*/) noexcept { return 1; });
  auto operation = stdexec::connect(std::move(chain), receiver{&seen, {}});
  std::thread starter([&] { stdexec::start(operation); });
  std::array<arrival, 4> slots;
  wait_until(
      [&] {
        static_cast<void>(hub.wait(slots, short_limit));
        ends.left.poll();
        return seen.is_done();
      },
      "the chain");
  starter.join();
  CHECK(seen.values == 1);
  CHECK(seen.completed_on == std::this_thread::get_id());
  must(arriving.wait(patience));
}

TEST_CASE_METHOD(two_channels, "when one operation of several fails, the others are stopped") {
  const message_pool pool = must(message_pool::create(bed.domain, 8, 64));
  inbox messages = must(inbox::open(left, pool));
  channel none;
  note seen;
  auto operation = stdexec::connect(
      stdexec::when_all(wait_for_message(messages), send_nothing(left), send_nothing(none)),
      receiver{&seen, {}});
  stdexec::start(operation);
  CHECK_FALSE(seen.is_done());
  wait_until(
      [&] {
        left.poll();
        return seen.is_done();
      },
      "all operations");
  CHECK(seen.errors == 1);
  CHECK(left.is_connected());
}

TEST_CASE_METHOD(two_channels, "a stop source of stdexec stops a chain") {
  stdexec::inplace_stop_source source;
  note seen;
  auto operation = stdexec::connect(
      send_nothing(left) | stdexec::then([](const completed_work& /*work*/) noexcept {}),
      receiver{&seen, source.get_token()});
  stdexec::start(operation);
  std::thread requester = later([&] { source.request_stop(); });
  wait_until(
      [&] {
        left.poll();
        return seen.is_done();
      },
      "the stop");
  requester.join();
  CHECK(seen.stops == 1);
  CHECK(left.is_connected());
}
