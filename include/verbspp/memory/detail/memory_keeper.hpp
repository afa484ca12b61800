// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <type_traits>
#include <utility>

namespace verbspp::detail {

/// Who keeps memory registered and allocated while the device may use it: pages that are shared, a
/// pool of places.
///
/// One function and no virtual ones: work that keeps memory is two words, whatever the memory is.
struct memory_keeper {
  /// Takes back what was counted: once for each `kept_memory` that was made. Called by the thread
  /// that found the work finished, when the device has let go of the memory; the keeper may be gone
  /// when it returns. Never null.
  void (*let_go)(memory_keeper& self, std::uint32_t place) noexcept;
};

/// Memory that is kept, and counted once by whoever made this, until `let_go`: of a copy of it, the
/// same. It is a plain value, which the slots of requests hold, and has no destructor.
struct kept_memory {
  memory_keeper* keeper = nullptr;  ///< null: the memory is kept by its owner
  std::uint32_t place = 0;          ///< what of the keeper's memory, in its own numbering

  /// Gives back what was counted; nothing if it was given back before.
  void let_go() noexcept {
    if (memory_keeper* const whose = std::exchange(keeper, nullptr)) whose->let_go(*whose, place);
  }
};

static_assert(std::is_trivially_copyable_v<kept_memory>);

}  // namespace verbspp::detail
