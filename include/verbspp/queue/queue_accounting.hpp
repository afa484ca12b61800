// SPDX-License-Identifier: Apache-2.0
/// \file
/// What whoever owns a queue pair and its completion queue can know before the driver is asked:
/// whether there is room, and when a request has to be signaled.
#pragma once

#include <verbspp/base/result.hpp>

#include <cassert>
#include <cstdint>
#include <optional>

namespace verbspp {

/// The room in a send queue, counted.
///
/// A request's place is free again when its own completion, or that of a later signaled request,
/// has been taken: requests that are not signaled stay in the queue until then. So a queue of
/// unsignaled ones would fill up for ever; this says when one has to be signaled.
///
///     const auto ticket = room.take(request.signaled);
///     if (!ticket) ...                        // full: take completions first
///     request.signaled = ticket->signaled;    // perhaps although it was not asked for
///     ... post; if that fails: room.give_back(*ticket)
///     ... keep ticket->position with the request; when its completion has come:
///     room.completed(position);
///
/// Plain counters: no allocation, no lock. Thread rule: one thread at a time.
class send_queue_accounting {
 public:
  /// For a queue of so many requests, as granted (`queue_pair::capacities`).
  constexpr explicit send_queue_accounting(std::uint32_t capacity) noexcept
      : capacity_(capacity), longest_unsignaled_((capacity + 1) / 2) {}

  struct ticket {
    std::uint64_t position;  ///< counts the requests from 0 on
    bool signaled;           ///< whether the request has to be signaled
  };

  /// A place for the next request; empty if the queue is full.
  [[nodiscard]] constexpr std::optional<ticket> take(bool signaled) noexcept {
    if (is_full()) return std::nullopt;
    const std::uint64_t position = posted_++;
    // Half a queue of unsignaled requests leaves the other half for while the signal is on its way.
    const bool must = position - signaled_up_to_ + 1 >= longest_unsignaled_;
    if (signaled || must) {
      before_last_signal_ = signaled_up_to_;
      signaled_up_to_ = position + 1;
    }
    return ticket{.position = position, .signaled = signaled || must};
  }
  /// Undoes the last `take`: its request was not posted.
  constexpr void give_back(const ticket& last) noexcept {
    assert(last.position + 1 == posted_ && "only the last ticket can be given back");
    --posted_;
    if (last.signaled) signaled_up_to_ = before_last_signal_;
  }
  /// The completion of the request at that position has been taken, so it and all before it are
  /// done.
  constexpr void completed(std::uint64_t position) noexcept {
    assert(position < posted_ && "this request was never posted");
    if (position >= done_) done_ = position + 1;
  }
  /// Everything is over, by whatever way: the queue pair was reset or destroyed.
  constexpr void reset() noexcept { *this = send_queue_accounting(capacity_); }

  [[nodiscard]] constexpr bool is_full() const noexcept { return outstanding() >= capacity_; }
  /// The requests that hold a place.
  [[nodiscard]] constexpr std::uint64_t outstanding() const noexcept { return posted_ - done_; }
  [[nodiscard]] constexpr std::uint32_t capacity() const noexcept { return capacity_; }

 private:
  std::uint32_t capacity_;
  std::uint32_t longest_unsignaled_;
  std::uint64_t posted_ = 0;
  std::uint64_t done_ = 0;
  std::uint64_t signaled_up_to_ = 0;      // the position after the last signaled request
  std::uint64_t before_last_signal_ = 0;  // the same before that one
};

/// The room in a completion queue, counted, so that it cannot overrun: each request that will have
/// a completion takes a place, and gives it back when the completion has been taken. An unsignaled
/// request takes one as well, since a failure completes it.
class completion_queue_accounting {
 public:
  /// For a queue of so many completions, as granted (`completion_queue::capacity`).
  constexpr explicit completion_queue_accounting(std::uint64_t capacity) noexcept
      : capacity_(capacity) {}

  /// True if there was room for so many more.
  [[nodiscard]] constexpr bool take(std::uint64_t completions = 1) noexcept {
    if (completions > capacity_ - expected_) return false;
    expected_ += completions;
    return true;
  }
  constexpr void give_back(std::uint64_t completions = 1) noexcept {
    assert(completions <= expected_ && "more completions than were expected");
    expected_ -= completions;
  }
  [[nodiscard]] constexpr std::uint64_t expected() const noexcept { return expected_; }
  [[nodiscard]] constexpr std::uint64_t capacity() const noexcept { return capacity_; }

 private:
  std::uint64_t capacity_;
  std::uint64_t expected_ = 0;
};

}  // namespace verbspp
