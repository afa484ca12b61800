// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/config.hpp>
#include <verbspp/base/detail/owned.hpp>
#include <verbspp/base/result.hpp>
#include <verbspp/core/detail/memory_guard.hpp>
#include <verbspp/core/detail/open_scopes.hpp>
#include <verbspp/core/detail/request.hpp>
#include <verbspp/memory/detail/memory_keeper.hpp>
#include <verbspp/work/work_error.hpp>

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace verbspp::detail {

/// Records which requests in one connection's send queue have failed, for handles that still exist.
struct lost_sends {
  static constexpr std::uint64_t none = ~std::uint64_t{0};
  std::uint64_t first = none;
  std::uint64_t end = none;   ///< the first number of the next connection; set when it begins
  std::uint64_t root = none;  ///< the request that failed by itself; the others were flushed
  std::uint32_t status = 0;
  std::uint32_t vendor_code = 0;
  std::uint32_t queue_pair = 0;
  // The range that the last search of `scope_of` has ruled out: no request with a number from
  // `search_first` up to, but not including, `search_end` is recorded as the last of a run.
  std::uint64_t search_first = 0;
  std::uint64_t search_end = 0;
  owned<lost_sends> earlier{};

  lost_sends() noexcept = default;
  lost_sends(const lost_sends&) = delete;
  lost_sends& operator=(const lost_sends&) = delete;
  /// Destroys the records of earlier connections in a loop, not recursively: a channel may have
  /// been renewed a million times.
  ~lost_sends() {
    while (earlier) earlier = std::move(earlier->earlier);
  }
  [[nodiscard]] work_error error_of(const request& one) const noexcept;
};

/// The requests of a channel's send queue.
///
/// Requests are numbered in the order in which they are posted, which is also the order in which
/// they finish. So all requests with numbers below `completed` have finished, whether they are
/// signaled or not, and no other information is needed for requests that succeed. A failure ends
/// the connection, so it is enough to record the number of the first failed request. Three kinds of
/// requests have a record: those that keep memory, those that are noted to have no handle, and the
/// last request of each run of a scope (see `scope_state`) except its latest run.
class send_window {
 public:
  send_window() noexcept = default;
  send_window(const send_window&) = delete;
  send_window& operator=(const send_window&) = delete;

  // Capacity.

  /// Allocates the records. \pre the capacity is set
  [[nodiscard]] result<void> allocate() noexcept;
  /// The number of places that the memory guard has for the send queue: twice the capacity of the
  /// first connection, rounded up to a power of 2, and at least 2.
  [[nodiscard]] std::size_t places() const noexcept { return mask_ + 1; }
  [[nodiscard]] std::size_t place_of(std::uint64_t number) const noexcept {
    return static_cast<std::size_t>(number & mask_);
  }
  /// The number of requests that the send queue can hold.
  [[nodiscard]] std::uint32_t capacity() const noexcept { return capacity_; }
  void set_capacity(std::uint32_t requests) noexcept;

  /// Accepts requests from now on.
  void open() noexcept;
  /// Accepts no more requests.
  void close() noexcept;
  [[nodiscard]] VERBSPP_DATA_PATH bool is_open() const noexcept { return is_open_; }

  // Posting.

  /// The number of the next request.
  [[nodiscard]] VERBSPP_DATA_PATH std::uint64_t next() const noexcept { return next_; }
  [[nodiscard]] VERBSPP_DATA_PATH bool has_room() const noexcept { return next_ < end_; }
  [[nodiscard]] VERBSPP_DATA_PATH std::uint64_t room() const noexcept {
    return has_room() ? end_ - next_ : 0;
  }
  /// True if a caller need not wait before it posts this number of requests: the queue has room for
  /// them, or never will, so that posting fails immediately.
  [[nodiscard]] VERBSPP_DATA_PATH bool need_not_wait(std::uint32_t requests = 1) const noexcept {
    return room() >= requests || !is_open() || requests > capacity_;
  }
  /// Counts `count` requests that were posted in `scope`, or in no scope if it is null.
  VERBSPP_DATA_PATH void advance(std::uint32_t count, scope_state* scope) noexcept {
    if (scope != nullptr) {
      if (scope->sends_end != next_) [[unlikely]]
        begin_run(*scope);
      scope->sends_end = next_ + count;
    }
    next_ += count;
  }
  /// Makes a posted request keep this memory alive until the request has finished.
  VERBSPP_DATA_PATH void keep(std::uint64_t number, const kept_memory& memory) noexcept {
    records_[place_of(number)].memory = memory;
    ++care_;
  }

  /// Records that an outstanding request has no handle, or no longer has one.
  void note_unheld(std::uint64_t number) noexcept;
  /// Like `keep`, for the request that was posted last, which has no handle.
  VERBSPP_DATA_PATH void keep_unheld(std::uint64_t number, const kept_memory& memory) noexcept {
    record& posted = records_[place_of(number)];
    posted.memory = memory;
    posted.unheld = number;
    unheld_end_ = number + 1;
    ++care_;
  }
  /// The number of outstanding requests that are noted to have no handle.
  [[nodiscard]] std::uint32_t unheld() const noexcept;

  // Streams, which post unsignaled requests.

  /// True if the last `count` requests that were posted may all be unsignaled, so that the next one
  /// has to be signaled.
  [[nodiscard]] VERBSPP_DATA_PATH bool may_have_unsignaled(std::uint64_t count) const noexcept {
    return signaled_end_ + count <= next_;
  }
  /// Records that a stream has begun, or has posted a signaled request.
  VERBSPP_DATA_PATH void note_signaled() noexcept { signaled_end_ = next_; }
  /// The number that was next when `note_signaled` or `open` was last called.
  [[nodiscard]] std::uint64_t signaled_end() const noexcept { return signaled_end_; }
  /// The largest value of `stream_options::signal_every`: half the queue, rounded up. The rest
  /// stays available until the signaled request completes.
  [[nodiscard]] std::uint32_t longest_unsignaled() const noexcept { return (capacity_ + 1) / 2; }

  // Completions.

  /// The lowest number of a request that has not finished.
  [[nodiscard]] VERBSPP_DATA_PATH std::uint64_t completed() const noexcept { return completed_; }
  [[nodiscard]] std::uint32_t outstanding() const noexcept {
    return static_cast<std::uint32_t>(next_ - completed_);
  }
  /// True if a completion requires more than counting.
  [[nodiscard]] VERBSPP_DATA_PATH bool needs_care() const noexcept { return care_ != 0; }
  /// Makes `needs_care` true until the channel is destroyed.
  void need_care() noexcept { ++care_; }
  /// Completes all requests up to the one with this `wr_id`. \pre `needs_care` is false
  VERBSPP_DATA_PATH void complete_plainly(std::uint64_t wr_id) noexcept {
    const std::uint32_t earlier = distance_to(wr_id);
    if (is_new(earlier)) [[likely]] {
      completed_ = succeeded_ = completed_ + earlier + 1;
      end_ = completed_ + usable_;
    }
  }
  /// Completes all requests up to the one with this `wr_id`, and releases the memory that those
  /// requests keep.
  void complete(std::uint64_t wr_id, memory_guard& guard) noexcept {
    const std::uint32_t earlier = distance_to(wr_id);
    if (is_new(earlier)) complete_until(completed_ + earlier + 1, guard);
  }
  /// Completes the oldest request in flight, and releases its memory, if this is its `wr_id`, and
  /// the status reports success. \returns false, and does nothing, otherwise \pre results are not
  /// suspect; memory is neither guarded nor lost
  [[nodiscard]] VERBSPP_DATA_PATH bool complete_next(std::uint64_t wr_id,
                                                     std::uint32_t status) noexcept {
    assert(!is_suspect());
    // The status of a success is 0, so one branch tests both numbers.
    if ((distance_to(wr_id) | status) != 0) [[unlikely]]
      return false;
    kept_memory& kept = records_[place_of(completed_)].memory;
    succeeded_ = ++completed_;
    end_ = completed_ + usable_;
    if (kept.keeper != nullptr) {
      --care_;
      kept.let_go();
    }
    return true;
  }
  /// Completes all requests whose numbers are below `number`. \pre `number` >= `completed`
  void complete_until(std::uint64_t number, memory_guard& guard) noexcept {
    if (care_ != 0) [[unlikely]]
      release_memory(number, guard);
    set_completed(number);
  }

  // Results.

  [[nodiscard]] VERBSPP_DATA_PATH bool is_done(std::uint64_t number) const noexcept {
    return number < completed_;
  }
  /// True if the request is certain to have succeeded; false if it is outstanding, or results are
  /// suspect.
  [[nodiscard]] VERBSPP_DATA_PATH bool has_succeeded(std::uint64_t number) const noexcept {
    return number < succeeded_;
  }
  /// True if each result has to be looked up: handles may belong to failed requests, or the channel
  /// was destroyed.
  [[nodiscard]] VERBSPP_DATA_PATH bool is_suspect() const noexcept { return succeeded_ == 0; }
  void set_suspect(bool is_suspect) noexcept;

  /// Begins a connection.
  /// \param has_handles true if inboxes, scopes, or handles of earlier connections exist
  /// \param has_send_handles true if some of these handles belong to requests in the send queue, so
  /// that failures have to be kept for those handles
  [[nodiscard]] result<void> begin_connection(bool has_handles, bool has_send_handles) noexcept;
  void set_queue_pair(std::uint32_t number) noexcept { lost_->queue_pair = number; }
  /// Forgets the failures of earlier connections.
  void forget_earlier() noexcept { lost_->earlier = {}; }
  /// Records that this request, and all later ones of the connection, have failed.
  void fail(std::uint64_t number, std::uint32_t status, std::uint32_t vendor_code) noexcept;
  /// Returns the record of failed requests that includes this request; null if the request has
  /// succeeded.
  [[nodiscard]] const lost_sends* failure_of(std::uint64_t number) const noexcept;
  /// The number of connections whose failures are kept, including the current one.
  [[nodiscard]] std::uint32_t kept_connections() const noexcept;
  [[nodiscard]] bool is_of_this_connection(const lost_sends& lost) const noexcept {
    return &lost == lost_.get();
  }
  /// The scope of an outstanding request; null if it has none.
  [[nodiscard]] scope_state* scope_of(std::uint64_t number,
                                      const open_scopes& scopes) const noexcept;

 private:
  /// The record of one request. Slots in the ring are reused, so `scope` and `run_first` are stale
  /// if `number` differs from the request's number. The size is a power of 2, so that a record is
  /// found by a shift instead of a multiplication.
  struct alignas(64) record {
    std::uint64_t number = 0;
    scope_state* scope = nullptr;  ///< the scope that has a run ending with this request, if any
    std::uint64_t run_first = 0;
    std::uint64_t unheld = 0;  ///< the last request in this slot that was noted to have no handle
    kept_memory memory{};      ///< has no keeper unless a request in flight keeps memory
  };

  [[nodiscard]] VERBSPP_DATA_PATH std::uint32_t distance_to(std::uint64_t wr_id) const noexcept {
    return static_cast<std::uint32_t>(wr_id) - static_cast<std::uint32_t>(completed_);
  }
  /// False for a request that has already been completed, such as a request to one of the channel's
  /// earlier queue pairs.
  [[nodiscard]] VERBSPP_DATA_PATH static bool is_new(std::uint32_t distance) noexcept {
    return static_cast<std::int32_t>(distance) >= 0;
  }
  void begin_run(scope_state& scope) noexcept;
  VERBSPP_DATA_PATH void set_completed(std::uint64_t number) noexcept {
    completed_ = number;
    if (!is_suspect()) succeeded_ = number;
    end_ = number + usable_;
  }
  /// Ends the use of memory by a finished request.
  VERBSPP_DATA_PATH void release_memory_of(std::uint64_t number, memory_guard& guard) noexcept {
    if (guard.is_active()) [[unlikely]]
      guard.show(place_of(number));
    kept_memory& kept = records_[place_of(number)].memory;
    if (kept.keeper == nullptr) return;
    --care_;
    kept_memory memory = std::exchange(kept, {});
    guard.release(memory);
  }
  void release_memory(std::uint64_t end, memory_guard& guard) noexcept;

  std::uint64_t next_ = 1;
  std::uint64_t end_ = 1;  ///< the first request number for which there is no room
  std::uint64_t completed_ = 1;
  std::uint64_t succeeded_ = 1;     ///< like `completed_`, but 0 while results are suspect
  std::uint64_t signaled_end_ = 1;  ///< valid while streams are open
  std::uint64_t usable_ = 0;        ///< the capacity while the queue is open, else 0
  std::uint32_t care_ = 0;          ///< the number of reasons for `needs_care`
  std::uint32_t capacity_ = 0;
  bool is_open_ = false;
  record* records_ = nullptr;  ///< a ring, indexed by the lower bits of request numbers
  std::uint64_t mask_ = 0;
  /// All runs that are recorded in `records_` consist of requests with numbers below this one.
  std::uint64_t runs_end_ = 0;
  std::uint64_t unheld_end_ = 0;  ///< all numbers that are recorded as `unheld` are lower
  owned<record[]> records_owner_{};
  /// The failed requests of the current connection, linked to those of earlier connections.
  owned<lost_sends> lost_{};
};

}  // namespace verbspp::detail
