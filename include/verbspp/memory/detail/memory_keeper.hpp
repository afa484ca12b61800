// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <type_traits>
#include <utility>

namespace verbspp::detail {

/// Keeps memory registered and allocated while the device may use it, such as shared pages or a
/// pool of buffers.
///
/// Has one function pointer instead of virtual functions, so that work which keeps memory stores
/// two words, whatever the memory is.
struct memory_keeper {
  /// Releases one count, once for each `kept_memory` that was created. Called by the thread that
  /// found the work finished, when the device no longer uses the memory. The call may destroy the
  /// keeper. Never null.
  void (*let_go)(memory_keeper& self, std::uint32_t place) noexcept;
};

/// Memory that is kept, and that its creator has counted once, until `let_go`. A copy stands for
/// the same count. A plain value without a destructor, which the slots of requests hold.
struct kept_memory {
  memory_keeper* keeper = nullptr;  ///< null if the memory is kept by its owner
  std::uint32_t place = 0;          ///< the part of the keeper's memory, in its own numbering

  /// Releases the count; does nothing if it was released already.
  void let_go() noexcept {
    if (memory_keeper* const whose = std::exchange(keeper, nullptr)) whose->let_go(*whose, place);
  }
};

static_assert(std::is_trivially_copyable_v<kept_memory>);

}  // namespace verbspp::detail
