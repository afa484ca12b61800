// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/config.hpp>
#include <verbspp/base/detail/because.hpp>
#include <verbspp/base/result.hpp>
#include <verbspp/core/detail/channel_core.hpp>
#include <verbspp/memory/detail/memory_keeper.hpp>
#include <verbspp/memory/detail/never_free.hpp>
#include <verbspp/wait/call_limit.hpp>
#include <verbspp/wait/continuation.hpp>
#include <verbspp/work/operations.hpp>
#include <verbspp/work/transport_error.hpp>
#include <verbspp/work/work_completion.hpp>

#include <cassert>
#include <cstdint>
#include <new>
#include <optional>
#include <type_traits>
#include <utility>

namespace verbspp {

template <class Memory = void>
class pending;

/// The result of a request or lease that owned its memory, together with that memory, whether or
/// not the request has succeeded.
///
///     auto [result, buffer] = work.wait();
template <class Memory, class Result = transport_result<completed_work>>
struct [[nodiscard]] finished {
  Result result;
  Memory memory;
};

namespace detail {

template <class Handle>
class awaited_result;

/// The error for a handle that has no request.
[[nodiscard]] error no_request() noexcept;

/// True for memory that records how far a request has filled it.
template <class Memory>
inline constexpr bool notes_filling =
    requires(Memory& memory, const completed_work& done) { memory.note_filled(done); };

/// Records in memory how far a request has filled it, if `notes_filling`.
template <class Memory>
VERBSPP_DATA_PATH void note_filling(Memory& memory,
                                    const transport_result<completed_work>& done) noexcept {
  if constexpr (notes_filling<Memory>)
    if (done.has_value()) memory.note_filled(done.assume_value());
}

/// The memory of a detached request, destroyed when the device no longer accesses it.
template <class Memory>
struct left_memory : memory_keeper {
  explicit left_memory(Memory&& left) noexcept
      : memory_keeper{[](memory_keeper& self) noexcept {
          delete static_cast<left_memory*>(&self);
        }},
        memory(std::move(left)) {}
  Memory memory;
};

}  // namespace detail

/// A handle to a request in flight, as returned by the functions that post to a channel.
///
/// The result is taken once, by `poll` or `wait`. Asking again is an error (`invalid_input`), and
/// so is asking a handle that was moved from or default constructed.
///
/// Destroying the handle of a request in flight waits until the device no longer accesses the
/// memory. If the channel's default limit is reached first, the channel breaks, and its `failure`
/// reports the dropped handle as the cause. The handle may outlive its channel: the request has
/// then finished, and its result can still be taken. So if a receive might never get a message,
/// destroy its handle only after the channel was destroyed or closed: destroying the handle then
/// does not wait. Destroying the handle of a request that uses no memory of the program (no
/// elements, or inline bytes) does not wait either: the request continues, and if it is a receive,
/// its message is lost. The receives of an `inbox` need no such care.
///
/// If the memory was given as elements, the handle is a `pending<>`: the memory is *borrowed*, so
/// the program has to keep it until the request has finished.
///
/// A `pending<Memory>` owns the memory of its request, and returns it with the result, even on
/// failure. There is one exception: if the request was flushed, and the device failed to destroy
/// the queue pair, the device may still access the memory. The result is then an error of kind
/// `driver`, the returned memory object is moved from, and the memory is never freed. Use `detach`
/// if neither the result nor the memory is needed.
///
/// Move-only. A `pending<>` has a few words, and a `pending<Memory>` has the memory object, too.
/// Thread rule: one thread at a time for the handle and its channel.
template <class Memory>
class [[nodiscard]] pending {
  static constexpr bool borrows = std::is_void_v<Memory>;
  using owned_memory = std::conditional_t<borrows, detail::no_memory, Memory>;
  using outcome = std::conditional_t<borrows, transport_result<completed_work>, finished<Memory>>;

 public:
  /// An empty handle, with a default constructed memory object.
  pending() noexcept
    requires std::is_nothrow_default_constructible_v<owned_memory>
  = default;
  /// Used by the library only.
  VERBSPP_DATA_PATH pending(detail::channel_core* core, const detail::request& posted,
                            owned_memory&& memory = {}) noexcept
      : core_(core), request_(posted), memory_(std::move(memory)) {
    core->open_handle();
  }
  pending(const pending&) = delete;
  pending& operator=(const pending&) = delete;
  VERBSPP_DATA_PATH pending(pending&& other) noexcept
      : core_(std::exchange(other.core_, nullptr)),
        request_(other.request_),
        memory_(std::move(other.memory_)) {}
  /// Drops the previous request, as the destructor does, and then destroys its memory.
  VERBSPP_DATA_PATH pending& operator=(pending&& other) noexcept {
    if (this != &other) {
      drop();
      core_ = std::exchange(other.core_, nullptr);
      request_ = other.request_;
      memory_ = std::move(other.memory_);
    }
    return *this;
  }
  VERBSPP_DATA_PATH ~pending() { drop(); }

  /// True if the handle has a request. False after the result was taken or the request was
  /// detached, and if the handle was moved from or default constructed.
  [[nodiscard]] bool has_request() const noexcept { return core_ != nullptr; }
  /// Used by the library only: the channel of the request; null if the handle is empty.
  [[nodiscard]] detail::channel_core* polled() const noexcept { return core_; }

  /// Returns the result if it is available, with the memory that the handle owns; does not wait for
  /// it.
  /// \errors those of the request; `not_connected` if the request was flushed, and the channel was
  /// destroyed; `driver` if the device failed to destroy the queue pair; `invalid_input` if the
  /// handle has no request, or the request's scope has ended
  [[nodiscard]] VERBSPP_DATA_PATH std::optional<outcome> poll() noexcept {
    if (has_request() && !look()) return std::nullopt;
    return take(call_limit::of_channel());
  }
  /// Waits for the result, and returns it with the memory that the handle owns. If the limit is
  /// reached first, this function breaks the channel, which ends all requests of the channel:
  /// otherwise, the program could not reuse the memory.
  /// \errors as `poll`; `timed_out`; `cancelled` if a stop was requested, or if the descriptor that
  /// the channel watches ended the wait; `invalid_input` if that descriptor is not open; `driver`
  /// if the device failed; `resource_exhausted`
  VERBSPP_DATA_PATH outcome wait(call_limit limit = call_limit::of_channel()) noexcept {
    return take(limit);
  }

  /// Makes `channel::poll` call `next` when the result is available; `next` can then take the
  /// result from this handle. `next` is called even if the handle was dropped.
  /// \returns false if the result is available already, or the handle is empty; `next` is then not
  /// called
  [[nodiscard]] VERBSPP_DATA_PATH bool then(continuation& next) noexcept {
    return has_request() && core_->continue_with(request_, next);
  }

  /// Awaits the result in a coroutine, as `kept_pending::async_wait` does. Destroying the handle
  /// waits for the request, even if that happens because the coroutine is destroyed.
  [[nodiscard]] detail::awaited_result<pending> async_wait(
      const wait_limit& limit = detail::default_limit) noexcept
    requires(!std::is_void_v<Memory>);
  template <class... Arguments>
  void async_wait(const Arguments&...) VERBSPP_DETAIL_REFUSED(
      borrows && sizeof...(Arguments) + 1 != 0,
      "a coroutine cannot await this handle, because its memory is borrowed: use an async_scope, "
      "or post with shared or owned memory");

  /// Detaches the request, without waiting. The request continues, and its memory is destroyed when
  /// the device no longer accesses it. If the device does not release the memory, it is never
  /// destroyed. If the request fails, the error is in the channel's `failure`. The message of a
  /// detached receive is lost.
  /// \errors `invalid_input` if there is no request; `resource_exhausted`, and the handle is
  /// unchanged
  result<void> detach() && noexcept
    requires(!borrows)
  {
    if (!has_request()) return detail::no_request();
    if (look()) {
      drop();
      static_cast<void>(Memory(std::move(memory_)));
      return success();
    }
    auto* const left = new (std::nothrow) detail::left_memory<Memory>(std::move(memory_));
    if (left == nullptr)
      return error(error_kind::resource_exhausted, "pending::detach",
                   "out of memory for the detached request; the handle is unchanged");
    detail::channel_core& core = *std::exchange(core_, nullptr);
    core.keep(request_, {.keeper = left});
    core.drop(request_);
    return success();
  }
  void detach() && requires(borrows) =
      delete;  // memory is borrowed: the handle must wait; post owned or shared memory
  void detach() & = delete;  // it consumes the handle: write std::move(work).detach()

 private:
  /// Polls for completions, unless the request is done.
  [[nodiscard]] VERBSPP_DATA_PATH bool look() noexcept {
    if (!core_->is_done(request_)) core_->collect();
    return core_->is_done(request_);
  }
  /// Takes the result if it is available, or waits for it.
  [[nodiscard]] VERBSPP_DATA_PATH outcome take(call_limit limit) noexcept {
    if constexpr (borrows) {
      return take_result(limit);
    } else if constexpr (detail::notes_filling<Memory>) {
      const auto done = take_result(limit);
      detail::note_filling(memory_, done);
      return outcome{done, std::move(memory_)};
    } else {
      return outcome{take_result(limit), std::move(memory_)};
    }
  }
  [[nodiscard]] VERBSPP_DATA_PATH transport_result<completed_work> take_result(
      call_limit limit) noexcept {
    if (core_ == nullptr) [[unlikely]]
      return detail::no_request();
    detail::channel_core& core = *std::exchange(core_, nullptr);
    return core.take(request_, limit, memory_);
  }
  /// Drops the request, if there is one. Waits for it if the handle owns the memory, which is
  /// destroyed or replaced next.
  VERBSPP_DATA_PATH void drop() noexcept {
    if (core_ == nullptr) return;
    detail::channel_core& core = *std::exchange(core_, nullptr);
    if constexpr (borrows)
      core.drop(request_);
    else if (!core.drop_with_care(request_, true)) [[unlikely]]
      detail::never_free(std::move(memory_));
  }

  // Only rare calls get the handle's address, so the compiler can usually keep the handle in
  // registers.
  detail::channel_core* core_ = nullptr;  ///< null: no request
  detail::request request_{};
  [[no_unique_address]] owned_memory memory_{};
};

/// A handle to a request in flight that need not be kept. Outside of scopes, the functions that
/// post a shared buffer, or that send or write a message from a pool, return such a handle: the
/// request itself keeps its memory alive. In a scope, see `scoped_pending`.
///
/// Like a `pending<>`, but it need not be kept: dropping it does not wait, since the memory stays
/// until the device no longer accesses it. If the request fails after its handle was dropped, the
/// error is in the channel's `failure`.
class kept_pending : public pending<> {
 public:
  using pending<>::pending;
  /// Awaits the result in a coroutine; include `<verbspp/coroutine.hpp>`. `channel::poll` resumes
  /// the coroutine. The handle must outlive the wait. Destroying the coroutine ends only the wait.
  /// \errors as `wait`
  [[nodiscard]] detail::awaited_result<kept_pending> async_wait(
      const wait_limit& limit = detail::default_limit) noexcept;
  void detach() = delete;  // the request keeps its memory alive: drop the handle instead
};

/// A handle to a request in flight that finishes before its scope ends, as returned by the
/// functions that post in a scope, unless the handle owns the memory.
///
/// Like a `pending<>`, but it need not be kept: dropping it does not wait, and the scope reports
/// the request if it fails. After the end of the scope, asking for the result is an error
/// (`invalid_input`).
using scoped_pending = kept_pending;

}  // namespace verbspp
