// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/detail/owned.hpp>
#include <verbspp/base/result.hpp>
#include <verbspp/pool/detail/pool_places.hpp>

#include <infiniband/verbs.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <new>
#include <utility>

#pragma GCC visibility push(hidden)

namespace verbspp::detail {

/// A batch of receives into places of a pool, posted with one doorbell. The requests are linked
/// when they are allocated; filling a batch writes only their addresses and `wr_id`s.
class receive_batch {
 public:
  /// The number of receives in a batch, for a queue of `depth` receives, if the program asks for
  /// `wanted`.
  [[nodiscard]] static std::uint32_t size_for(std::uint32_t depth, std::uint32_t wanted) noexcept {
    constexpr std::uint32_t largest = 64;
    return std::clamp(wanted, 1U, std::min(largest, std::max(depth / 2, 1U)));
  }

  receive_batch() noexcept = default;
  receive_batch(const receive_batch&) = delete;
  receive_batch& operator=(const receive_batch&) = delete;
  receive_batch(receive_batch&&) noexcept = default;
  receive_batch& operator=(receive_batch&&) noexcept = default;

  /// Allocates memory for `size` receives. \returns false if memory is exhausted
  [[nodiscard]] bool allocate(pool_places& places, std::uint32_t size) noexcept {
    entries_ = owned<entry[]>(new (std::nothrow) entry[size]());
    if (!entries_) return false;
    for (std::uint32_t i = 0; i < size; ++i) {
      entry& each = entries_.get()[i];
      each.element = places.element(0, places.place_size());
      each.request.next = i + 1 < size ? &entries_.get()[i + 1].request : nullptr;
      each.request.sg_list = &each.element;
      each.request.num_sge = 1;
    }
    return true;
  }

  /// Takes up to `wanted` places, and prepares a receive for each. \returns the number of receives
  /// \param wr_id called as `wr_id(place)`; returns the `wr_id` for the receive
  template <class WrId>
  [[nodiscard, gnu::always_inline]] std::uint32_t fill(pool_places& places, std::uint32_t wanted,
                                                       WrId wr_id) noexcept {
    entry* next = entries_.get();
    return places.take(wanted, [&](std::uint32_t place, const std::byte* at) {
      next->element.addr = reinterpret_cast<std::uintptr_t>(at);
      next->request.wr_id = wr_id(place);
      ++next;
    });
  }
  /// Posts the first `count` receives, and returns the places of rejected receives to the pool.
  /// \param post called as `post(list, &rejected)`
  /// \param count in: at least 1; out: the number posted
  /// \returns the value that `post` has returned: 0, or an errno
  template <class Post>
  [[nodiscard]] int post(pool_places& places, std::uint32_t& count, Post post) noexcept {
    entry* const all = entries_.get();
    entry& last = all[count - 1];
    ibv_recv_wr* const next = std::exchange(last.request.next, nullptr);
    ibv_recv_wr* rejected = nullptr;
    const int returned = post(&all->request, &rejected);
    last.request.next = next;
    if (returned == 0) return 0;
    std::uint32_t accepted = 0;
    if (rejected != nullptr)
      while (accepted < count && &all[accepted].request != rejected) ++accepted;
    for (std::uint32_t i = accepted; i < count; ++i) {
      const std::uint32_t place = places.place_of(all[i].element);
      places.end_receive(place);
      places.give_back_unfilled(place);
    }
    count = accepted;
    return returned;
  }
  [[nodiscard]] const ibv_recv_wr& request(std::uint32_t i) const noexcept {
    return entries_.get()[i].request;
  }

 private:
  struct entry {
    ibv_recv_wr request;
    ibv_sge element;
  };

  owned<entry[]> entries_{};
};

}  // namespace verbspp::detail

#pragma GCC visibility pop
