// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/async/detail/awaited.hpp>
#include <verbspp/base/config.hpp>
#include <verbspp/base/result.hpp>
#include <verbspp/base/wait_limit.hpp>
#include <verbspp/channel/lease.hpp>
#include <verbspp/core/detail/channel_core.hpp>
#include <verbspp/core/detail/lease_owner.hpp>
#include <verbspp/memory/access.hpp>
#include <verbspp/wait/continuation.hpp>

#include <coroutine>
#include <type_traits>
#include <utility>

namespace verbspp::detail {

/// The awaitable of `lease::async_revoke`. If the send queue is full, or earlier awaited requests
/// wait for room, the awaitable waits for room, too, before it posts the request that revokes the
/// lease.
class [[nodiscard]] awaited_revocation : awaited {
 public:
  awaited_revocation(lease_owner& lease, const wait_limit& limit) noexcept
      : awaited(proceed, test_room, limit, lease.polled()), lease_(lease) {}
  awaited_revocation(const awaited_revocation&) = delete;
  awaited_revocation& operator=(const awaited_revocation&) = delete;
  ~awaited_revocation() {
    if (!was_posted_ && is_waiting()) leave_line();
  }

  using awaited::polled;

  /// \returns true if no request is needed, because the lease is revoked without one, or is already
  /// over
  [[nodiscard]] bool await_ready() const noexcept { return subject() == nullptr; }
  /// \returns false if there is nothing to wait for, so the coroutine continues immediately
  [[nodiscard]] bool await_suspend(std::coroutine_handle<> waiting) noexcept;
  [[nodiscard]] result<void> await_resume() noexcept;

 private:
  /// Called when the queue has room, when the request has finished, and when the limit is reached.
  static void proceed(continuation& self) noexcept;

  lease_owner& lease_;
  bool was_posted_ = false;
  std::coroutine_handle<> waiting_{};
};

/// The awaitable of `lease::async_revoke` for a lease that owns its memory, which is returned with
/// the result.
template <class Memory>
class [[nodiscard]] awaited_return : awaited_revocation {
 public:
  awaited_return(lease_owner& lease, Memory& memory, const wait_limit& limit) noexcept
      : awaited_revocation(lease, limit), memory_(memory) {}

  using awaited_revocation::await_ready;
  using awaited_revocation::await_suspend;
  using awaited_revocation::polled;
  [[nodiscard]] revoked<Memory> await_resume() noexcept {
    return revoked_with(awaited_revocation::await_resume(), memory_);
  }

 private:
  Memory& memory_;
};

}  // namespace verbspp::detail

namespace verbspp {

template <access_flags Rights, class Memory>
typename lease<Rights, Memory>::awaited_outcome lease<Rights, Memory>::async_revoke(
    const wait_limit& limit) && noexcept {
  if constexpr (std::is_void_v<Memory>)
    return {owner_, limit};
  else
    return {owner_, memory_, limit};
}
template <access_flags Rights, class Memory>
detail::awaited_revocation lease<Rights, Memory>::async_revoke(const wait_limit& limit) & noexcept
  requires(std::is_void_v<Memory>)
{
  return {owner_, limit};
}

}  // namespace verbspp
