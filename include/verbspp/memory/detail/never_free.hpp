// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <new>
#include <utility>

namespace verbspp::detail {

/// Keeps memory until the process ends, because the device may still access it. A list keeps the
/// memory reachable, so that LeakSanitizer does not report it. Any thread may call this.
template <class Memory>
[[gnu::cold, gnu::noinline]] void never_free(Memory memory) noexcept {
  struct entry {
    Memory memory;
    entry* next;
  };
  static entry* all = nullptr;
  if (auto* const kept = new (std::nothrow) entry{std::move(memory), nullptr})
    kept->next = __atomic_exchange_n(&all, kept, __ATOMIC_RELAXED);
  else {
    // The entry could not be allocated, so the memory moves to an object that is never destroyed.
    alignas(Memory) std::byte place[sizeof(Memory)];
    new (place) Memory(std::move(memory));
  }
}

}  // namespace verbspp::detail
