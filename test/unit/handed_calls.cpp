// SPDX-License-Identifier: Apache-2.0
// Calls that threads hand over to another thread, and objects that are resumed like coroutines.

#include "../catch.hpp"
#include <verbspp/async/detail/resumable.hpp>
#include <verbspp/wait/detail/handed_calls.hpp>

#include <atomic>
#include <functional>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

using namespace verbspp;
using namespace verbspp::detail;

namespace {

/// A queued call that runs a given function.
struct call : continuation {
  explicit call(std::function<void()> made = {})
      : continuation([](continuation& self) noexcept {
          auto& mine = static_cast<call&>(self);
          ++mine.calls;
          if (mine.function) mine.function();
        }),
        function(std::move(made)) {}
  std::function<void()> function;
  int calls = 0;
};

}  // namespace

TEST_CASE("queued calls are made once and in order") {
  handed_calls queue;
  std::vector<int> order;
  call first([&] { order.push_back(1); });
  call second([&] { order.push_back(2); });
  CHECK_FALSE(queue.has_some());
  queue.run();
  queue.push(first);
  queue.push(second);
  CHECK(queue.has_some());
  CHECK(order.empty());
  queue.run();
  CHECK(order == std::vector{1, 2});
  CHECK_FALSE(queue.has_some());
  queue.run();
  CHECK(order.size() == 2);
}

TEST_CASE("a queued call may withdraw another call and queue itself again") {
  handed_calls queue;
  call other;
  call late;
  call first;
  first.function = [&] {
    queue.withdraw(other);
    if (first.calls == 1) queue.push(first);
  };
  queue.push(other);
  queue.withdraw(other);
  CHECK_FALSE(queue.has_some());
  queue.push(first);
  queue.push(other);
  queue.push(late);
  CHECK(queue.has_some());
  queue.withdraw(late);
  queue.run();
  CHECK(first.calls == 1);
  CHECK(other.calls == 0);
  CHECK(late.calls == 0);
  CHECK(queue.has_some());
  queue.run();
  CHECK(first.calls == 2);
}

TEST_CASE("calls queued by several threads are all made by the thread that runs the queue") {
  handed_calls queue;
  constexpr int threads = 3;
  constexpr int rounds = 2000;
  std::atomic<int> made{0};
  std::atomic<bool> is_wrong{false};
  const auto runner = std::this_thread::get_id();
  std::vector<std::thread> pushing;
  for (int i = 0; i < threads; ++i)
    pushing.emplace_back([&] {
      for (int round = 0; round < rounds; ++round) {
        std::atomic<bool> is_made{false};
        call one([&] {
          if (std::this_thread::get_id() != runner) is_wrong = true;
          ++made;
          is_made = true;
        });
        queue.push(one);
        while (!is_made) std::this_thread::yield();
      }
    });
  while (made != threads * rounds) {
    queue.run();
    std::this_thread::yield();
  }
  for (std::thread& each : pushing) each.join();
  CHECK_FALSE(is_wrong);
}

TEST_CASE("an object is resumed like a coroutine, without an allocation") {
  struct counter : resumable {
    counter()
        : resumable([](resumable& self) noexcept { ++static_cast<counter&>(self).resumed; }) {}
    int resumed = 0;
  };
  counter one;
  const auto handle = one.handle();
  CHECK(handle.address() > static_cast<void*>(&one));
  CHECK(handle.address() < static_cast<void*>(&one + 1));
  CHECK(one.resumed == 0);
  handle.resume();
  one.handle().resume();
  CHECK(one.resumed == 2);
}

TEST_CASE("an object may be destroyed when it is resumed") {
  struct ending : resumable {
    explicit ending(std::unique_ptr<ending>& of)
        : resumable([](resumable& self) noexcept { static_cast<ending&>(self).place.reset(); }),
          place(of) {}
    std::unique_ptr<ending>& place;
  };
  std::unique_ptr<ending> place;
  place = std::make_unique<ending>(place);
  const auto handle = place->handle();
  handle.resume();
  CHECK(place == nullptr);
  place = std::make_unique<ending>(place);
}
