// SPDX-License-Identifier: Apache-2.0
#include "../catch.hpp"
#include <verbspp/memory/detail/memory_keeper.hpp>
#include <verbspp/memory/detail/share_count.hpp>

#include <cstdint>
#include <thread>
#include <vector>

using verbspp::detail::kept_memory;
using verbspp::detail::memory_keeper;
using verbspp::detail::share_count;

TEST_CASE("dropping the last share returns true") {
  share_count count;
  CHECK(count.is_one());
  count.add();
  CHECK_FALSE(count.is_one());
  CHECK_FALSE(count.drop());
  CHECK(count.is_one());
  CHECK(count.drop());
}

TEST_CASE("a count that several threads share stays correct") {
  share_count count;
  constexpr int rounds = 20'000;
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread)
    threads.emplace_back([&] {
      for (int i = 0; i < rounds; ++i) count.add();
      for (int i = 0; i < rounds; ++i)
        if (count.drop()) std::abort();  // the first share still exists
    });
  for (std::thread& each : threads) each.join();
  CHECK(count.is_one());
  CHECK(count.drop());
}

TEST_CASE("a request's memory is released only once") {
  struct counter : memory_keeper {
    int calls = 0;
  };
  counter keeper;
  keeper.let_go = [](memory_keeper& self) noexcept { ++static_cast<counter&>(self).calls; };
  kept_memory kept{.keeper = &keeper};
  kept.let_go();
  kept.let_go();
  CHECK(keeper.calls == 1);
  kept_memory nobody;
  nobody.let_go();
}
