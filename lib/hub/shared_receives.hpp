// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/result.hpp>
#include <verbspp/pool/detail/pool_places.hpp>
#include <verbspp/pool/message_pool.hpp>
#include <verbspp/queue/shared_receive_queue.hpp>

#include <cstdint>
#include <optional>
#include <utility>

#pragma GCC visibility push(hidden)

namespace verbspp::detail {

/// A shared receive queue whose receives fill places of a pool. There is no queue until `open`. The
/// hub's lock guards all members that change after that, unless the process has one thread.
///
/// This object is the user of the places to which the device may write (`pool_place::user`). The
/// destructor returns them to the pool once the queue is destroyed.
class shared_receives {
 public:
  shared_receives() noexcept = default;
  shared_receives(const shared_receives&) = delete;
  shared_receives& operator=(const shared_receives&) = delete;
  ~shared_receives();
  /// Creates the queue, for at most `depth` posted receives, and posts the first ones.
  [[nodiscard]] result<void> open(const protection_domain& domain, const message_pool& pool,
                                  std::uint32_t depth, std::uint32_t refill) noexcept;

  [[nodiscard]] bool is_open() const noexcept { return queue_.has_value(); }
  [[nodiscard]] const std::optional<shared_receive_queue>& queue() const noexcept { return queue_; }
  /// The places of the pool. \pre `is_open()`
  [[nodiscard]] pool_places& places() const noexcept { return *pool_->places(); }
  [[nodiscard]] bool has_pool(const message_pool& pool) const noexcept {
    return pool_ && pool_->places() == pool.places();
  }
  [[nodiscard]] std::uint32_t posted() const noexcept {
    return static_cast<std::uint32_t>(until_due_ + due_below_);
  }

  /// True if the queue has room for a batch of receives.
  [[nodiscard]] bool is_due() const noexcept { return until_due_ < 0; }
  /// Posts receives in batches while the queue has room for a batch, and the pool has free places.
  void refill() noexcept {
    if (is_due()) [[unlikely]]
      post();
  }
  /// Posts no more receives.
  void stop() noexcept { until_due_ += std::exchange(due_below_, 0); }
  /// The error of the last attempt to post, if no receive is posted.
  [[nodiscard]] std::optional<error> failure() const noexcept {
    return posted() == 0 ? failure_ : std::nullopt;
  }
  /// Counts receives that are no longer posted.
  void note_ended(int count) noexcept { until_due_ -= count; }

 private:
  /// \pre `is_due()`
  void post() noexcept;

  std::optional<message_pool> pool_{};
  std::optional<shared_receive_queue> queue_{};
  int due_below_ = 0;  ///< a batch is due while fewer receives are posted
  int until_due_ = 0;  ///< the number of posted receives, minus `due_below_`
  std::uint32_t refill_ = 0;
  std::optional<error> failure_{};
};

}  // namespace verbspp::detail

#pragma GCC visibility pop
