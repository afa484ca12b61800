// SPDX-License-Identifier: Apache-2.0
/// \file
/// Tests that control the delivery of the datagrams with which ranks connect.

#include "../device/failing_device.hpp"
#include "worlds.hpp"

#include <dlfcn.h>

#include <cstdint>
#include <optional>

using namespace verbspp;
using namespace verbspp::test;

namespace {

[[nodiscard]] void* function_of_device(const char* name) { return ::dlsym(RTLD_DEFAULT, name); }

/// Suspends the software device during its lifetime, so that the device processes requests only
/// when `deliver` is called. Skips the test on other devices.
class held_device {
 public:
  held_device() {
    auto* const hold =
        reinterpret_cast<void (*)(unsigned long long)>(function_of_device("softverbs_hold"));
    if (hold == nullptr || !device_name().starts_with("soft"))
      SKIP("only the software device can be stepped");
    hold(1);
  }
  ~held_device() { reinterpret_cast<void (*)()>(function_of_device("softverbs_go_on"))(); }
  held_device(const held_device&) = delete;
  held_device& operator=(const held_device&) = delete;
  /// Makes the device work until it has nothing left to do.
  static void deliver() noexcept {
    auto* const step = reinterpret_cast<int (*)()>(function_of_device("softverbs_step"));
    while (step() != 0) {
    }
  }
};

/// A stop token that requests a stop once a condition holds. The waiting thread evaluates the
/// condition.
template <class Condition>
class when {
 public:
  explicit when(Condition& holds) : holds_(&holds) {}
  [[nodiscard]] bool stop_requested() const noexcept { return (*holds_)(); }

 private:
  Condition* holds_;
};

}  // namespace

TEST_CASE(
    "reconnecting a world processes received datagrams first and leaves working connections "
    "alone") {
  lazy_worlds all(2);
  group& calls = all.ranks[0].peers();
  group& answers = all.ranks[1].peers();
  {
    const held_device device;
    const auto is_connected = [&] {
      held_device::deliver();
      if (!answers[0].is_connected()) all.ranks[1].serve();
      return !calls.is_due(1);
    };
    CHECK(calls.connect({1}, wait_limit(clock::now() + patience, when(is_connected))));
    // Deliver the last datagram from rank 0, which reports that rank 0 is connected. Rank 1 does
    // not poll until `mend`, so it has not processed that datagram yet.
    held_device::deliver();
  }
  CHECK(answers.is_due(0));
  const std::uint32_t before = answers[0].endpoint().generation;
  on_threads(2, [&](std::uint32_t rank) { must(all.ranks[rank].mend(patience)); });
  CHECK_FALSE(answers.is_due(0));
  CHECK(answers[0].endpoint().generation == before);
}

TEST_CASE("a connected rank continues to call a peer that does not know of the connection") {
  lazy_worlds all(2);
  group& calls = all.ranks[0].peers();
  group& answers = all.ranks[1].peers();
  const held_device device;
  bool has_lost = false;
  const auto goes_on = [&] {
    {
      std::optional<failing_device> failing;
      // When rank 0 is connected, it reports this to rank 1. Make the device lose the first report.
      if (!has_lost && !calls.is_due(1)) {
        failing.emplace("packet:*=lost");
        has_lost = true;
      }
      held_device::deliver();
    }
    if (has_lost || !answers[0].is_connected()) all.ranks[1].serve();
    return false;
  };
  CHECK(calls.connect({1}, wait_limit(clock::now() + patience, when(goes_on))));
  CHECK(has_lost);
  held_device::deliver();
  all.ranks[1].serve();
  CHECK_FALSE(answers.is_due(0));
}
