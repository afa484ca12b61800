// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <type_traits>
#include <utility>

namespace verbspp::detail {

/// The base class of objects that own memory, such as shared pages or a place of a pool, and keep
/// it registered and allocated as long as the device may use it.
///
/// It has one function pointer instead of virtual functions. A request refers to its memory through
/// a `kept_memory`, which has the size of a pointer regardless of the kind of memory.
struct memory_keeper {
  /// Ends one use of the memory, such as the use by a request. This function is called at most once
  /// for each use, by the thread that has noticed that the device no longer uses the memory. The
  /// call may destroy the keeper. The function pointer is never null.
  void (*let_go)(memory_keeper& self) noexcept;
};

/// One use of a keeper's memory, which keeps the memory alive until `let_go` is called. It is a
/// plain value without a destructor, and is stored with the request. A copy represents the same
/// use, so `let_go` must be called on only one of the copies.
struct kept_memory {
  memory_keeper* keeper = nullptr;  ///< null if no use has to be ended

  /// Ends the use; does nothing if it has already ended.
  void let_go() noexcept {
    if (memory_keeper* const whose = std::exchange(keeper, nullptr)) whose->let_go(*whose);
  }
};

static_assert(std::is_trivially_copyable_v<kept_memory>);

}  // namespace verbspp::detail
