// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/detail/owned.hpp>
#include <verbspp/base/result.hpp>
#include <verbspp/memory/detail/memory_keeper.hpp>
#include <verbspp/work/operation_traits.hpp>

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>

namespace verbspp::detail {

/// Guards memory while the device may access it.
///
/// It releases the memory that finished requests have kept, unless a queue pair could not be
/// destroyed. Under AddressSanitizer or Valgrind, it also marks the memory that the program must
/// not access, or must not write to. For this purpose, there is a place for each request that can
/// be outstanding, which records the ranges of memory that the request uses. Without these tools
/// `is_active` is false, and the guard allocates nothing.
class memory_guard {
 public:
  /// Detects AddressSanitizer and Valgrind.
  memory_guard() noexcept;

  [[nodiscard]] bool is_active() const noexcept { return is_active_; }
  /// Allocates `places` places, each with room for `elements` elements. A no-op if the guard is not
  /// active.
  [[nodiscard]] result<void> allocate(std::size_t places, std::uint32_t elements) noexcept;

  /// Records the memory of a request.
  void note(std::size_t place, const native_elements& elements) noexcept;
  /// Marks the recorded memory as being written by the device: the program must not access it.
  /// \returns false if no memory is recorded
  bool hide(std::size_t place) noexcept;
  bool hide(std::size_t place, const native_elements& elements) noexcept {
    note(place, elements);
    return hide(place);
  }
  /// Marks memory as being read by the device: the program must not write to it.
  void protect(std::size_t place, const native_elements& elements) noexcept;
  /// Removes the mark after the request has finished.
  void show(std::size_t place) noexcept;

  /// Releases memory that a finished request has kept, unless `is_lost`.
  void release(kept_memory& memory) const noexcept {
    if (!is_lost_) memory.let_go();
  }
  /// True if the queue pair could not be destroyed, so the device may still access the memory of
  /// its requests.
  [[nodiscard]] bool is_lost() const noexcept { return is_lost_; }
  void set_lost(bool is_lost) noexcept { is_lost_ = is_lost; }

 private:
  enum class use : std::uint8_t { none, written, read };

  /// Calls `tell(address, length)` for each element of the place.
  template <class Tell>
  void each(std::size_t place, Tell tell) const noexcept;

  bool is_active_;
  bool is_lost_ = false;
  std::uint32_t elements_ = 0;  ///< the number of elements for which each place has room
  owned<ibv_sge[]> used_{};     ///< by place; an element of length 0 ends a place's list early
  owned<use[]> uses_{};
};

}  // namespace verbspp::detail
