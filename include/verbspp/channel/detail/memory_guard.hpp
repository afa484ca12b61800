// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/detail/owned.hpp>
#include <verbspp/base/result.hpp>
#include <verbspp/memory/detail/memory_keeper.hpp>
#include <verbspp/work/operation_traits.hpp>

#include <cstddef>
#include <cstdint>

namespace verbspp::detail {

/// The memory that the device has: what requests keep is let go through this, unless the device
/// has not let go of it, and where AddressSanitizer or Valgrind looks on, they are told what the
/// program may not touch meanwhile. Elsewhere it has no memory of its own, and `is_active` is
/// false.
///
/// Each request that can be outstanding has a place here.
class memory_guard {
 public:
  /// Finds out whether somebody looks on.
  memory_guard() noexcept;

  [[nodiscard]] bool is_active() const noexcept { return is_active_; }
  /// Makes room for so many requests of so many elements, if it is active.
  [[nodiscard]] result<void> allocate(std::size_t places, std::uint32_t elements) noexcept;

  /// Notes the memory of a request that is about to be posted.
  void note(std::size_t place, const native_elements& elements) noexcept;
  /// The request was posted: the device writes to what was noted. \returns whether that is anything
  bool hide(std::size_t place) noexcept;
  bool hide(std::size_t place, const native_elements& elements) noexcept {
    note(place, elements);
    return hide(place);
  }
  /// The same of memory that the device reads.
  void protect(std::size_t place, const native_elements& elements) noexcept;
  /// The request has finished: the program may touch its memory.
  void show(std::size_t place) noexcept;

  /// Lets memory go that a finished request has kept, if the device has let go of it.
  void give_back(kept_memory& memory) const noexcept {
    if (!is_lost_) memory.let_go();
  }
  /// Whether the device has not let go of a queue pair, and with it of all memory.
  [[nodiscard]] bool is_lost() const noexcept { return is_lost_; }
  void set_lost(bool is_lost) noexcept { is_lost_ = is_lost; }

 private:
  struct bytes {
    std::uint64_t address;
    std::uint64_t length;  ///< 0: none, nor any behind it
  };
  enum class use : std::uint8_t { none, written, read };

  /// Calls `tell(address, length)` for each element of the place.
  template <class Tell>
  void each(std::size_t place, Tell tell) const noexcept;

  bool is_active_;
  bool is_lost_ = false;
  std::uint32_t elements_ = 0;  ///< of each place
  owned<bytes[]> bytes_{};
  owned<use[]> uses_{};
};

}  // namespace verbspp::detail
