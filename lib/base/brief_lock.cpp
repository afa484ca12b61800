// SPDX-License-Identifier: Apache-2.0
#include <verbspp/base/detail/brief_lock.hpp>

#include <sched.h>

namespace verbspp::detail {

void brief_lock::lock_later() noexcept {
  for (unsigned round = 1;; ++round) {
    // Looking does not take the cache line from the owner, as trying would.
    if (!__atomic_load_n(&taken_, __ATOMIC_RELAXED) &&
        !__atomic_exchange_n(&taken_, true, __ATOMIC_ACQUIRE))
      return;
    if (round % 64 == 0) sched_yield();
  }
}

}  // namespace verbspp::detail
