// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

namespace softverbs {

/// The positions of both ends of a ring, each word in its own cache line. The positions count bytes
/// since the start, and only increase.
struct ring_state {
  alignas(64) std::atomic<std::uint64_t> filled;   ///< bytes, set by the writer
  alignas(64) std::atomic<std::uint64_t> emptied;  ///< bytes, set by the reader
  /// Set by an end that waits for a notice from the other end, and cleared by either end.
  alignas(64) std::atomic<std::uint32_t> reader_sleeps;
  alignas(64) std::atomic<std::uint32_t> writer_waits;
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free &&
              std::atomic<std::uint32_t>::is_always_lock_free);

/// A ring of messages in memory that two ends share: one writes, and the other one reads. Neither
/// trusts the contents of the memory; each keeps its own position privately.
///
/// A message consists of its length and its bytes, and starts at a cache line. Messages never wrap
/// around: if one doesn't fit before the end of the memory, a mark says that the rest is empty.
class ring_end {
 public:
  static constexpr std::size_t state_bytes = 4096;
  static constexpr std::size_t data_bytes = std::size_t{256} * 1024;
  static constexpr std::size_t bytes = state_bytes + data_bytes;

 protected:
  /// `memory` must initially be all zeros, and must stay mapped.
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

  /// Returns the place for the next message, or null if there is no room, or if the ring is
  /// `broken`. If there is no room, the reader has been asked to send a notice once half of the
  /// ring is free.
  std::byte* prepare(std::size_t length) noexcept;
  /// Publishes the prepared message to the reader. Returns true if the reader is asleep and needs a
  /// notice.
  bool publish() noexcept;

  /// True if enough space is free to continue writing, or if the reader's position is invalid.
  bool has_room() noexcept;
  void stop_waiting() noexcept { state_.writer_waits.store(0, std::memory_order_relaxed); }
  /// True if the reader has not read all messages.
  bool is_unread() const noexcept { return state_.emptied.load() != position_; }
  /// True if the reader's position is invalid.
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
  /// Returns the next message, or an empty one if there is none. Its contents may still change, so
  /// values must not be read twice. Sets `open` to false if the contents of the ring are invalid.
  std::span<const std::byte> next(bool& open) noexcept;
  /// Frees the space of the messages read so far. Returns true if the writer waits for space, and
  /// needs a notice.
  bool release() noexcept;

  /// Asks the writer for a notice about the next message; returns false if a message is available.
  bool sleep() noexcept;
  void wake() noexcept { state_.reader_sleeps.store(0, std::memory_order_relaxed); }

  /// Called after the writer has disconnected. Data that is added later is ignored.
  void end() noexcept;

 private:
  std::uint64_t filled() const noexcept { return ended_ ? end_ : state_.filled.load(); }

  bool ended_ = false;
  std::uint64_t end_ = 0;
};

}  // namespace softverbs
