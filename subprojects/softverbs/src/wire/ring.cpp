// SPDX-License-Identifier: Apache-2.0
#include "wire/ring.hpp"

#include <algorithm>

namespace softverbs {
namespace {

/// A writer that waits for room gets a notice only when this many bytes are free, because each
/// notice costs system calls.
constexpr std::size_t worth_telling = ring_end::data_bytes / 2;

}  // namespace

ring_end::ring_end(std::span<std::byte> memory) noexcept
    : state_(*reinterpret_cast<ring_state*>(memory.data())), data_(memory.data() + state_bytes) {}

bool ring_writer::fits(std::size_t length) noexcept {
  const std::size_t step = step_of(length);
  const std::size_t left = left_at(position_);
  const std::size_t needed = step <= left ? step : left + step;
  // `emptied_` is valid unless the ring is broken.
  if (!broken_ && needed <= data_bytes - (position_ - emptied_)) return true;
  emptied_ = state_.emptied.load();
  broken_ = broken_ || position_ - emptied_ > data_bytes;
  return !broken_ && needed <= data_bytes - (position_ - emptied_);
}

std::byte* ring_writer::prepare(std::size_t length) noexcept {
  if (!fits(length)) {
    // Either the reader sees this flag after it made room, or this end sees the room now.
    state_.writer_waits.store(1);
    if (!fits(length)) return nullptr;
    stop_waiting();
  }
  prepared_ = length;
  const std::size_t left = left_at(position_);
  return at(step_of(length) <= left ? position_ : position_ + left) + sizeof(std::uint64_t);
}

bool ring_writer::publish() noexcept {
  const std::size_t step = step_of(prepared_);
  const std::size_t left = left_at(position_);
  if (step > left) {
    length_at(at(position_)).store(rest_is_empty, std::memory_order_relaxed);
    position_ += left;
  }
  length_at(at(position_)).store(static_cast<std::uint32_t>(prepared_), std::memory_order_relaxed);
  position_ += step;
  state_.filled.store(position_);
  return state_.reader_sleeps.load() != 0 && state_.reader_sleeps.exchange(0) != 0;
}

bool ring_writer::has_room() noexcept {
  emptied_ = state_.emptied.load();
  broken_ = broken_ || position_ - emptied_ > data_bytes;
  return broken_ || position_ - emptied_ <= data_bytes - worth_telling;
}

std::span<const std::byte> ring_reader::next(bool& open) noexcept {
  for (bool skipped = false;; skipped = true) {
    const std::uint64_t used = filled() - position_;
    open = !skipped || used != 0;
    if (used == 0) return {};
    const std::size_t left = left_at(position_);
    open = used <= data_bytes && used % line == 0;
    if (!open) return {};
    std::byte* const message = at(position_);
    const std::uint32_t length = length_at(message).load(std::memory_order_relaxed);
    if (length == rest_is_empty) {
      open = !skipped && left < used;
      if (!open) return {};
      position_ += left;
      continue;
    }
    open = length != 0 && step_of(length) <= std::min<std::uint64_t>(used, left);
    if (!open) return {};
    position_ += step_of(length);
    return {message + sizeof(std::uint64_t), length};
  }
}

bool ring_reader::release() noexcept {
  state_.emptied.store(position_);
  if (state_.writer_waits.load() == 0) return false;
  return filled() - position_ <= data_bytes - worth_telling && state_.writer_waits.exchange(0) != 0;
}

bool ring_reader::sleep() noexcept {
  state_.reader_sleeps.store(1);
  if (is_empty()) return true;
  wake();
  return false;
}

void ring_reader::end() noexcept {
  if (ended_) return;
  end_ = state_.filled.load();
  ended_ = true;
}

}  // namespace softverbs
