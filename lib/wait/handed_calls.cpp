// SPDX-License-Identifier: Apache-2.0
#include <verbspp/wait/detail/handed_calls.hpp>

namespace verbspp::detail {

void handed_calls::push(continuation& call) noexcept {
  const brief_guard guard(lock_);
  due_.add(call, 0);
  __atomic_store_n(&has_some_, true, __ATOMIC_SEQ_CST);
}

void handed_calls::withdraw(continuation& call) noexcept {
  const brief_guard guard(lock_);
  call.cancel();
  if (due_.is_empty()) __atomic_store_n(&has_some_, false, __ATOMIC_SEQ_CST);
}

void handed_calls::run() noexcept {
  // The lock also guards the list `now`, because a call that is being made may withdraw another one
  // from it.
  continuation_list now;
  {
    const brief_guard guard(lock_);
    due_.for_each([&](continuation& one) { now.add(one, 0); });
    __atomic_store_n(&has_some_, false, __ATOMIC_SEQ_CST);
  }
  for (;;) {
    continuation* next = nullptr;
    {
      const brief_guard guard(lock_);
      if (now.is_empty()) return;
      next = &now.first();
      next->cancel();
    }
    next->call();
  }
}

}  // namespace verbspp::detail
