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

namespace verbspp::detail {

class pool_places;

/// One place of a pool. It is the request to receive a message into its memory, and the keeper of
/// this memory, so that a request refers to a place by one pointer. Free places, posted places and
/// messages that wait are linked through the requests (`next`).
///
/// The owner of a place accesses it without a lock; the pool accesses it while the place is free,
/// holding the pool's lock if there are several threads.
struct alignas(32) pool_place : ibv_recv_wr, memory_keeper {
  pool_place() noexcept;
  pool_place(const pool_place&) = delete;
  pool_place& operator=(const pool_place&) = delete;
  ~pool_place() = default;

  [[nodiscard]] VERBSPP_DATA_PATH pool_place* next_place() const noexcept {
    return static_cast<pool_place*>(next);
  }
  [[nodiscard]] std::byte* bytes() const noexcept {
    // NOLINTNEXTLINE(performance-no-int-to-ptr): elements have integer addresses
    return reinterpret_cast<std::byte*>(static_cast<std::uintptr_t>(memory.addr));
  }
  /// The first bytes of the place.
  [[nodiscard]] ibv_sge element(std::uint32_t length) const noexcept {
    return {.addr = memory.addr, .length = length, .lkey = memory.lkey};
  }
  /// The number of this place in its pool.
  [[nodiscard]] std::uint32_t number() const noexcept;

  /// Records the result of the request that has filled the place, and the channel that received the
  /// message.
  VERBSPP_DATA_PATH void fill(const ibv_wc& completion, channel_id receiver) noexcept {
    std::memcpy(&result, reinterpret_cast<const std::byte*>(&completion) + offsetof(ibv_wc, opcode),
                sizeof result);
    result.flags = completion.wc_flags;
    source = receiver;
    set_user(this);
  }
  VERBSPP_DATA_PATH void fill(const completed_work& work) noexcept {
    result = {work.opcode_, work.flags_, work.byte_count_, work.immediate_};
    source = {};
    set_user(this);
  }
  [[nodiscard]] bool is_filled() const noexcept { return user == this; }
  /// The details of the request that has filled the place.
  [[nodiscard]] completed_work work() const noexcept {
    return {result.opcode, result.byte_count, result.flags, result.immediate};
  }
  /// The size of the message that a receive has filled in.
  [[nodiscard]] VERBSPP_DATA_PATH std::uint32_t message_size() const noexcept {
    return work().bytes_filled(0);
  }

  /// Records that the receive of this place has ended: the program may access the place.
  void end_receive() noexcept;
  /// Returns the place to its pool. This may delete the pool's places.
  void give_back() noexcept;
  /// Like `give_back`, for the place of a receive that has not filled it.
  void give_back_unfilled() noexcept {
    set_user(nullptr);
    give_back();
  }

  /// Called by assertions only. \returns false if the place is free already
  [[nodiscard]] bool mark_free() noexcept {
    const bool was_taken = !has_user(pool);
    set_user(pool);
    return was_taken;
  }

  /// The `wr_id` of the place, except while an inbox has posted it: the complement of the address
  /// of the place. Its highest byte is 0xff, since that byte is 0 in the addresses of objects.
  VERBSPP_DATA_PATH void reset_wr_id() noexcept {
    wr_id = ~std::uint64_t{reinterpret_cast<std::uintptr_t>(this)};
  }

  // A queue that is destroyed looks for its places while other threads use the pool, so `user` is
  // accessed atomically.
  VERBSPP_DATA_PATH void set_user(const void* one) noexcept {
    __atomic_store_n(&user, one, __ATOMIC_RELAXED);
  }
  [[nodiscard]] bool has_user(const void* one) const noexcept {
    return __atomic_load_n(&user, __ATOMIC_RELAXED) == one;
  }

  ibv_sge memory{};  ///< all of the place's memory
  pool_places* pool = nullptr;
  /// These members are adjacent in `ibv_wc` too, except that it has the vendor code there instead
  /// of the flags. They are copied together.
  struct {
    std::uint32_t opcode;
    unsigned flags;
    std::uint32_t byte_count;
    __be32 immediate;
  } result{};
  channel_id source{};
  /// The shared receive queue to which the place is posted; the place itself if the program or the
  /// library owns it, and a request has filled it; null if they own it, and no request has. Any of
  /// the latter two, or the pool, while the place is free or posted by an inbox.
  const void* user = nullptr;
};
static_assert(sizeof(pool_place) == 96 || sizeof(void*) != 8);
static_assert(offsetof(ibv_wc, byte_len) == offsetof(ibv_wc, opcode) + 8 &&
              offsetof(ibv_wc, imm_data) == offsetof(ibv_wc, opcode) + 12);

/// An ordered list of places that contain messages, or whose receives are posted.
struct message_list {
  pool_place* first = nullptr;
  pool_place* last = nullptr;

  [[nodiscard]] VERBSPP_DATA_PATH bool is_empty() const noexcept { return first == nullptr; }
  /// Appends a place.
  VERBSPP_DATA_PATH void append(pool_place& place) noexcept {
    place.next = nullptr;
    append({.first = &place, .last = &place});
  }
  /// \pre `more` is not empty
  VERBSPP_DATA_PATH void append(const message_list& more) noexcept {
    if (is_empty())
      first = more.first;
    else
      last->next = more.first;
    last = more.last;
  }
  /// Removes and returns the first place. \pre the list is not empty
  [[nodiscard]] VERBSPP_DATA_PATH pool_place& take_first() noexcept {
    pool_place& place = *first;
    first = place.next_place();
    return place;
  }
  /// Removes the receives that a device has rejected, and returns their places to the pool.
  /// \param rejected the first one; if it is null, all of them were rejected
  /// \returns the number of receives that are left
  std::uint32_t drop_rejected(const ibv_recv_wr* rejected) noexcept;
};

/// The number of receives that are posted together to a queue of `depth` receives, if the program
/// asks for `wanted`.
[[nodiscard]] inline std::uint32_t refill_for(std::uint32_t depth, std::uint32_t wanted) noexcept {
  constexpr std::uint32_t largest = 64;
  return std::clamp(wanted, 1U, std::min(largest, std::max(depth / 2, 1U)));
}

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
class pool_places {
 public:
  /// The maximum number of places.
  static constexpr std::uint32_t most = 1U << 28;

  [[nodiscard]] static result<pool_places*> create(const protection_domain& domain,
                                                   std::uint32_t count, std::uint32_t size,
                                                   const buffer_options& options) noexcept;
  pool_places(const pool_places&) = delete;
  pool_places& operator=(const pool_places&) = delete;

  /// Counts a handle of the pool.
  void add_handle() noexcept {
    const brief_guard guard(lock_);
    ++all_taken_;
    ++uses_;
  }
  /// Removes a handle from the count. This may delete the places.
  void drop_handle() noexcept {
    lock_.lock();
    --all_taken_;
    const bool is_last = --uses_ == unused();
    lock_.unlock();
    if (is_last) destroy();
  }

  /// Takes a free place. \returns null if there is none
  [[nodiscard]] VERBSPP_DATA_PATH pool_place* take() noexcept {
    return needs_care() ? take_with_care() : unlist();
  }
  /// Takes up to `wanted` free places as a list of receives that can be posted. The program must
  /// not access them until `end_receive`. \param mark called as `mark(place)` for each place
  /// \returns the number of places taken
  template <class Mark>
  [[nodiscard]] VERBSPP_DATA_PATH std::uint32_t take(message_list& into, std::uint32_t wanted,
                                                     Mark mark) noexcept {
    const brief_guard guard(lock_);
    const std::uint32_t count = std::min(wanted, free_places());
    if (count == 0) return 0;
    pool_place* last = first_;
    mark(*last);
    for (std::uint32_t left = count - 1; left != 0; --left) {
      last = last->next_place();
      mark(*last);
    }
    into = {.first = first_, .last = last};
    first_ = last->next_place();
    last->next = nullptr;
    uses_ += count;
    return count;
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
  [[nodiscard]] pool_place& operator[](std::uint32_t number) noexcept {
    return places_.get()[number];
  }
  [[nodiscard]] std::uint32_t number_of(const pool_place& place) const noexcept {
    return static_cast<std::uint32_t>(&place - places_.get());
  }

 private:
  friend pool_place;

  pool_places(registered_buffer<>&& buffer, owned<pool_place[]>&& places, std::uint32_t count,
              std::uint32_t size) noexcept;
  ~pool_places();
  // Mark the bytes of a place for AddressSanitizer and Valgrind: `hide` forbids accesses, `show`
  // allows them.
  void hide(const pool_place& place) noexcept;
  void show(const pool_place& place) noexcept;

  /// True if other threads may use the pool, or if places have to be marked.
  [[nodiscard]] VERBSPP_DATA_PATH bool needs_care() const noexcept {
    return !is_single_threaded() || is_watched_;
  }
  // These functions are out of line, so that the inline functions are short and need no stack.
  [[nodiscard, gnu::noinline]] pool_place* take_with_care() noexcept;
  [[gnu::noinline]] static void give_back_with_care(pool_place& place) noexcept;
  [[gnu::noinline]] static void finish_giving_back(pool_place& place) noexcept;
  [[gnu::noinline]] void destroy() noexcept;
  /// The value of `uses_` when nothing uses the places. The highest bit of `uses_` is set in this
  /// case, and at all times if places have to be marked, so `list` needs only one test.
  [[nodiscard]] std::uint32_t unused() const noexcept {
    return is_watched_ ? 1U << 31 : UINT32_MAX;
  }

  // The following functions access the list of free places, and are called while the lock is held,
  // or while the process has only one thread.

  [[nodiscard]] std::uint32_t free_places() const noexcept { return all_taken_ - uses_; }
  /// Removes the first place from the list. \returns null if there is none
  [[nodiscard]] VERBSPP_DATA_PATH pool_place* unlist() noexcept {
    pool_place* const place = first_;
    if (place != nullptr) [[likely]] {
      first_ = place->next_place();
      place->set_user(nullptr);
      ++uses_;
    }
    return place;
  }
  /// Adds a place to the list. \returns true if nothing uses the places any more, or if places have
  /// to be marked
  [[nodiscard]] VERBSPP_DATA_PATH bool list(pool_place& place) noexcept {
    assert(place.mark_free() && "a place was returned twice");
    place.next = first_;
    first_ = &place;
    return static_cast<std::int32_t>(--uses_) < 0;
  }

  registered_buffer<> buffer_;
  std::uint32_t count_;
  std::uint32_t size_;  ///< the requested size of a place
  bool is_watched_;
  owned<pool_place[]> places_;

  // The lock guards the following members, and free places.
  alignas(64) brief_lock lock_{};
  pool_place* first_;
  std::uint32_t uses_ = unused() + 1;  ///< `unused()`, plus the number of handles and taken places
  std::uint32_t all_taken_ = uses_ + count_;  ///< the value of `uses_` when no place is free
};

VERBSPP_DATA_PATH void pool_place::end_receive() noexcept {
  if (pool->is_watched_) [[unlikely]]
    pool->show(*this);
}

VERBSPP_DATA_PATH void pool_place::give_back() noexcept {
  if (!is_single_threaded()) [[unlikely]]
    return pool_places::give_back_with_care(*this);
  if (pool->list(*this)) [[unlikely]]
    pool_places::finish_giving_back(*this);
}

inline std::uint32_t pool_place::number() const noexcept { return pool->number_of(*this); }

}  // namespace verbspp::detail
