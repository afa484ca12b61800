// SPDX-License-Identifier: Apache-2.0
// Handlers that throw exceptions, and answers for which the send queue has no room.

#include "lending.hpp"
#include "raw_calls.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

using namespace verbspp;
using namespace verbspp::test;

namespace {

/// A service whose handlers throw exceptions. One thread serves its calls until `stop_serving` is
/// called.
class throwing_service : public service_threads {
 public:
  /// The handler of `kept_method` throws for these requests. For `drop`, it neither answers nor
  /// stores the call before it throws. For `answer`, it answers the call first, and for `store`, it
  /// stores the call first. Other calls are only stored.
  static constexpr std::int32_t drop = 1, answer = 2, store = 3;

  explicit throwing_service(const testbed& bed) : service_threads(bed) {
    serve(service::create(bed.domain, {.clients = 2, .in_flight = 4, .waiting = wait_mode::sleep()},
                          handles<note_method>([](std::int32_t asked) {
                            if (asked < 0) throw std::runtime_error("a negative number");
                          }),
                          handles<kept_method>(
                              [this](received_call<kept_method> call) { take(std::move(call)); })),
          0);
    serving_ = std::jthread([this](const std::stop_token& stop) {
      while (!stop.stop_requested()) try {
          const auto ended = served().serve(stop);
          if (ended.has_error()) return;
        } catch (const std::runtime_error&) {
          ++thrown_;
        }
    });
  }
  throwing_service(const throwing_service&) = delete;
  throwing_service& operator=(const throwing_service&) = delete;
  ~throwing_service() {
    stop_serving();
    close();
  }

  void stop_serving() { serving_ = {}; }
  [[nodiscard]] int thrown() const { return thrown_; }
  [[nodiscard]] caller call() {
    auto [calls, link] = prepare();
    must(calls.start<note_method, kept_method>(std::move(link), patience));
    return std::move(calls);
  }

  kept_calls<kept_method> kept{};

 private:
  void take(received_call<kept_method> call) {
    const std::int32_t asked = call.request();
    if (asked == answer) static_cast<void>(call.answer(7));
    if (asked != drop && asked != answer) kept.put(std::move(call));
    if (asked == drop || asked == answer || asked == store) throw std::runtime_error("thrown");
  }

  std::atomic<int> thrown_{0};
  std::jthread serving_{};
};

/// A client that has no receives for answers until the test posts them.
class deaf_client {
 public:
  static constexpr std::size_t size = 64;

  deaf_client(const testbed& bed, running_service& serving)
      : pool_(must(message_pool::create(bed.domain, 64, size))),
        answers_(must(plain_memory::allocate(bed.domain, 64 * size))),
        link_(serving.connect(
            must(bed.domain.build_channel().max_receive_work_requests(64).build()))) {}

  /// Sends a call of `sum_method`, which adds 1 to this number.
  void call(std::uint32_t number) {
    const std::array<std::int64_t, 2> numbers{number, 1};
    message next = must(pool_.take());
    must(next.assign(
        frame({.kind = call_frame_kind::call, .method = sum_method::number, .number = number},
              bytes_in(numbers))));
    must(link_.send(std::move(next), patience));
  }
  /// Receives this number of answers. \returns the numbers of their calls
  [[nodiscard]] std::vector<std::uint32_t> receive(std::size_t count) {
    std::vector<pending<>> arriving;
    for (std::size_t i = 0; i < count; ++i)
      arriving.push_back(
          must(link_.post_receive({.elements = must(answers_.scatter(i * size, size))})));
    std::vector<std::uint32_t> numbers;
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t length = must(arriving[i].wait(patience)).byte_count().value();
      const auto bytes = std::span<const std::byte>(answers_).subspan(i * size, length);
      const call_header header = call_header::decode(bytes).value();
      std::int64_t sum = 0;
      std::ranges::copy(bytes.subspan(call_header::size),
                        std::as_writable_bytes(std::span(&sum, 1)).begin());
      CHECK(header.kind == call_frame_kind::answer);
      CHECK(sum == header.number + 1);
      numbers.push_back(header.number);
    }
    return numbers;
  }

 private:
  message_pool pool_;
  plain_memory answers_;
  channel link_;
};

}  // namespace

TEST_CASE("an exception of a handler harms no other call") {
  const testbed bed;
  throwing_service serving(bed);
  caller calls = serving.call();
  const auto check_refused = [](const error& refused) {
    CHECK(is_refusal(refused));
    CHECK(refused == error_kind::cancelled);
    CHECK_THAT(refused.message(), Catch::Contains("dropped the call"));
  };
  SECTION("before it has answered") {
    check_refused(failure_of(calls.call<note_method>(-1, patience)));
    check_refused(failure_of(calls.call<kept_method>(throwing_service::drop, patience)));
    wait_until([&] { return serving.thrown() == 2; }, "the exceptions");
  }
  SECTION("after it has answered") {
    CHECK(must(calls.call<kept_method>(throwing_service::answer, patience)) == 7);
  }
  SECTION("after it has stored the call") {
    auto posted = must(calls.post_call<kept_method>(throwing_service::store));
    auto stored = serving.kept.take(1);
    must(stored[0].answer(8));
    CHECK(must(posted.wait(patience)) == 8);
  }
  SECTION("more often than the service has memory for calls") {
    for (int i = 0; i < 200; ++i) check_refused(failure_of(calls.call<note_method>(-1, patience)));
    CHECK(serving.served().statistics<note_method>().refusals >= 199);
  }
  SECTION("in poll, with calls behind it in the same turn") {
    std::vector<pending_call<note_method>> posted;
    serving.stop_serving();
    for (const std::int32_t value : {1, -1, 2, -2})
      posted.push_back(must(calls.post_call<note_method>(value)));
    int thrown = 0;
    wait_until(
        [&] {
          try {
            must(serving.served().poll());
          } catch (const std::runtime_error&) {
            ++thrown;
          }
          return serving.served().statistics<note_method>().calls == 4;
        },
        "the calls");
    CHECK(thrown == 2);
    must(posted[0].wait(patience));
    check_refused(failure_of(posted[1].wait(patience)));
    must(posted[2].wait(patience));
    check_refused(failure_of(posted[3].wait(patience)));
    return;
  }
  must(calls.call<note_method>(1, patience));
  CHECK(serving.served().clients() == 1);
}

TEST_CASE("answers for which the send queue has no room are sent later") {
  const testbed bed;
  // The default length of the send queues of a hub's channels. In this test, it is also the maximum
  // number of calls in flight.
  constexpr std::uint32_t room = 16;
  running_service serving(bed, 1, {.clients = 2, .in_flight = room, .waiting = wait_mode::sleep()});
  deaf_client client(bed, serving);
  // Without receives at the client, the first answers stay in the send queue. Their calls count as
  // answered, so the service accepts the same number of further calls. The answers to these further
  // calls find the queue full.
  const auto statistics = [&] { return serving.served().statistics(); };
  for (std::uint32_t i = 0; i < room; ++i) client.call(i);
  wait_until([&] { return statistics().answers == room; }, "the first answers");
  for (std::uint32_t i = room; i < 2 * room; ++i) client.call(i);
  wait_until([&] { return statistics().calls == 2 * room; }, "the second calls");
  caller other = serving.call();
  CHECK(must(other.call<sum_method>({.first = 1, .second = 2}, patience)) == 3);
  // The service counts an answer after it has sent it.
  wait_until([&] { return serving.served().statistics<sum_method>().answers == room + 1; },
             "the count of the answers");

  auto numbers = client.receive(2 * room);
  std::ranges::sort(numbers);
  for (std::uint32_t i = 0; i < 2 * room; ++i) CHECK(numbers[i] == i);
  CHECK(serving.served().statistics().removed_clients == 0);
}

TEST_CASE("a service that drains waits until its answers have arrived") {
  const testbed bed;
  running_service serving(bed);
  deaf_client client(bed, serving);
  client.call(5);
  wait_until([&] { return serving.served().statistics().answers == 1; }, "the answer");
  CHECK(failure_of(serving.served().drain(wait_limit(std::chrono::nanoseconds(0)))) ==
        error_kind::timed_out);
  CHECK(client.receive(1) == std::vector<std::uint32_t>{5});
  must(serving.served().drain(patience));
}
