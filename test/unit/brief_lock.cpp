// SPDX-License-Identifier: Apache-2.0
#include "../catch.hpp"
#include <verbspp/base/detail/brief_lock.hpp>

#include <sched.h>

#include <thread>
#include <vector>

using verbspp::detail::brief_guard;
using verbspp::detail::brief_lock;

TEST_CASE("a lock admits one thread at a time and wakes sleeping threads") {
  constexpr int rounds = 2'000;
  brief_lock lock;
  unsigned inside = 0;
  unsigned together = 0;
  unsigned total = 0;
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread)
    threads.emplace_back([&] {
      for (int i = 0; i < rounds; ++i) {
        const brief_guard guard(lock);
        if (++inside != 1) ++together;
        // Yields, so that other threads find the lock taken and go to sleep.
        if (i % 8 == 0) sched_yield();
        ++total;
        --inside;
      }
    });
  for (std::thread& each : threads) each.join();
  CHECK(together == 0);
  CHECK(total == 4 * rounds);
}

TEST_CASE("trying to take a lock that another thread has fails") {
  brief_lock lock;
  bool was_taken = true;
  std::thread([&] {
    lock.lock();
    std::thread([&] { was_taken = lock.try_lock(); }).join();
    lock.unlock();
  }).join();
  CHECK_FALSE(was_taken);
  REQUIRE(lock.try_lock());
  lock.unlock();
}
