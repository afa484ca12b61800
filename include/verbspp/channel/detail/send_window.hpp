// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/config.hpp>
#include <verbspp/base/detail/owned.hpp>
#include <verbspp/base/result.hpp>
#include <verbspp/channel/detail/memory_guard.hpp>
#include <verbspp/channel/detail/open_scopes.hpp>
#include <verbspp/channel/detail/request.hpp>
#include <verbspp/memory/detail/memory_keeper.hpp>
#include <verbspp/work/work_error.hpp>

#include <cstddef>
#include <cstdint>

namespace verbspp::detail {

/// Which requests of the send queue a connection has lost, for handles that still exist.
struct lost_sends {
  static constexpr std::uint64_t none = ~std::uint64_t{0};
  std::uint64_t first = none;
  std::uint64_t end = none;   ///< of a connection that was renewed
  std::uint64_t root = none;  ///< the one that failed by itself; the others were flushed
  std::uint32_t status = 0;
  std::uint32_t vendor_code = 0;
  std::uint32_t queue_pair = 0;
  owned<lost_sends> earlier{};

  [[nodiscard]] work_error error_of(const request& one) const noexcept;
};

/// The requests of a channel's send queue.
///
/// They finish in the order in which they were posted, so each is a number: those below `completed`
/// have finished, whether they were signaled or not. A success tells no more than that. A failure
/// ends the connection, so it is enough to know from which number on requests have failed. Only a
/// request that keeps memory, or is the last one of a run of its scope that something else follows,
/// has a record.
class send_window {
 public:
  send_window() noexcept = default;
  send_window(const send_window&) = delete;
  send_window& operator=(const send_window&) = delete;

  // How much it takes.

  /// Makes room for the records, and what else there is of each number.
  [[nodiscard]] result<void> allocate() noexcept;
  /// How many numbers have a place of their own.
  [[nodiscard]] std::size_t places() const noexcept { return mask_ + 1; }
  [[nodiscard]] std::size_t place_of(std::uint64_t number) const noexcept {
    return static_cast<std::size_t>(number & mask_);
  }
  /// How many requests the send queue holds.
  [[nodiscard]] std::uint32_t capacity() const noexcept { return capacity_; }
  void set_capacity(std::uint32_t requests) noexcept;

  /// Takes requests from now on.
  void open() noexcept;
  /// Takes none any more.
  void close() noexcept;
  [[nodiscard]] VERBSPP_DATA_PATH bool is_open() const noexcept { return is_open_; }

  // Posting.

  /// The number of the next request.
  [[nodiscard]] VERBSPP_DATA_PATH std::uint64_t next() const noexcept { return next_; }
  [[nodiscard]] VERBSPP_DATA_PATH bool has_room() const noexcept { return next_ < end_; }
  [[nodiscard]] VERBSPP_DATA_PATH std::uint64_t room() const noexcept {
    return has_room() ? end_ - next_ : 0;
  }
  /// So many requests were posted.
  VERBSPP_DATA_PATH void advance(std::uint32_t count, scope_state* scope) noexcept {
    if (scope != nullptr) {
      if (scope->sends_end != next_) [[unlikely]]
        begin_run(*scope);
      scope->sends_end = next_ + count;
    }
    next_ += count;
  }
  /// The request of that number, which was posted, keeps this memory.
  VERBSPP_DATA_PATH void keep(std::uint64_t number, const kept_memory& memory) noexcept {
    record_of(number).memory = memory;
    ++care_;
  }

  // Streams, which post unsignaled requests.

  /// Whether so many requests at the end, or more, may be unsignaled.
  [[nodiscard]] VERBSPP_DATA_PATH bool may_have_unsignaled(std::uint64_t count) const noexcept {
    return signaled_end_ + count <= next_;
  }
  /// A stream has posted a signaled request, or begins.
  VERBSPP_DATA_PATH void note_signaled() noexcept { signaled_end_ = next_; }
  /// One more than the number of the last signaled request of a stream.
  [[nodiscard]] std::uint64_t signaled_end() const noexcept { return signaled_end_; }
  /// How many requests may follow each other unsignaled: half a queue, so that the other half is
  /// there while the signal is on its way.
  [[nodiscard]] std::uint32_t longest_unsignaled() const noexcept { return (capacity_ + 1) / 2; }

  // Completing.

  /// The lowest number that has not been found finished.
  [[nodiscard]] VERBSPP_DATA_PATH std::uint64_t completed() const noexcept { return completed_; }
  [[nodiscard]] std::uint32_t outstanding() const noexcept {
    return static_cast<std::uint32_t>(next_ - completed_);
  }
  /// Whether completions need more than the counting of numbers.
  [[nodiscard]] VERBSPP_DATA_PATH bool needs_care() const noexcept { return care_ != 0; }
  /// They do from now on, for as long as the channel is there.
  void need_care() noexcept { ++care_; }
  /// All up to the request of that `wr_id` have finished. \pre `needs_care` is false
  VERBSPP_DATA_PATH void complete_plainly(std::uint64_t wr_id) noexcept {
    const std::uint32_t earlier = distance_to(wr_id);
    if (is_new(earlier)) [[likely]] {
      completed_ = succeeded_ = completed_ + earlier + 1;
      end_ = completed_ + usable_;
    }
  }
  /// The same in any case.
  void complete(std::uint64_t wr_id, memory_guard& guard) noexcept {
    const std::uint32_t earlier = distance_to(wr_id);
    if (is_new(earlier)) complete_until(completed_ + earlier + 1, guard);
  }
  /// All below that number have finished. \pre it is not below `completed`
  void complete_until(std::uint64_t number, memory_guard& guard) noexcept {
    if (care_ != 0) [[unlikely]]
      give_back_memory(number, guard);
    completed_ = number;
    if (!is_suspect()) succeeded_ = number;
    end_ = number + usable_;
  }

  // What came of a request.

  [[nodiscard]] VERBSPP_DATA_PATH bool is_done(std::uint64_t number) const noexcept {
    return number < completed_;
  }
  /// Whether it is done, and nothing more is to be known than that it has succeeded.
  [[nodiscard]] VERBSPP_DATA_PATH bool has_succeeded(std::uint64_t number) const noexcept {
    return number < succeeded_;
  }
  /// Whether there may be more to know of each result: handles may be of requests that have failed,
  /// or the channel is gone.
  [[nodiscard]] VERBSPP_DATA_PATH bool is_suspect() const noexcept { return succeeded_ == 0; }
  void set_suspect(bool is_suspect) noexcept;

  /// The requests of a new connection begin. \param has_handles whether those of the one before can
  /// be asked for
  [[nodiscard]] result<void> begin_connection(bool has_handles) noexcept;
  void set_queue_pair(std::uint32_t number) noexcept { lost_->queue_pair = number; }
  /// Of connections before this one nobody will ask.
  void forget_earlier() noexcept { lost_->earlier = {}; }
  /// The request has failed, and so will all behind it.
  void fail(std::uint64_t number, std::uint32_t status, std::uint32_t vendor_code) noexcept;
  /// What was lost with it, if it has failed; null if it has succeeded.
  [[nodiscard]] const lost_sends* failure_of(std::uint64_t number) const noexcept;
  [[nodiscard]] bool is_of_this_connection(const lost_sends& lost) const noexcept {
    return &lost == lost_.get();
  }
  /// The scope of a request that is on its way; null if it has none.
  [[nodiscard]] scope_state* scope_of(std::uint64_t number,
                                      const open_scopes& scopes) const noexcept;

 private:
  /// Of another number, it is an old one.
  struct record {
    std::uint64_t number = 0;
    scope_state* scope = nullptr;  ///< of the run that ends here; null: none
    std::uint64_t run_first = 0;
    kept_memory memory{};
  };

  [[nodiscard]] VERBSPP_DATA_PATH record& record_of(std::uint64_t number) noexcept {
    record& noted = records_[place_of(number)];
    if (noted.number != number) noted = {.number = number};
    return noted;
  }
  [[nodiscard]] VERBSPP_DATA_PATH std::uint32_t distance_to(std::uint64_t wr_id) const noexcept {
    return static_cast<std::uint32_t>(wr_id) - static_cast<std::uint32_t>(completed_);
  }
  /// Not so of a request that a queue pair had which the channel had before.
  [[nodiscard]] VERBSPP_DATA_PATH static bool is_new(std::uint32_t distance) noexcept {
    return static_cast<std::int32_t>(distance) >= 0;
  }
  void begin_run(scope_state& scope) noexcept;
  void give_back_memory(std::uint64_t end, memory_guard& guard) noexcept;

  std::uint64_t next_ = 1;
  std::uint64_t end_ = 1;  ///< the first number that there is no room for
  std::uint64_t completed_ = 1;
  std::uint64_t succeeded_ = 1;     ///< the same, but 0 while results are suspect
  std::uint64_t signaled_end_ = 1;  ///< while streams are open
  std::uint64_t usable_ = 0;        ///< how many it takes; 0 while it is closed
  std::uint32_t care_ = 0;          ///< requests that keep memory, and other reasons for care
  std::uint32_t capacity_ = 0;
  bool is_open_ = false;
  record* records_ = nullptr;  ///< a ring, at the numbers' lower bits
  std::uint64_t mask_ = 0;
  std::uint64_t runs_end_ = 0;  ///< one more than the last number whose record ends a run
  owned<record[]> records_owner_{};
  owned<lost_sends> lost_{};  ///< of this connection, and of those before it
};

}  // namespace verbspp::detail
