// SPDX-License-Identifier: Apache-2.0
#include "base/passage.hpp"

#include <sched.h>

#include <array>

namespace softverbs {
namespace {

std::array<passage, passage::most> all_passages;
/// One more than the highest index of a passage that a thread has taken so far.
std::atomic<std::size_t> ever_taken{0};

}  // namespace

/// Owns a passage until the thread ends, unless none was free.
class passage_of_thread {
 public:
  passage_of_thread() noexcept {
    for (passage& each : all_passages) {
      if (each.taken_.load(std::memory_order_relaxed) || each.taken_.exchange(true)) continue;
      std::size_t before = ever_taken.load();
      while (before < each.number() + 1 &&
             !ever_taken.compare_exchange_weak(before, each.number() + 1)) {
      }
      own_ = &each;
      return;
    }
  }
  passage_of_thread(const passage_of_thread&) = delete;
  passage_of_thread& operator=(const passage_of_thread&) = delete;
  ~passage_of_thread() {
    if (own_ != nullptr) own_->taken_ = false;
  }
  passage* own() const noexcept { return own_; }

 private:
  passage* own_ = nullptr;
};

passage* passage::mine() noexcept {
  static thread_local const passage_of_thread place;
  return place.own();
}

std::size_t passage::number() const noexcept {
  return static_cast<std::size_t>(this - all_passages.data());
}

passage& passage::at(std::size_t number) noexcept { return all_passages[number]; }
std::size_t passage::count() noexcept { return ever_taken.load(); }

void passage::wait_for_all() noexcept {
  const std::size_t last = count();
  for (std::size_t number = 0; number < last; ++number) {
    const std::uint32_t turn = all_passages[number].turn_.load();
    if (turn % 2 == 0) continue;
    while (all_passages[number].turn_.load() == turn) ::sched_yield();
  }
}

void passage::forget_all() noexcept {
  const passage* own = mine();
  for (passage& each : all_passages) {
    each.turn_ = 0;
    if (&each != own) each.taken_ = false;
  }
}

}  // namespace softverbs
