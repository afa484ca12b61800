// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

namespace softverbs {

/// Announces to a peer process, in memory that both processes share, which of the peer's objects
/// this process is accessing. Each thread has its own place in the memory. The peer only reads the
/// announcements, and doesn't trust them. A false one can delay a call with which the peer changes
/// or destroys the object, or make the call fail with EBUSY, but can do no other harm.
class announcements {
 public:
  /// The objects in use: a queue pair and a region, by their indexes in the peer's tables.
  struct use {
    std::uint32_t pair;
    std::uint32_t region;
    bool operator==(const use&) const = default;
  };
  /// The decision of a waiting thread about an announcement: to check it again, to ignore it, or to
  /// give up waiting.
  enum class verdict : std::uint8_t { look_again, disbelieve, give_up };

  explicit announcements(std::span<std::byte> memory) noexcept : memory_(memory) {}

  /// Announces a use by the thread with this number. Must be called before the objects are looked
  /// up.
  void begin(std::size_t thread, const use& of) noexcept;
  void end(std::size_t thread) noexcept;

  /// In an argument of `wait`, stands for all queue pairs, or all regions.
  static constexpr std::uint32_t any = ~std::uint32_t{0};
  /// Waits for the end of all uses that began before this call and concern the objects in `of`.
  /// `judge` is called repeatedly with an announced use, and returns a verdict. Returns false if a
  /// verdict was `give_up`.
  template <typename Judge>
  bool wait(const use& of, Judge judge) const;

 private:
  using word = std::atomic<std::uint64_t>;
  static_assert(word::is_always_lock_free);
  static constexpr std::size_t place_bytes = 64;

  word& at(std::size_t place) const noexcept {
    return *reinterpret_cast<word*>(memory_.data() + place * place_bytes);
  }
  static use read(std::uint64_t said) noexcept;
  static bool concerns(std::uint64_t said, const use& of) noexcept;
  /// The highest index of a place that has ever been in use. It is stored in place 0, which belongs
  /// to no thread.
  word& used() const noexcept { return at(0); }
  std::size_t places() const noexcept { return memory_.size() / place_bytes; }

  static constexpr unsigned region_shift = 14;
  static constexpr unsigned count_shift = 34;
  static constexpr std::uint64_t in_use = std::uint64_t{1} << 63;

  std::span<std::byte> memory_;
};

inline void announcements::begin(std::size_t thread, const use& of) noexcept {
  std::uint64_t before = used().load(std::memory_order_relaxed);
  while (before < thread + 1 && !used().compare_exchange_weak(before, thread + 1)) {
  }
  word& own = at(thread + 1);
  // The count makes successive announcements differ, so that a waiting thread recognizes a new one.
  const std::uint64_t count =
      (own.load(std::memory_order_relaxed) + (std::uint64_t{1} << count_shift)) >> count_shift;
  own.exchange(in_use | (count << count_shift & ~in_use) |
               std::uint64_t{of.region} << region_shift | of.pair);
}

inline void announcements::end(std::size_t thread) noexcept {
  word& own = at(thread + 1);
  own.store(own.load(std::memory_order_relaxed) & ~in_use, std::memory_order_release);
}

inline announcements::use announcements::read(std::uint64_t said) noexcept {
  constexpr std::uint32_t pairs = (1U << region_shift) - 1;
  constexpr std::uint32_t regions = (1U << (count_shift - region_shift)) - 1;
  return {static_cast<std::uint32_t>(said) & pairs,
          static_cast<std::uint32_t>(said >> region_shift) & regions};
}

inline bool announcements::concerns(std::uint64_t said, const use& of) noexcept {
  const use what = read(said);
  return (said & in_use) != 0 && (of.pair == any || of.pair == what.pair) &&
         (of.region == any || of.region == what.region);
}

template <typename Judge>
bool announcements::wait(const use& of, Judge judge) const {
  const std::uint64_t count = used().load();
  for (std::size_t place = 1; place < places() && place <= count; ++place) {
    const std::uint64_t said = at(place).load();
    if (!concerns(said, of)) continue;
    while (at(place).load() == said) {
      const verdict next = judge(read(said));
      if (next == verdict::give_up) return false;
      if (next == verdict::disbelieve) break;
    }
  }
  return true;
}

}  // namespace softverbs
