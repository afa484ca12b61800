// SPDX-License-Identifier: Apache-2.0
// Many callers with random limits: no answer goes to a wrong call, late answers do no harm, and
// each message finds a posted receive at the other end.

#include "../rnr_naks.hpp"
#include "calls.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

using namespace verbspp;
using namespace verbspp::test;
using namespace std::chrono_literals;

namespace {

/// A client that makes random calls.
class random_client {
 public:
  random_client(running_service& serving, std::uint32_t seed)
      : random_(seed), seed_(seed), calls_(serving.call({.in_flight = 4})) {}

  /// Makes a call. \returns the error if the answer is wrong or the connection is broken, otherwise
  /// an empty string
  std::string call() {
    ++calls_made_;
    const std::chrono::microseconds limit(random_() % 300);
    switch (random_() % 5) {
      case 0:
      case 1: {
        const auto first = static_cast<std::int64_t>(seed_) << 32 | calls_made_;
        return check(calls_.call<sum_method>({.first = first, .second = 1}, limit),
                     [&](std::int64_t got) { return got == first + 1; });
      }
      case 2: {
        const auto sent = pattern(random_() % 300, static_cast<unsigned>(random_()));
        return check(calls_.call<echo_method>(sent, limit), [&](const received_bytes& got) {
          return std::ranges::equal(got.view(), sent);
        });
      }
      case 3: {
        const auto sent = static_cast<std::int32_t>(random_());
        return check(calls_.call<kept_method>(sent, limit),
                     [&](std::int32_t got) { return got == -sent; });
      }
      default:
        return post();
    }
  }
  [[nodiscard]] std::uint64_t ended_early() const { return calls_.statistics().given_up; }
  /// Checks that the connection still works.
  std::string finish() {
    waiting_ = {};
    return check(
        calls_.call<sum_method>({.first = 1, .second = 2}, patience),
        [](std::int64_t got) { return got == 3; }, false);
  }

 private:
  /// Posts a call, and stores its handle in place of an earlier one, which is chosen at random.
  std::string post() {
    auto posted = calls_.post_call<kept_method>(static_cast<std::int32_t>(calls_made_));
    if (posted.has_error())
      return posted.error() == error_kind::would_block ? "" : posted.error().message();
    auto& [handle, sent] = waiting_[random_() % waiting_.size()];
    std::string failed;
    if (handle.has_call())
      if (auto answer = handle.poll())
        failed =
            check(std::move(*answer), [&, sent = sent](std::int32_t got) { return got == -sent; });
    handle = std::move(posted).value();
    sent = static_cast<std::int32_t>(calls_made_);
    return failed;
  }
  /// \returns an empty string if the answer is right, or if `may_time_out` is true and the limit
  /// was reached or the service refused the call
  template <class Answer, class Test>
  std::string check(const result<Answer>& answer, Test is_right, bool may_time_out = true) {
    if (answer.has_error()) {
      const bool is_expected =
          answer.error() == error_kind::timed_out || is_refusal(answer.error());
      return may_time_out && is_expected ? "" : answer.error().message();
    }
    return is_right(answer.value()) ? "" : "the answer of another call";
  }

  std::minstd_rand random_;
  std::uint32_t seed_;
  std::uint32_t calls_made_ = 0;
  caller calls_;
  std::array<std::pair<pending_call<kept_method>, std::int32_t>, 3> waiting_{};
};

}  // namespace

TEST_CASE("random limits end only their own calls, and each message finds a receive") {
  const testbed bed;
  running_service serving(bed, 2, {.clients = 64, .in_flight = 4, .waiting = wait_mode::sleep()});
  const auto refused_before = rnr_naks(device_name());
  std::atomic<bool> is_over{false};
  // Answers or refuses the kept calls late, and out of order.
  std::thread answering([&] {
    std::minstd_rand random(3);
    std::vector<received_call<kept_method>> kept;
    while (!is_over) {
      serving.kept.move_to(kept);
      std::ranges::shuffle(kept, random);
      const std::size_t count = kept.empty() ? 0 : random() % (kept.size() + 1);
      for (std::size_t i = 0; i < count; ++i) {
        auto& each = kept.back();
        if (random() % 20 != 0) static_cast<void>(each.answer(-each.request()));
        kept.pop_back();  // refuses the call if it was not answered
      }
      // steady: only varies the order of events
      std::this_thread::sleep_for(std::chrono::microseconds(random() % 100));
    }
  });
  constexpr std::uint32_t clients = 4, lives = 3;
  std::atomic<std::uint64_t> ended_early{0};
  run_clients(clients, [&](std::uint32_t i) {
    std::string failure;
    for (std::uint32_t life = 0; life < lives && failure.empty(); ++life) {
      random_client client(serving, i * lives + life + 1);
      for (std::uint32_t n = 0; n < repetitions(500) && failure.empty(); ++n)
        failure = client.call();
      ended_early += client.ended_early();
      // The connection of the last client of this thread is checked before the client is destroyed.
      // The other clients may be destroyed with calls in flight.
      if (life + 1 == lives && failure.empty()) failure = client.finish();
    }
    return failure;
  });
  is_over = true;
  answering.join();
  CHECK(ended_early > 0);
  CHECK(rnr_naks(device_name()) == refused_before);
  serving.stop();
  CHECK(serving.failure().empty());
  CHECK(serving.served().statistics().removed_clients == 0);
}
