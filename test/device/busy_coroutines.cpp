// SPDX-License-Identifier: Apache-2.0
// Coroutines whose requests finish continually, so each poll resumes some of them.

#include "coroutines.hpp"

#include <algorithm>
#include <chrono>
#include <vector>

using namespace verbspp;
using namespace verbspp::test;

namespace {

/// Coroutines that write until `rounds` reaches `enough`. They outnumber the places in the send
/// queue, so posting has to take completions to make room, which makes other coroutines ready to be
/// resumed.
struct many_writers : two_channels {
  many_writers() {
    for (unsigned i = 0; i < 64; ++i) writers.push_back(write());
  }
  routine write() {
    const auto remote = must(theirs.remote());
    while (++rounds < enough) {
      const auto posted = left.post_write(mine, {.remote = remote});
      VERBSPP_CO_TRYV(co_await left.async_write({.elements = mine, .remote = remote}));
    }
    co_return success();
  }
  [[nodiscard]] bool are_done() const {
    return std::ranges::all_of(writers, [](const routine& each) { return each.is_done(); });
  }

  unsigned enough = 50'000;
  shared_bytes mine = share_bytes(bed, 64, 1);
  shared_bytes theirs = share_bytes(bed, 64);
  unsigned rounds = 0;
  std::vector<routine> writers{};
};

}  // namespace

TEST_CASE_METHOD(
    many_writers,
    "poll returns even if the coroutines that it resumes take completions themselves") {
  enough = 10'000;
  unsigned most = 0;
  wait_until(
      [&] {
        const unsigned before = rounds;
        left.poll();
        most = std::max(most, rounds - before);
        return are_done();
      },
      "the coroutines");
  for (routine& each : writers) must(each.get());
  CHECK(most < enough / 4);
}

TEST_CASE_METHOD(many_writers, "a limit expires although each poll resumes other coroutines") {
  const auto place = share_bytes(bed, 64);
  const auto receive = [&]() -> routine {
    VERBSPP_CO_TRYV(co_await left.async_receive({.elements = place}, std::chrono::milliseconds(1)));
    co_return success();
  };
  routine receiving = receive();
  for (unsigned polls = 0; polls < 40 && !receiving.is_done(); ++polls) left.poll();
  CHECK(receiving.is_done());
  CHECK(rounds < enough);
}
