// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/config.hpp>
#include <verbspp/base/detail/single_threaded.hpp>
#include <verbspp/memory/detail/memory_keeper.hpp>
#include <verbspp/memory/scatter_gather.hpp>

#include <cstddef>

namespace verbspp::detail {

/// The number of handles and requests that share an object. While the process has a single thread
/// (as reported by glibc 2.32 and newer), counting uses no atomic operations, which would account
/// for a large part of the cost of a request.
class share_count {
 public:
  share_count() noexcept = default;  // starts at one
  share_count(const share_count&) = delete;
  share_count& operator=(const share_count&) = delete;
  ~share_count() = default;

  void add() noexcept {
    if (is_single_threaded())
      ++count_;
    else
      __atomic_fetch_add(&count_, std::size_t{1}, __ATOMIC_RELAXED);
  }
  /// Subtracts one from the count. Returns true if the count has become 0.
  [[nodiscard]] bool drop() noexcept {
    if (is_single_threaded()) return --count_ == 0;
    return __atomic_fetch_sub(&count_, std::size_t{1}, __ATOMIC_ACQ_REL) == 1;
  }
  [[nodiscard]] bool is_one() const noexcept {
    return __atomic_load_n(&count_, __ATOMIC_ACQUIRE) == 1;
  }

 private:
  std::size_t count_ = 1;
};

/// The base class of memory that counts its users, such as handles and requests. `let_go` subtracts
/// one user.
struct counted_keeper : memory_keeper {
  counted_keeper(decltype(let_go) release, const scatter_element& whole) noexcept
      : memory_keeper{release}, element(whole) {}

  /// A list of the element, which refers to it.
  template <class Element>
  [[nodiscard]] VERBSPP_DATA_PATH element_list<Element> all() const noexcept {
    return element_list<Element>::referring_to(element);
  }

  share_count count{};
  const scatter_element element;  ///< the whole memory; without bytes if that takes more elements
};

}  // namespace verbspp::detail
