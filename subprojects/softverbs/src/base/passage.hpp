// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace softverbs {

/// What a thread is in while it uses something without a lock that others may take away: they make
/// sure that nobody finds it any more, and wait for those who are just using it.
///
/// It works because both sides say what they do before they look at what the other one does: who
/// uses it enters and then looks it up, who takes it away hides it and then looks who has entered.
class passage {
 public:
  static constexpr std::size_t most = 512;

  /// That of the calling thread, for as long as the thread lives; null if all are taken.
  static passage* mine() noexcept;
  /// From 0 on.
  std::size_t number() const noexcept;

  void enter() noexcept { turn_.fetch_add(1); }
  void leave() noexcept {
    turn_.store(turn_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  }

  /// Until all that have entered one have left it. Not within one.
  static void wait_for_all() noexcept;
  /// The same for the others than the calling thread, which may be within one; `give_up` says when
  /// that isn't worthwhile any more, and false is the result.
  template <typename GiveUp>
  static bool wait_for_others(GiveUp give_up) noexcept;
  /// In a child of fork, which has none of these threads.
  static void forget_all() noexcept;

 private:
  friend class passage_of_thread;
  static passage& at(std::size_t number) noexcept;
  /// No thread ever had one from this number on.
  static std::size_t count() noexcept;

  /// Odd within.
  alignas(64) std::atomic<std::uint32_t> turn_{0};
  std::atomic<bool> taken_{false};
};

template <typename GiveUp>
bool passage::wait_for_others(GiveUp give_up) noexcept {
  const passage* const own = mine();
  for (std::size_t number = 0; number < count(); ++number) {
    const passage& other = at(number);
    const std::uint32_t turn = other.turn_.load();
    if (turn % 2 == 0 || &other == own) continue;
    while (other.turn_.load() == turn)
      if (give_up()) return false;
  }
  return true;
}

/// In a passage for as long as this lives.
class passing {
 public:
  explicit passing(passage& through) noexcept : through_(through) { through_.enter(); }
  passing(const passing&) = delete;
  passing& operator=(const passing&) = delete;
  ~passing() { through_.leave(); }

 private:
  passage& through_;
};

}  // namespace softverbs
