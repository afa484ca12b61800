// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/detail/owned.hpp>
#include <verbspp/base/result.hpp>
#include <verbspp/hub/detail/hub_reference.hpp>
#include <verbspp/pool/channel_id.hpp>
#include <verbspp/work/detail/wr_id.hpp>

#include <infiniband/verbs.h>

#include <bit>
#include <cassert>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <new>
#include <utility>

#pragma GCC visibility push(hidden)

namespace verbspp::detail {

inline constexpr const char* building_in_hub = "build a channel of a hub";

/// The part of a channel that its hub accesses. It has the completions that polls of the hub have
/// found for the channel, but that the channel has not processed yet.
///
/// Requests in the send queue complete in order, so the last one that has succeeded stands for
/// those before it. A ring buffer contains the other completions. It has room for one completion
/// for each request that can be outstanding, and for one failed shared receive. A thread that holds
/// the hub's lock adds completions; the channel removes them without the lock.
struct [[gnu::visibility("hidden")]] hub_member {
  /// Calls `take_sent` with the `wr_id` of the last successful request in the send queue, if that
  /// `wr_id` is new. Then calls `take` with each other completion, and removes that completion.
  /// Only the channel may call this. \returns true if there was a completion
  template <class TakeSent, class Take>
  [[nodiscard]] bool take_each(TakeSent take_sent, Take take) noexcept {
    // No request in the send queue succeeds after one has failed. So `sent_`, which is read after
    // `end_`, cannot include a request that follows a failure which `end` does not include yet.
    const std::uint32_t end = __atomic_load_n(&end_, __ATOMIC_ACQUIRE);
    const std::uint64_t sent = __atomic_load_n(&sent_, __ATOMIC_ACQUIRE);
    if (sent == taken_sent_ && first_ == end) return false;
    if (sent != taken_sent_) take_sent(taken_sent_ = sent);
    for (; first_ != end; __atomic_store_n(&first_, first_ + 1, __ATOMIC_RELEASE))
      take(completions_.get()[first_ & mask_]);
    return true;
  }

  /// True if the descriptor that the channel watches has had an event since the last call.
  [[nodiscard]] bool take_hang_up() noexcept {
    return __atomic_exchange_n(&is_hung_up_, false, __ATOMIC_RELAXED);
  }

  /// The alarm, which is the time at which the hub will report the channel; the maximum time point
  /// if no alarm is set.
  [[nodiscard]] std::chrono::steady_clock::time_point alarm() const noexcept {
    return std::chrono::steady_clock::time_point(
        std::chrono::nanoseconds(__atomic_load_n(&alarm_, __ATOMIC_ACQUIRE)));
  }

  hub_reference hub{};
  channel_id id{};
  /// Makes the channel process what the hub has found for it. The hub calls this when the channel
  /// has news.
  void (*poll_found)(hub_member& self) noexcept = nullptr;

 private:
  friend class hub_state;
  static constexpr std::int64_t no_alarm =
      (std::chrono::steady_clock::time_point::max)().time_since_epoch().count();

  /// Makes room for the completions of the given number of requests, and of a failed shared
  /// receive.
  [[nodiscard]] result<void> make_room(std::uint64_t requests) noexcept {
    const std::uint64_t length = std::bit_ceil(requests + 1);
    if (completions_ && length <= std::uint64_t{mask_} + 1) return success();
    owned<ibv_wc[]> longer(new (std::nothrow) ibv_wc[length]);
    if (!longer) return error::from_errno(ENOMEM, building_in_hub);
    assert(first_ == end_);
    completions_ = std::move(longer);
    mask_ = static_cast<std::uint32_t>(length - 1);
    return success();
  }
  void put(const ibv_wc& completion) noexcept {
    if (completion.status == IBV_WC_SUCCESS && !is_receive(completion.wr_id)) [[likely]]
      return __atomic_store_n(&sent_, completion.wr_id, __ATOMIC_RELEASE);
    assert(end_ - __atomic_load_n(&first_, __ATOMIC_ACQUIRE) <= mask_);
    completions_.get()[end_ & mask_] = completion;
    __atomic_store_n(&end_, end_ + 1, __ATOMIC_RELEASE);
  }

  // The members up to `mask_` change only under the hub's lock, except that `take_hang_up` clears
  // `is_hung_up_` without it.
  std::uint64_t expected_ = 0;  ///< the number of places reserved in the hub's queue
  bool knows_failure_ = false;  ///< true if a failed shared receive was passed to the channel
  std::int64_t alarm_ = no_alarm;

  bool is_hung_up_ = false;

  owned<ibv_wc[]> completions_{};  ///< a ring of `mask_ + 1` completions
  std::uint32_t mask_ = 0;
  alignas(64) std::uint32_t end_ = 0;
  std::uint64_t sent_ = 0;
  alignas(64) std::uint32_t first_ = 0;
  std::uint64_t taken_sent_ = 0;
};

}  // namespace verbspp::detail

#pragma GCC visibility pop
