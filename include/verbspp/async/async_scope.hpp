// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/async/detail/awaited.hpp>
#include <verbspp/async/detail/awaited_work.hpp>
#include <verbspp/base/config.hpp>
#include <verbspp/base/detail/because.hpp>
#include <verbspp/base/result.hpp>
#include <verbspp/base/wait_limit.hpp>
#include <verbspp/channel/channel.hpp>
#include <verbspp/channel/pending.hpp>
#include <verbspp/channel/posting_operations.hpp>
#include <verbspp/channel/scope.hpp>
#include <verbspp/channel/scope_error.hpp>
#include <verbspp/core/detail/channel_core.hpp>
#include <verbspp/memory/work_memory.hpp>
#include <verbspp/wait/call_limit.hpp>
#include <verbspp/work/operations.hpp>

#include <coroutine>
#include <cstdint>
#include <type_traits>

namespace verbspp {

namespace detail {

/// The awaitable of `async_scope::async_finish` and `async_stream::async_finish`.
class [[nodiscard]] awaited_scope : awaited {
 public:
  using awaited::polled;
  awaited_scope(scope_base& of, channel_core& core, scope_state& requests,
                const wait_limit& limit) noexcept
      : awaited(proceed, test, limit, &core), scope_(of), state_(requests) {}

  [[nodiscard]] bool await_ready() noexcept { return has_finished(); }
  void await_suspend(std::coroutine_handle<> waiting) noexcept {
    waiting_ = waiting;
    polled().continue_when(*this);
  }
  [[nodiscard]] scope_result<void> await_resume() noexcept;

 private:
  /// True if the end of the stream has to be marked with a signaled request, and the queue has room
  /// for that request.
  [[nodiscard]] bool may_mark() const noexcept {
    return polled().has_open_end(state_) && polled().sends().has_room();
  }
  [[nodiscard]] bool has_finished() noexcept {
    if (!polled().has_finished(state_) && may_mark()) polled().mark_end(state_);
    return polled().has_finished(state_);
  }
  [[nodiscard]] static state test(condition& self) noexcept {
    const auto& mine = static_cast<awaited_scope&>(self);
    return mine.polled().has_finished(mine.state_) || mine.may_mark() ? state::met : state::unmet;
  }
  static void proceed(continuation& self) noexcept;

  scope_base& scope_;
  scope_state& state_;
  std::coroutine_handle<> waiting_{};
};

}  // namespace detail

// The message that the compiler prints if an awaited call of a scope gets a memory object.
#define VERBSPP_DETAIL_SCOPE_BORROWS                                                           \
  VERBSPP_DETAIL_REFUSED(                                                                      \
      (GoesWithWork<Memory> || enable_work_memory<std::remove_cvref_t<Memory>>),               \
      "an awaited request of a scope borrows its memory: pass elements, as in .elements = "    \
      "buffer.gather().value() or buffer.scatter().value(). To give the request its memory, "  \
      "await the call of the channel, such as link.async_write(std::move(buffer), {.remote = " \
      "memory})")

/// A scope for those requests of a coroutine that borrow their memory. The destructor waits until
/// the device no longer accesses that memory, so declare the scope after the memory that its
/// requests use.
///
///     async_scope scope(link);
///     VERBSPP_CO_TRY(source, from.gather());
///     VERBSPP_CO_TRYV(co_await scope.async_write({.elements = source, .remote = theirs}));
///     ...
///     VERBSPP_CO_TRYV(co_await scope.async_finish());
///
/// The scope has those awaited calls of a channel that take an operation as their argument, such as
/// `async_write(operation)`. Here, the elements of the operation are borrowed. The functions
/// `post_write` and so on never wait: if the queue is full, they fail (`would_block`). Their
/// handles need not be kept, but dropping the handle to a request that owns its memory waits for
/// the request.
///
/// If the coroutine is destroyed, so is the scope: its destructor blocks the thread until the
/// requests have finished, but at most for the channel's default limit, after which the channel
/// breaks. That is the price of borrowed memory; shared and owned memory need no scope. The scopes
/// of several coroutines may be open on one channel at the same time.
///
/// A scope can be neither copied nor moved, and may outlive its channel. Thread rule: as for the
/// channel.
class [[nodiscard]] async_scope : public detail::scope_base,
                                  public posting_operations<async_scope> {
  template <class Operation>
  using awaited_work = detail::awaited_work<Operation, void>;

 public:
  explicit async_scope(channel& link) noexcept
      : scope_base(link.core(), call_limit::of_channel()) {}

  [[nodiscard]] awaited_work<send_operation> async_send(
      const send_operation& operation, const wait_limit& limit = detail::default_limit) noexcept {
    return awaited_work<send_operation>::in_scope(core_, limit, operation, state_);
  }
  [[nodiscard]] awaited_work<receive_operation> async_receive(
      const receive_operation& operation,
      const wait_limit& limit = detail::default_limit) noexcept {
    return awaited_work<receive_operation>::in_scope(core_, limit, operation, state_);
  }
  [[nodiscard]] awaited_work<write_operation> async_write(
      const write_operation& operation, const wait_limit& limit = detail::default_limit) noexcept {
    return awaited_work<write_operation>::in_scope(core_, limit, operation, state_);
  }
  [[nodiscard]] awaited_work<read_operation> async_read(
      const read_operation& operation, const wait_limit& limit = detail::default_limit) noexcept {
    return awaited_work<read_operation>::in_scope(core_, limit, operation, state_);
  }
  [[nodiscard]] awaited_work<compare_and_swap_operation> async_compare_and_swap(
      const compare_and_swap_operation& operation,
      const wait_limit& limit = detail::default_limit) noexcept {
    return awaited_work<compare_and_swap_operation>::in_scope(core_, limit, operation, state_);
  }
  [[nodiscard]] awaited_work<fetch_and_add_operation> async_fetch_and_add(
      const fetch_and_add_operation& operation,
      const wait_limit& limit = detail::default_limit) noexcept {
    return awaited_work<fetch_and_add_operation>::in_scope(core_, limit, operation, state_);
  }

  template <class Memory>
  void async_send(Memory&&, const send_operation& = {},
                  const wait_limit& = detail::default_limit) VERBSPP_DETAIL_SCOPE_BORROWS;
  template <class Memory>
  void async_receive(Memory&&,
                     const wait_limit& = detail::default_limit) VERBSPP_DETAIL_SCOPE_BORROWS;
  template <class Memory>
  void async_write(Memory&&, const write_operation&,
                   const wait_limit& = detail::default_limit) VERBSPP_DETAIL_SCOPE_BORROWS;
  template <class Memory>
  void async_read(Memory&&, const read_operation&,
                  const wait_limit& = detail::default_limit) VERBSPP_DETAIL_SCOPE_BORROWS;

  /// Waits until all requests that were posted through the scope have finished, and reports the
  /// failures of those whose results were not taken. If the limit is reached, the channel breaks.
  /// More requests may be posted afterwards.
  /// \errors the root of the channel's failure if requests have failed; `timed_out`, `cancelled` if
  /// the limit is reached; `not_connected` if the channel is empty, or was renewed after requests
  /// had failed
  [[nodiscard]] detail::awaited_scope async_finish(
      const wait_limit& limit = detail::default_limit) noexcept {
    return {*this, core_, state_, limit};
  }

 private:
  friend posting_operations<async_scope>;
  using borrowing_handle = scoped_pending;
  using keeping_handle = scoped_pending;

  [[nodiscard]] VERBSPP_DATA_PATH detail::posting_terms terms() noexcept {
    return {.scope = &state_};
  }
};

#undef VERBSPP_DETAIL_SCOPE_BORROWS

/// A scope for a coroutine that posts many requests in a row. The requests have no handles and
/// borrow their memory. Only one out of every `stream_options::signal_every` RDMA writes and
/// reads is signaled.
///
///     async_stream stream(link);
///     for (const piece& each : pieces) {
///       VERBSPP_CO_TRYV(co_await stream.async_room());
///       VERBSPP_CO_TRYV(stream.post_write({.elements = each.memory, .remote = each.remote}));
///     }
///     VERBSPP_CO_TRYV(co_await stream.async_finish());
///
/// The functions `post_write` and so on never wait: if the queue is full, they fail
/// (`would_block`). Unsignaled requests keep their places in the queue until the next signaled
/// request on the channel has finished; if necessary, `async_finish` posts one at the end.
///
/// As for an `async_scope`, the destructor waits for the requests, and blocks the thread if they
/// have not finished; the object can be neither copied nor moved, and may outlive its channel.
/// Thread rule: as for the channel.
class [[nodiscard]] async_stream : public basic_stream<false> {
 public:
  explicit async_stream(channel& link, const stream_options& options = {}) noexcept
      : basic_stream(link.core(), call_limit::of_channel(), options) {}

  /// Like `channel::async_room`.
  [[nodiscard]] detail::awaited_room async_room(
      std::uint32_t requests = 1, const wait_limit& limit = detail::default_limit) noexcept {
    return {core_, requests, limit};
  }
  /// Like `async_scope::async_finish`.
  [[nodiscard]] detail::awaited_scope async_finish(
      const wait_limit& limit = detail::default_limit) noexcept {
    return {*this, core_, state_, limit};
  }
};

}  // namespace verbspp
