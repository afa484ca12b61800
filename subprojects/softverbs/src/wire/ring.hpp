// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

namespace softverbs {

/// How far the ends of a ring are, each word on a cache line of its own. All numbers only grow.
struct ring_state {
  alignas(64) std::atomic<std::uint64_t> filled;   ///< bytes, by who writes
  alignas(64) std::atomic<std::uint64_t> emptied;  ///< bytes, by who reads
  /// Set by an end that sleeps until the other one sends a notice, and taken back by either.
  alignas(64) std::atomic<std::uint32_t> reader_sleeps;
  alignas(64) std::atomic<std::uint32_t> writer_waits;
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free &&
              std::atomic<std::uint32_t>::is_always_lock_free);

/// A ring of messages in memory that two processes share: one writes, the other one reads. Neither
/// believes what it finds there; each keeps its own position to itself.
///
/// A message is its length and its bytes, and starts at a cache line. It never wraps around: a mark
/// says that the rest is empty, up to the end.
class ring_end {
 public:
  static constexpr std::size_t state_bytes = 4096;
  static constexpr std::size_t data_bytes = std::size_t{256} * 1024;
  static constexpr std::size_t bytes = state_bytes + data_bytes;

 protected:
  /// All zeros at first; has to stay mapped.
  explicit ring_end(std::span<std::byte> memory) noexcept;

  static constexpr std::size_t line = 64;
  static constexpr std::uint32_t rest_is_empty = ~std::uint32_t{0};
  static constexpr std::size_t step_of(std::size_t length) noexcept {
    return (sizeof(std::uint64_t) + length + line - 1) / line * line;
  }
  std::byte* at(std::uint64_t position) const noexcept { return data_ + position % data_bytes; }
  static constexpr std::size_t left_at(std::uint64_t position) noexcept {
    return data_bytes - position % data_bytes;
  }
  static std::atomic_ref<std::uint32_t> length_at(std::byte* message) noexcept {
    return std::atomic_ref(*reinterpret_cast<std::uint32_t*>(message));
  }

  ring_state& state_;
  std::uint64_t position_ = 0;

 private:
  std::byte* data_;
};

class ring_writer : private ring_end {
 public:
  explicit ring_writer(std::span<std::byte> memory) noexcept : ring_end(memory) {}

  /// Where the next message goes, null if there is no room: then the reader was asked for a notice
  /// about that.
  std::byte* prepare(std::size_t length) noexcept;
  /// What was prepared can be read. True if the reader sleeps, and has to be told.
  bool publish() noexcept;

  /// Whether enough is free for it to be worth going on.
  bool has_room() noexcept;
  void stop_waiting() noexcept { state_.writer_waits.store(0, std::memory_order_relaxed); }
  /// Whether the reader has some left.
  bool is_unread() const noexcept { return state_.emptied.load() != position_; }
  /// What the reader says makes no sense.
  bool broken() const noexcept { return broken_; }

 private:
  bool fits(std::size_t length) noexcept;

  std::uint64_t emptied_ = 0;
  std::size_t prepared_ = 0;
  bool broken_ = false;
};

class ring_reader : private ring_end {
 public:
  explicit ring_reader(std::span<std::byte> memory) noexcept : ring_end(memory) {}

  bool is_empty() const noexcept { return position_ == filled(); }
  /// The next message, empty if there is none. What is in it may still change: nothing is to be
  /// believed that was read before. Not open any more if what was found makes no sense.
  std::span<const std::byte> next(bool& open) noexcept;
  /// Gives the room of those back. True if the writer waits for that, and has to be told.
  bool release() noexcept;

  /// Asks the writer for a notice about the next message; false if there is one.
  bool sleep() noexcept;
  void wake() noexcept { state_.reader_sleeps.store(0, std::memory_order_relaxed); }

  /// The writer is gone: what comes later isn't his.
  void end() noexcept;

 private:
  std::uint64_t filled() const noexcept { return ended_ ? end_ : state_.filled.load(); }

  bool ended_ = false;
  std::uint64_t end_ = 0;
};

}  // namespace softverbs
