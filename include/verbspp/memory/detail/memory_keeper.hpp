// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <type_traits>
#include <utility>

namespace verbspp::detail {

/// The base class of owners of memory, such as shared pages or a pool of buffers, that keep it
/// registered and allocated while the device may use it.
///
/// It has one function pointer instead of virtual functions. A request stores its memory as a
/// `kept_memory`, which is two words, regardless of the kind of memory.
struct memory_keeper {
  /// Ends one use of the memory, such as that by a request. It is called once for each use, when
  /// the device no longer uses the memory, by the thread that has noticed this. The call may
  /// destroy the keeper. The pointer is never null.
  void (*let_go)(memory_keeper& self, std::uint32_t place) noexcept;
};

/// One use of a keeper's memory, which keeps the memory until `let_go`. A plain value without a
/// destructor, which is stored with the request. A copy stands for the same use, so `let_go` must
/// be called on only one of the copies.
struct kept_memory {
  memory_keeper* keeper = nullptr;  ///< null if there is no use to end
  std::uint32_t place = 0;          ///< the part of the keeper's memory, as the keeper numbers it

  /// Ends the use; does nothing if it has already ended.
  void let_go() noexcept {
    if (memory_keeper* const whose = std::exchange(keeper, nullptr)) whose->let_go(*whose, place);
  }
};

static_assert(std::is_trivially_copyable_v<kept_memory>);

}  // namespace verbspp::detail
