// SPDX-License-Identifier: Apache-2.0
/// \file
/// Bookkeeping for the owner of a queue pair and its completion queue. It determines, without
/// calling the driver, whether there is room, and when a request must be signaled.
#pragma once

#include <verbspp/base/result.hpp>

#include <cassert>
#include <cstdint>
#include <optional>

namespace verbspp {

/// Counts the free places in a send queue. A request occupies one place.
///
/// A request's place becomes free again when its own completion, or the completion of a later
/// signaled request, has been polled. Until then, even an unsignaled request occupies the queue. A
/// queue with only unsignaled requests would remain full forever, so this class determines when a
/// request must be signaled.
///
///     const auto ticket = room.take(request.signaled);
///     if (!ticket) ...                        // full: poll completions first
///     request.signaled = ticket->signaled;    // may be true although it was not requested
///     ... post; if that fails: room.give_back(*ticket)
///     ... store ticket->position with the request; after its completion has been polled:
///     room.completed(position);
///
/// Plain counters: no allocation, no lock. Thread rule: one thread at a time.
class send_queue_accounting {
 public:
  /// For a queue with this granted capacity (`queue_pair::capacities`).
  constexpr explicit send_queue_accounting(std::uint32_t capacity) noexcept
      : capacity_(capacity), longest_unsignaled_((capacity + 1) / 2) {}

  struct ticket {
    std::uint64_t position;  ///< the number of the request; the first is 0
    bool signaled;           ///< true if the request must be signaled
    /// Used by `give_back`: the position after the last signaled request before this one.
    std::uint64_t signaled_before;
  };

  /// Reserves a place for the next request. The result is empty if the queue is full.
  [[nodiscard]] constexpr std::optional<ticket> take(bool signaled) noexcept {
    if (is_full()) return std::nullopt;
    const std::uint64_t position = posted_++;
    // If this request and the unsignaled requests before it fill half of the queue, this request
    // has to be signaled. So a full queue has a signaled request, whose completion frees places.
    const bool must = position - signaled_up_to_ + 1 >= longest_unsignaled_;
    const ticket made{
        .position = position, .signaled = signaled || must, .signaled_before = signaled_up_to_};
    if (made.signaled) signaled_up_to_ = position + 1;
    return made;
  }
  /// Undoes the last `take`, for a request that could not be posted. If several could not be
  /// posted, return their tickets in reverse order.
  constexpr void give_back(const ticket& last) noexcept {
    assert(last.position + 1 == posted_ && "only the ticket that was taken last can be returned");
    --posted_;
    signaled_up_to_ = last.signaled_before;
  }
  /// Records that the completion of the request at this position has been polled, which means that
  /// this and all previous requests have finished.
  constexpr void completed(std::uint64_t position) noexcept {
    assert(position < posted_ && "this request was never posted, or was posted before reset()");
    if (position >= done_) done_ = position + 1;
  }
  /// Forgets all requests. For use after the queue pair was reset or destroyed.
  constexpr void reset() noexcept { *this = send_queue_accounting(capacity_); }

  [[nodiscard]] constexpr bool is_full() const noexcept { return outstanding() >= capacity_; }
  /// The number of requests that occupy a place.
  [[nodiscard]] constexpr std::uint64_t outstanding() const noexcept { return posted_ - done_; }
  [[nodiscard]] constexpr std::uint32_t capacity() const noexcept { return capacity_; }

 private:
  std::uint32_t capacity_;
  std::uint32_t longest_unsignaled_;
  std::uint64_t posted_ = 0;
  std::uint64_t done_ = 0;
  std::uint64_t signaled_up_to_ = 0;  // the position after the last signaled request
};

/// Counts the free places in a completion queue, so that it cannot overrun. Reserve a place for
/// each request before it is posted, and release the place after its completion has been polled. An
/// unsignaled request needs a place, too, because it has a completion if it fails. Release its
/// place after the completion of a later request in the same send queue has been polled.
class completion_queue_accounting {
 public:
  /// For a queue with this granted capacity (`completion_queue::capacity`).
  constexpr explicit completion_queue_accounting(std::uint64_t capacity) noexcept
      : capacity_(capacity) {}

  /// Reserves places for `completions` more completions. If fewer places are free, returns false,
  /// and reserves none.
  [[nodiscard]] constexpr bool take(std::uint64_t completions = 1) noexcept {
    if (completions > capacity_ - expected_) return false;
    expected_ += completions;
    return true;
  }
  /// Releases places after their completions have been polled.
  constexpr void give_back(std::uint64_t completions = 1) noexcept {
    assert(completions <= expected_ && "more places are released than were reserved");
    expected_ -= completions;
  }
  /// The number of reserved places.
  [[nodiscard]] constexpr std::uint64_t expected() const noexcept { return expected_; }
  [[nodiscard]] constexpr std::uint64_t capacity() const noexcept { return capacity_; }

 private:
  std::uint64_t capacity_;
  std::uint64_t expected_ = 0;
};

}  // namespace verbspp
