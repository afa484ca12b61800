// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace softverbs {

/// Marks a section in which a thread uses shared objects without a lock, although other threads may
/// destroy them. Each of up to 512 threads has a passage of its own. To destroy an object, a thread
/// first removes it from the table where other threads look it up, and then waits until each thread
/// that was in its passage has left it.
///
/// This works because each side announces what it does before it checks what the other side does. A
/// user enters its passage and then looks the object up. The destroying thread removes the object
/// and then checks which threads are in their passages.
class passage {
 public:
  static constexpr std::size_t most = 512;

  /// Returns the passage of the calling thread, which the thread keeps until it ends, or null if
  /// all passages are taken.
  static passage* mine() noexcept;
  /// The index of this passage, counted from 0.
  std::size_t number() const noexcept;

  void enter() noexcept { turn_.fetch_add(1); }
  void leave() noexcept {
    turn_.store(turn_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  }

  /// Waits until all threads that are in their passages have left them. Must not be called by a
  /// thread that is in its passage.
  static void wait_for_all() noexcept;
  /// Like `wait_for_all`, but doesn't wait for the calling thread, which may be in its passage.
  /// Calls `give_up` repeatedly while it waits, and returns false as soon as `give_up` returns
  /// true.
  template <typename GiveUp>
  static bool wait_for_others(GiveUp give_up) noexcept;
  /// Called in a forked child: leaves all passages, and frees those of the parent's other threads,
  /// which don't exist in the child.
  static void forget_all() noexcept;

 private:
  friend class passage_of_thread;
  static passage& at(std::size_t number) noexcept;
  /// One more than the highest index of a passage that a thread has taken so far.
  static std::size_t count() noexcept;

  /// Odd while the thread that owns the passage is in it.
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

/// While an object of this class exists, the thread that created it is in the passage.
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
