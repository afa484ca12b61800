// SPDX-License-Identifier: Apache-2.0
// Many calls that lend memory, with random limits: no byte is written after its call has ended.

#include "lending.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

using namespace verbspp;
using namespace verbspp::test;
using namespace std::chrono_literals;

namespace {

/// A client whose calls lend memory, with random limits.
class lending_client {
 public:
  lending_client(const testbed& bed, lending_service& serving, std::uint32_t seed)
      : random_(seed), calls_(serving.call_with({.in_flight = 4, .lanes = 2})) {
    for (lent& each : memory_) {
      each.buffer.emplace(must(filled<window_memory>(bed, size, std::byte{0}).share()));
      each.seen.resize(size);
    }
  }

  /// Makes a call. \returns a message if bytes are wrong, the error if the call failed for a reason
  /// other than a timeout or a refusal, and otherwise an empty string
  std::string call() {
    if (random_() % 4 == 0) return call_with(own_, own_seen_);
    if (random_() % 4 == 0) return call_with(small_, small_seen_);
    lent& lends = memory_[random_() % memory_.size()];
    return call_with(*lends.buffer, lends.seen);
  }
  [[nodiscard]] caller_statistics statistics() const { return calls_.statistics(); }
  std::string finish() {
    if (own_ != own_seen_ || small_ != small_seen_)
      return "bytes were written after their call had ended";
    for (const lent& each : memory_)
      if (!std::ranges::equal(*each.buffer, each.seen))
        return "bytes were written after their call had ended";
    const auto done = calls_.call<fill>(1, *memory_[0].buffer, patience);
    return done.has_error() ? done.error().message() : "";
  }

 private:
  template <class Memory>
  std::string call_with(Memory& memory, std::vector<std::byte>& seen) {
    if (!std::ranges::equal(memory, seen)) return "bytes were written after their call had ended";
    const auto value = static_cast<std::uint8_t>(random_());
    const std::chrono::microseconds limit(random_() % 1500);
    const bool is_kept = random_() % 3 == 0;
    std::optional<error> failed;
    if (is_kept) {
      const auto done = calls_.call<keep>(value, memory, limit);
      if (done.has_error()) failed = done.error();
    } else {
      const auto done = calls_.call<fill>(value, memory, limit);
      if (done.has_error()) failed = done.error();
    }
    std::ranges::copy(memory, seen.begin());
    if (!failed)
      return all_are(seen, value) ? "" : "an answer arrived before its bytes were written";
    return *failed == error_kind::timed_out || is_refusal(*failed) ? "" : failed->message();
  }
  static constexpr std::size_t size = 20'000;
  struct lent {
    std::optional<shared_buffer<window_memory::rights>> buffer{};
    std::vector<std::byte> seen{};
  };

  std::minstd_rand random_;
  caller calls_;
  std::array<lent, 3> memory_{};
  // Memory of the program that is not registered. The caller copies it if the device has memory
  // windows, and otherwise registers it for the call.
  std::vector<std::byte> own_ = std::vector<std::byte>(4000);
  std::vector<std::byte> own_seen_ = own_;
  // Memory whose bytes are sent with the messages.
  std::vector<std::byte> small_ = std::vector<std::byte>(500);
  std::vector<std::byte> small_seen_ = small_;
};

}  // namespace

TEST_CASE("no byte of lent memory is written after its call has reached a random limit") {
  const testbed bed;
  lending_service serving(bed, 2);
  std::atomic<bool> is_over{false};
  // Answers or refuses the kept calls late; some of them have ended by then.
  std::thread answering([&, own = must(plain_memory::allocate(bed.domain, 20'000))]() mutable {
    std::minstd_rand random(3);
    std::vector<received_call<keep>> kept;
    while (!is_over) {
      serving.kept.move_to(kept);
      while (!kept.empty() && random() % 4 != 0) {
        std::ranges::fill(own, static_cast<std::byte>(kept.back().request()));
        const auto part = must(own.gather(0, kept.back().lent_size()));
        const auto written = kept.back().write(part, 0, 50ms);
        if (written.has_value() && random() % 8 != 0) static_cast<void>(kept.back().answer(1));
        kept.pop_back();  // refuses the call if it was not answered
      }
      // steady: only varies the order of events
      std::this_thread::sleep_for(std::chrono::microseconds(random() % 300));
    }
  });
  constexpr std::uint32_t clients = 3;
  std::atomic<std::uint64_t> ended_early{0};
  run_clients(clients, [&](std::uint32_t i) {
    lending_client client(bed, serving, i + 1);
    std::string failure;
    for (std::uint32_t n = 0; n < repetitions(60) && failure.empty(); ++n) failure = client.call();
    ended_early += client.statistics().given_up;
    return failure.empty() ? client.finish() : failure;
  });
  is_over = true;
  answering.join();
  CHECK(ended_early > 0);
  CHECK(serving.served().statistics().removed_clients == 0);
}
