// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/config.hpp>
#include <verbspp/base/detail/brief_lock.hpp>
#include <verbspp/base/detail/owned.hpp>
#include <verbspp/base/detail/single_threaded.hpp>
#include <verbspp/base/result.hpp>
#include <verbspp/memory/detail/memory_keeper.hpp>
#include <verbspp/memory/protection_domain.hpp>
#include <verbspp/memory/registered_buffer.hpp>
#include <verbspp/pool/channel_id.hpp>
#include <verbspp/work/work_completion.hpp>

#include <infiniband/verbs.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

namespace verbspp::detail {

/// The record of one place in a pool. The owner of the place accesses it without a lock; the pool
/// accesses it while the place is free, holding the pool's lock if there are several threads.
struct alignas(32) place_record {
  // Values of `next` that are not indexes of places.
  static constexpr std::uint32_t end_of_list = UINT32_MAX;
  static constexpr std::uint32_t taken = UINT32_MAX - 1;   ///< the place is owned
  static constexpr std::uint32_t filled = UINT32_MAX - 2;  ///< owned; `work` is its result

  /// The details of the request that has filled the place.
  [[nodiscard]] completed_work work() const noexcept {
    return {result.opcode, result.byte_count, flags, result.immediate};
  }
  /// Records the result of the request that has filled the place, and the channel that received the
  /// message.
  VERBSPP_DATA_PATH void fill(const ibv_wc& completion, channel_id receiver) noexcept {
    std::memcpy(&result, reinterpret_cast<const std::byte*>(&completion) + offsetof(ibv_wc, opcode),
                sizeof result);
    flags = completion.wc_flags;
    source = receiver;
    next = filled;
  }
  VERBSPP_DATA_PATH void fill(const completed_work& work) noexcept {
    result = {work.opcode_, 0, work.byte_count_, work.immediate_};
    flags = work.flags_;
    source = {};
    next = filled;
  }

  /// These members are adjacent in `ibv_wc` as well, and are copied together. `vendor_code` is
  /// there only for that.
  struct {
    std::uint32_t opcode;
    std::uint32_t vendor_code;
    std::uint32_t byte_count;
    __be32 immediate;
  } result{};
  channel_id source{};
  unsigned flags = 0;
  std::uint32_t next = taken;  ///< the next place in a list of free, posted or filled places
};
static_assert(offsetof(ibv_wc, byte_len) == offsetof(ibv_wc, opcode) + 8 &&
              offsetof(ibv_wc, imm_data) == offsetof(ibv_wc, opcode) + 12);

/// True if a receive has succeeded, and a send has filled its memory. A write with immediate data
/// also completes a receive, but does not fill its memory.
[[nodiscard]] VERBSPP_DATA_PATH bool is_message(const ibv_wc& completion) noexcept {
  // The two members are adjacent, and are compared as one number.
  constexpr std::array<std::uint32_t, 2> status_and_opcode{IBV_WC_SUCCESS, IBV_WC_RECV};
  std::uint64_t both = 0;
  std::memcpy(&both, reinterpret_cast<const std::byte*>(&completion) + offsetof(ibv_wc, status),
              sizeof both);
  return both == std::bit_cast<std::uint64_t>(status_and_opcode);
}
static_assert(offsetof(ibv_wc, opcode) == offsetof(ibv_wc, status) + 4 &&
              sizeof(ibv_wc::status) == 4 && sizeof(ibv_wc::opcode) == 4);

/// The registered places of a message pool. They exist until the last handle of the pool has been
/// destroyed, and the last place has returned. Thread-safe.
///
/// The free places form a list. Its first place is the one that was returned last, because that
/// place is the most likely to be in the cache.
class pool_places : public memory_keeper {
 public:
  /// The maximum number of places. Their indexes fit into the `wr_id` of a shared receive, and
  /// differ from the special values of `place_record::next`.
  static constexpr std::uint32_t most = 1U << 28;

  [[nodiscard]] static result<pool_places*> create(const protection_domain& domain,
                                                   std::uint32_t count, std::uint32_t size,
                                                   const buffer_options& options) noexcept;
  pool_places(const pool_places&) = delete;
  pool_places& operator=(const pool_places&) = delete;

  /// Counts a handle of the pool.
  void add_handle() noexcept {
    const brief_guard guard(lock_);
    ++handles_;
    ++uses_;
  }
  /// Removes a handle from the count. This may delete the places.
  void drop_handle() noexcept {
    lock_.lock();
    --handles_;
    const bool is_last = --uses_ == unused();
    lock_.unlock();
    if (is_last) destroy();
  }

  /// Takes a free place. \returns `place_record::end_of_list` if there is none
  [[nodiscard]] VERBSPP_DATA_PATH std::uint32_t take() noexcept {
    return needs_care() ? take_with_care() : unlist();
  }

  /// Takes up to `wanted` free places for receives, and calls `function(place, at(place))` for
  /// each. The places stay linked in the order of these calls; the last one stays linked to the
  /// rest of the free list. The program must not access them until `end_receive`. \returns the
  /// number of places taken
  template <class Function>
  [[nodiscard]] VERBSPP_DATA_PATH std::uint32_t take(std::uint32_t wanted,
                                                     Function function) noexcept {
    const brief_guard guard(lock_);
    // The values are read before the loop, since the compiler assumes that `function` changes them.
    const place_record* const records = records_;
    std::byte* const bytes = buffer_.data();
    const std::size_t distance = distance_;
    const std::uint32_t count = std::min(wanted, free_places());
    std::uint32_t place = first_;
    for (std::uint32_t left = count; left != 0; --left) {
      const std::uint32_t next = records[place].next;
      function(place, bytes + place * distance);
      place = next;
    }
    first_ = place;
    uses_ += count;
    return count;
  }
  /// Records that the receive of a place has ended: the program may access the place.
  VERBSPP_DATA_PATH void end_receive(std::uint32_t place) noexcept {
    if (is_watched_) [[unlikely]]
      show(place);
  }
  /// Returns a place to the pool. This may delete the places.
  VERBSPP_DATA_PATH void give_back(std::uint32_t place) noexcept {
    if (!is_single_threaded()) [[unlikely]]
      return give_back_with_care(place);
    if (list(place)) [[unlikely]]
      finish_giving_back(place);
  }

  /// Like `give_back`, for the place of a receive that has not filled it.
  void give_back_unfilled(std::uint32_t place) noexcept {
    record(place).next = place_record::taken;
    give_back(place);
  }

  [[nodiscard]] VERBSPP_DATA_PATH place_record& record(std::uint32_t place) noexcept {
    return records_[place];
  }

  [[nodiscard]] std::byte* at(std::uint32_t place) noexcept {
    return buffer_.data() + std::size_t{place} * distance_;
  }
  [[nodiscard]] ibv_sge element(std::uint32_t place, std::uint32_t length) noexcept {
    return {.addr = reinterpret_cast<std::uintptr_t>(at(place)), .length = length, .lkey = lkey_};
  }
  /// The place to which an element refers.
  [[nodiscard]] std::uint32_t place_of(const ibv_sge& element) const noexcept {
    const auto first = reinterpret_cast<std::uintptr_t>(buffer_.data());
    return static_cast<std::uint32_t>((element.addr - first) / distance_);
  }
  [[nodiscard]] std::uint32_t count() const noexcept { return count_; }
  [[nodiscard]] std::uint32_t place_size() const noexcept { return size_; }
  [[nodiscard]] std::uint32_t available() noexcept {
    const brief_guard guard(lock_);
    return free_places();
  }
  [[nodiscard]] const protection_domain& domain() const noexcept {
    return buffer_.protection_domain();
  }

 private:
  pool_places(registered_buffer<>&& buffer, owned<place_record[]>&& records, std::uint32_t count,
              std::uint32_t size, std::size_t distance) noexcept;
  ~pool_places();
  // Mark the bytes of a place for AddressSanitizer and Valgrind: `hide` forbids accesses, `show`
  // allows them.
  void hide(std::uint32_t place) noexcept;
  void show(std::uint32_t place) noexcept;

  /// True if other threads may use the pool, or if places have to be marked.
  [[nodiscard]] VERBSPP_DATA_PATH bool needs_care() const noexcept {
    return !is_single_threaded() || is_watched_;
  }
  // These functions are out of line, so that the inline functions are short and need no stack.
  [[nodiscard, gnu::noinline]] std::uint32_t take_with_care() noexcept;
  [[gnu::noinline]] void give_back_with_care(std::uint32_t place) noexcept;
  [[gnu::noinline]] void finish_giving_back(std::uint32_t place) noexcept;
  [[gnu::noinline]] void destroy() noexcept;
  /// The value of `uses_` when nothing uses the places. The highest bit of `uses_` is set in this
  /// case, and at all times if places have to be marked, so `list` needs only one test.
  [[nodiscard]] std::uint32_t unused() const noexcept {
    return is_watched_ ? 1U << 31 : UINT32_MAX;
  }

  // The following functions access the list of free places, and are called while the lock is held,
  // or while the process has only one thread.

  [[nodiscard]] std::uint32_t free_places() const noexcept {
    return count_ - (uses_ - unused() - handles_);
  }
  /// Removes the first place from the list. \returns `place_record::end_of_list` if there is none
  [[nodiscard]] VERBSPP_DATA_PATH std::uint32_t unlist() noexcept {
    const std::uint32_t place = first_;
    if (place != place_record::end_of_list) [[likely]] {
      first_ = std::exchange(record(place).next, place_record::taken);
      ++uses_;
    }
    return place;
  }
  /// Adds a place to the list. \returns true if nothing uses the places any more, or if places have
  /// to be marked
  [[nodiscard]] VERBSPP_DATA_PATH bool list(std::uint32_t place) noexcept {
    assert(place < count_ && record(place).next >= place_record::filled &&
           "a place was returned twice");
    record(place).next = first_;
    first_ = place;
    return static_cast<std::int32_t>(--uses_) < 0;
  }

  registered_buffer<> buffer_;
  std::uint32_t lkey_;
  std::uint32_t count_;
  std::uint32_t size_;  ///< the requested size of a place
  /// The distance in bytes between the starts of adjacent places; places never share a cache line.
  std::size_t distance_;
  bool is_watched_;
  place_record* records_;
  owned<place_record[]> records_owner_;

  // The lock guards the following members, and the records of free places.
  alignas(64) brief_lock lock_{};
  std::uint32_t first_ = 0;
  std::uint32_t handles_ = 1;
  std::uint32_t uses_ = unused() + 1;  ///< `unused()`, plus the number of handles and taken places
};

/// A message that was taken from a list or from a completion: the arguments of the constructor of
/// `message`. Without `places`, there is no message. A function returns this object in registers.
struct taken_place {
  pool_places* places = nullptr;
  std::uint32_t place = 0;
  std::uint32_t size = 0;
};

/// An ordered list of places that belong to one pool, and that contain messages or were posted for
/// receives. The places are linked through their records.
struct message_list {
  static constexpr std::uint32_t none = place_record::end_of_list;
  std::uint32_t first = none;
  std::uint32_t last = none;

  [[nodiscard]] VERBSPP_DATA_PATH bool is_empty() const noexcept { return first == none; }
  /// Appends a place.
  VERBSPP_DATA_PATH void append(pool_places& places, std::uint32_t place) noexcept {
    places.record(place).next = none;
    append_linked(places, {.first = place, .last = place});
  }
  void append(pool_places& places, const message_list& more) noexcept {
    if (!more.is_empty()) append_linked(places, more);
  }
  /// Removes and returns the first place, which contains a message. \pre the list is not empty
  [[nodiscard]] VERBSPP_DATA_PATH std::uint32_t take_first(pool_places& places) noexcept {
    const std::uint32_t place = unlink_first(places);
    places.record(place).next = place_record::filled;
    return place;
  }
  /// Removes and returns the first place, whose record still has to be updated. \pre the list is
  /// not empty
  [[nodiscard]] VERBSPP_DATA_PATH std::uint32_t unlink_first(pool_places& places) noexcept {
    const std::uint32_t place = first;
    first = places.record(place).next;
    return place;
  }

 private:
  VERBSPP_DATA_PATH void append_linked(pool_places& places, const message_list& more) noexcept {
    (is_empty() ? first : places.record(last).next) = more.first;
    last = more.last;
  }
};

}  // namespace verbspp::detail
