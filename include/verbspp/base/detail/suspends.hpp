// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace verbspp::detail {

/// A coroutine's return type: its function may have suspended, and go on later.
template <class Returned>
concept Suspends = requires { typename Returned::promise_type; } || requires(Returned& returned) {
  returned.await_ready();
} || requires(Returned&& returned) { static_cast<Returned&&>(returned).operator co_await(); };

}  // namespace verbspp::detail
