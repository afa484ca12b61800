// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/detail/brief_lock.hpp>
#include <verbspp/base/detail/owned.hpp>
#include <verbspp/base/result.hpp>
#include <verbspp/memory/detail/memory_keeper.hpp>
#include <verbspp/memory/protection_domain.hpp>
#include <verbspp/memory/registered_buffer.hpp>

#include <infiniband/verbs.h>

#include <cassert>
#include <cstddef>
#include <cstdint>

namespace verbspp::detail {

/// The places of a pool, which live until the last handle is gone and the last place has come back.
/// Thread-safe.
///
/// The free ones are a list through `next_`, whose first is the one that came back last: it is the
/// most likely to be in the cache.
class pool_places : public memory_keeper {
 public:
  [[nodiscard]] static result<pool_places*> create(const protection_domain& domain,
                                                   std::uint32_t count, std::uint32_t size,
                                                   const buffer_options& options) noexcept;
  pool_places(const pool_places&) = delete;
  pool_places& operator=(const pool_places&) = delete;

  /// The pool has one more handle.
  void add_handle() noexcept {
    const brief_guard guard(lock_);
    ++handles_;
  }
  /// It has one less; may delete this.
  void drop_handle() noexcept {
    lock_.lock();
    --handles_;
    unlock();
  }

  /// Takes places, up to so many. \returns how many there were
  [[nodiscard]] std::uint32_t take(std::uint32_t* into, std::uint32_t wanted) noexcept;
  /// Takes one back; may delete this, if no handle is left.
  void give_back(std::uint32_t place) noexcept {
    if (is_watched_) [[unlikely]]
      hide(place);
    lock_.lock();
    assert(place < count_ && next_.get()[place] == taken && "a place came back twice");
    next_.get()[place] = first_;
    first_ = place;
    ++available_;
    unlock();
  }

  [[nodiscard]] std::byte* at(std::uint32_t place) noexcept {
    return buffer_.data() + std::size_t{place} * distance_;
  }
  [[nodiscard]] ibv_sge element(std::uint32_t place, std::uint32_t length) noexcept {
    return {.addr = reinterpret_cast<std::uintptr_t>(at(place)), .length = length, .lkey = lkey_};
  }
  [[nodiscard]] std::uint32_t count() const noexcept { return count_; }
  [[nodiscard]] std::uint32_t place_size() const noexcept { return size_; }
  [[nodiscard]] std::uint32_t available() noexcept {
    const brief_guard guard(lock_);
    return available_;
  }
  [[nodiscard]] const protection_domain& domain() const noexcept {
    return buffer_.protection_domain();
  }
  [[nodiscard]] bool is_watched() const noexcept { return is_watched_; }

 private:
  pool_places(registered_buffer<>&& buffer, owned<std::uint32_t[]>&& next, std::uint32_t count,
              std::uint32_t size, std::size_t distance) noexcept;
  ~pool_places();
  void hide(std::uint32_t place) noexcept;
  /// Ends what has the lock, and perhaps all of this.
  void unlock() noexcept {
    const bool is_last = handles_ == 0 && available_ == count_;
    lock_.unlock();
    if (is_last) delete this;
  }

  static constexpr std::uint32_t none = UINT32_MAX;
  static constexpr std::uint32_t taken = UINT32_MAX - 1;

  registered_buffer<> buffer_;
  std::uint32_t lkey_;
  std::uint32_t count_;
  std::uint32_t size_;    ///< of a place, as it was asked for
  std::size_t distance_;  ///< from one place to the next: they share no cache line
  bool is_watched_;

  // What the lock guards.
  alignas(64) brief_lock lock_{};
  owned<std::uint32_t[]> next_;  ///< of each free place the next one; of a taken one `taken`
  std::uint32_t first_ = 0;
  std::uint32_t available_;
  std::uint32_t handles_ = 1;
};

}  // namespace verbspp::detail
