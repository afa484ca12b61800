// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace verbspp::detail {

/// The return type of a coroutine, whose body may still be running after the call has returned.
/// This concept matches types with a promise type, and types with the members through which they
/// can be awaited.
template <class Returned>
concept Suspends = requires { typename Returned::promise_type; } || requires(Returned& returned) {
  returned.await_ready();
} || requires(Returned&& returned) { static_cast<Returned&&>(returned).operator co_await(); };

}  // namespace verbspp::detail
