// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace verbspp::detail {

/// The return type of a coroutine, which may have suspended and may be resumed later.
template <class Returned>
concept Suspends = requires { typename Returned::promise_type; } || requires(Returned& returned) {
  returned.await_ready();
} || requires(Returned&& returned) { static_cast<Returned&&>(returned).operator co_await(); };

}  // namespace verbspp::detail
