// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <new>
#include <utility>

namespace verbspp::detail {

/// Memory that the device may still access, so that it is never freed.
template <class Memory>
class never_freed {
 public:
  static void keep(Memory&& memory) noexcept {
    if (auto* const kept = new (std::nothrow) never_freed(std::move(memory))) {
      kept->next_ = __atomic_exchange_n(&all_, kept, __ATOMIC_RELAXED);
      return;
    }
    // Without a place for the owner, its destructor must not run all the same.
    union undestroyed {
      undestroyed() noexcept {}
      undestroyed(const undestroyed&) = delete;
      undestroyed& operator=(const undestroyed&) = delete;
      ~undestroyed() {}
      Memory memory;
    } place;
    new (&place.memory) Memory(std::move(memory));
  }

 private:
  explicit never_freed(Memory&& memory) noexcept : memory_(std::move(memory)) {}

  // So that a leak checker finds them.
  static inline never_freed* all_ = nullptr;
  never_freed* next_ = nullptr;
  Memory memory_;
};

}  // namespace verbspp::detail
