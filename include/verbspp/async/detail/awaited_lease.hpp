// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/async/detail/awaited.hpp>
#include <verbspp/base/config.hpp>
#include <verbspp/base/result.hpp>
#include <verbspp/base/wait_limit.hpp>
#include <verbspp/channel/lease.hpp>
#include <verbspp/core/detail/channel_core.hpp>
#include <verbspp/core/detail/lease_owner.hpp>
#include <verbspp/memory/detail/memory_keeper.hpp>
#include <verbspp/memory/detail/never_free.hpp>
#include <verbspp/wait/continuation.hpp>

#include <coroutine>
#include <optional>
#include <type_traits>
#include <utility>

namespace verbspp::detail {

/// The part of the awaitable of `async_lease` that is independent of the lease's type. A lease
/// through a memory window needs a request: if the send queue is full, or earlier awaited requests
/// wait for room, the awaitable waits for room, too, before it posts that request.
class [[nodiscard]] awaited_grant : awaited {
 public:
  /// \param memory the owner of the memory, if it is shared
  awaited_grant(channel_core& core, const result<lease_request>& request, const kept_memory& memory,
                const wait_limit& limit) noexcept
      : awaited(proceed, test_room, limit, &core), request_(request), memory_(memory) {}
  awaited_grant(const awaited_grant&) = delete;
  awaited_grant& operator=(const awaited_grant&) = delete;
  ~awaited_grant() {
    if (granted_) return;
    if (is_waiting()) leave_line();
    memory_.let_go();
  }

  using awaited::polled;

  /// \returns true if the lease request is an error, so that there is nothing to wait for
  [[nodiscard]] bool await_ready() const noexcept { return request_.has_error(); }
  /// \returns false if the result is already available
  [[nodiscard]] bool await_suspend(std::coroutine_handle<> waiting) noexcept;

 protected:
  /// Returns the lease after the wait.
  [[nodiscard]] result<lease_owner> take() noexcept;
  /// Revokes the lease if it was not taken. \returns true if the program may reuse the memory
  bool drop() noexcept {
    return !granted_ || !granted_->has_value() || granted_->assume_value().drop();
  }

 private:
  /// Called when the queue has room, when the request has finished, and when the limit is reached.
  static void proceed(continuation& self) noexcept;
  /// \returns true if the continuation will be called
  [[nodiscard]] bool post() noexcept;

  result<lease_request> request_;
  kept_memory memory_;  ///< `post` passes it to the lease
  std::optional<result<lease_owner>> granted_{};
  std::coroutine_handle<> waiting_{};
};

/// The awaitable of `async_lease`. If the lease owns its memory, the memory is moved into the lease
/// when it is granted.
template <access_flags Rights, class Memory>
class [[nodiscard]] awaited_lease<lease<Rights, Memory>> : awaited_grant {
  using granted = lease<Rights, Memory>;

 public:
  /// \param owned the memory that the lease will own; null if it owns none
  awaited_lease(channel_core& core, const result<lease_request>& request, const kept_memory& kept,
                const wait_limit& limit, Memory* owned = nullptr) noexcept
      : awaited_grant(core, request, kept, limit), memory_(owned) {}
  awaited_lease(const awaited_lease&) = delete;
  awaited_lease& operator=(const awaited_lease&) = delete;
  ~awaited_lease() {
    if constexpr (!std::is_void_v<Memory>)
      if (!this->drop()) never_free(std::move(*memory_));
  }

  using awaited_grant::await_ready;
  using awaited_grant::await_suspend;
  using awaited_grant::polled;
  [[nodiscard]] result<granted> await_resume() noexcept {
    auto owner = this->take();
    if (!owner.has_value()) return owner.assume_error();
    if constexpr (std::is_void_v<Memory>)
      return granted(std::move(owner).assume_value());
    else
      return granted(std::move(owner).assume_value(), std::move(*memory_));
  }

 private:
  Memory* memory_;
};

}  // namespace verbspp::detail
