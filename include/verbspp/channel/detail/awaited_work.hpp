// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/config.hpp>
#include <verbspp/base/result.hpp>
#include <verbspp/base/wait_limit.hpp>
#include <verbspp/channel/async_operations.hpp>
#include <verbspp/channel/call_limit.hpp>
#include <verbspp/channel/continuation.hpp>
#include <verbspp/channel/detail/awaited.hpp>
#include <verbspp/channel/detail/channel_core.hpp>
#include <verbspp/channel/pending.hpp>
#include <verbspp/channel/posting_operations.hpp>
#include <verbspp/memory/detail/memory_keeper.hpp>
#include <verbspp/work/operation_traits.hpp>
#include <verbspp/work/operations.hpp>
#include <verbspp/work/transport_error.hpp>
#include <verbspp/work/work_completion.hpp>

#include <coroutine>
#include <cstdint>
#include <new>
#include <optional>
#include <type_traits>
#include <utility>
#include <variant>

namespace verbspp::detail {

/// The awaitable for one request. `of` and `in_scope` post the request, unless the queue is full or
/// earlier awaited requests wait for room; in that case, `channel::poll` posts it later. The
/// request keeps its memory alive until it has finished, except memory that an `async_scope`
/// borrows.
///
/// The request is posted before the object exists, so that the object's members, which are in the
/// coroutine's frame, are written only once.
template <class Operation>
class [[nodiscard]] awaited_work<Operation, void> : awaited, pending_request {
 public:
  /// For memory that is given as elements. The request keeps alive the buffer to which they belong.
  template <class Source, class Element>
  VERBSPP_DATA_PATH static awaited_work of(channel_core& core, const wait_limit& limit,
                                           const Source& source,
                                           const kept_elements<Element>& memory) noexcept {
    if (memory.is_refused()) [[unlikely]]
      return awaited_work(core, limit, memory.refusal());
    // Each branch builds an operation of its own, so that the usual one stays in registers.
    if (!is_next(core)) [[unlikely]]
      return awaited_work(core, limit,
                          delayed{plain(source, memory.elements()), nullptr, memory.keep()});
    return begin_now(core, limit, plain(source, memory.elements()), nullptr, memory.keep());
  }
  /// For memory that is given as an object: a shared buffer, or a message to be sent or written.
  template <class Source>
    requires GoesWithWork<Source>
  VERBSPP_DATA_PATH static awaited_work of(channel_core& core, const wait_limit& limit,
                                           Operation operation, Source&& memory) noexcept {
    if (!name_all(operation, memory)) [[unlikely]]
      return awaited_work(core, limit, element_for<fills<Operation>>(memory).assume_error());
    if constexpr (SharedMemory<Source>)
      return begin(core, limit, operation, nullptr, memory.keep());
    else
      return begin(core, limit, operation, nullptr, std::forward<Source>(memory).give());
  }
  /// For borrowed memory, which must stay valid until the end of the scope.
  VERBSPP_DATA_PATH static awaited_work in_scope(channel_core& core, const wait_limit& limit,
                                                 const Operation& operation,
                                                 scope_state& scope) noexcept {
    return begin(core, limit, operation, &scope, {});
  }
  awaited_work(const awaited_work&) = delete;
  awaited_work& operator=(const awaited_work&) = delete;
  // The destructor of the base class, the request's handle, does not wait: the request keeps its
  // memory alive, or its scope waits for it.
  VERBSPP_DATA_PATH ~awaited_work() {
    if (is_delayed()) [[unlikely]]
      forget_delayed();
  }

  /// Used by senders only: the channel whose `poll` resumes the operation.
  [[nodiscard]] channel_core& polled() const noexcept { return core_; }

  /// \returns true if posting has failed
  [[nodiscard]] VERBSPP_DATA_PATH bool await_ready() const noexcept { return is_refused(); }
  /// \returns false if the result is already available, so the coroutine continues at once
  [[nodiscard]] VERBSPP_DATA_PATH bool await_suspend(std::coroutine_handle<> waiting) noexcept {
    waiting_ = waiting;
    if (has_request()) [[likely]] {
      assume_operation<Operation>();
      return then(*this);
    }
    core_.continue_when(*this);
    return true;
  }
  [[nodiscard]] VERBSPP_DATA_PATH transport_result<completed_work> await_resume() noexcept {
    if (is_refused()) [[unlikely]]
      return *std::get_if<error>(&obstacle_);
    if (has_expired()) [[unlikely]]
      return expired_result();
    if (has_request()) [[likely]]
      assume_operation<Operation>();
    return take(call_limit::of_channel());
  }

 private:
  template <class, class>
  friend class awaited_work;

  static constexpr bool is_receive = std::is_same_v<Operation, receive_operation>;
  static constexpr bool is_filling = is_receive || std::is_same_v<Operation, read_operation> ||
                                     std::is_same_v<Operation, compare_and_swap_operation> ||
                                     std::is_same_v<Operation, fetch_and_add_operation>;
  /// A request that waits for room in the queue, and has not been posted yet.
  struct delayed {
    Operation operation;
    scope_state* scope;
    kept_memory memory;
  };

  VERBSPP_DATA_PATH awaited_work(channel_core& core, const wait_limit& limit,
                                 const request& posted) noexcept
      : awaited(proceed, test_room, limit), pending_request(&core, posted), core_(core) {}
  [[gnu::cold, gnu::noinline]] awaited_work(channel_core& core, const wait_limit& limit,
                                            const error& refusal) noexcept
      : awaited(proceed, test_room, limit), core_(core), obstacle_(refusal) {}
  [[gnu::cold, gnu::noinline]] awaited_work(channel_core& core, const wait_limit& limit,
                                            const delayed& until_room) noexcept
      : awaited(proceed, test_room, limit), core_(core), obstacle_(until_room) {
    core.note_delayed(1);
  }

  /// Posts the request if it is its turn.
  [[nodiscard]] VERBSPP_DATA_PATH static awaited_work begin(channel_core& core,
                                                            const wait_limit& limit,
                                                            const Operation& operation,
                                                            scope_state* scope,
                                                            const kept_memory& memory) noexcept {
    if (!is_next(core)) [[unlikely]]
      return awaited_work(core, limit, delayed{operation, scope, memory});
    return begin_now(core, limit, operation, scope, memory);
  }
  [[nodiscard]] VERBSPP_DATA_PATH static awaited_work begin_now(
      channel_core& core, const wait_limit& limit, const Operation& operation, scope_state* scope,
      const kept_memory& memory) noexcept {
    request made;
    const result<void> posted = post(core, operation, scope, memory, made);
    if (!posted.has_value()) [[unlikely]]
      return awaited_work(core, limit, posted.assume_error());
    return awaited_work(core, limit, made);
  }
  [[nodiscard]] VERBSPP_DATA_PATH static result<void> post(channel_core& core,
                                                           const Operation& operation,
                                                           scope_state* scope,
                                                           const kept_memory& memory,
                                                           request& made) noexcept {
    const result<void> posted = core.post(operation, made, {.scope = scope}, memory);
    if constexpr (!is_filling)
      if (posted.has_value() && core.watches()) [[unlikely]]
        core.protect(made.number, operation_traits<Operation>::elements(operation));
    return posted;
  }
  /// True if the queue has room, and no awaited request has waited longer for it.
  [[nodiscard]] VERBSPP_DATA_PATH static bool is_next(const channel_core& core) noexcept {
    return may_post(core) && !core.has_delayed();
  }
  [[nodiscard]] VERBSPP_DATA_PATH static bool may_post(const channel_core& core) noexcept {
    if constexpr (is_receive)
      return core.receives().need_not_wait();
    else
      return core.sends().need_not_wait();
  }
  [[nodiscard]] static state test_room(condition& self) noexcept {
    return may_post(static_cast<awaited_work&>(self).core_) ? state::met : state::unmet;
  }
  /// Called when the queue has room for a delayed request, when the limit of that wait is reached,
  /// and when the request has finished.
  static void proceed(continuation& self) noexcept {
    auto& mine = static_cast<awaited_work&>(self);
    if (mine.is_delayed() && !mine.has_expired() && mine.post_delayed()) [[unlikely]]
      return;
    mine.waiting_.resume();
  }
  /// Posts the delayed request. \returns true if it was posted, and has not finished
  [[nodiscard, gnu::cold, gnu::noinline]] bool post_delayed() noexcept {
    const delayed due = *std::get_if<delayed>(&obstacle_);
    obstacle_ = std::monostate();
    core_.note_delayed(-1);
    request made;
    const result<void> posted = post(core_, due.operation, due.scope, due.memory, made);
    if (!posted.has_value()) {
      obstacle_ = posted.assume_error();
      return false;
    }
    pending_request::operator=(pending_request(&core_, made));
    return then(*this);
  }
  [[gnu::cold, gnu::noinline]] void forget_delayed() noexcept {
    core_.note_delayed(-1);
    std::get_if<delayed>(&obstacle_)->memory.let_go();
  }
  [[nodiscard, gnu::cold, gnu::noinline]] transport_result<completed_work>
  expired_result() noexcept {
    if (!has_request()) return core_.ended_before(limit());
    const std::optional<error> root = core_.root_of_failure();
    const transport_result<completed_work> done = take(call_limit::of_channel());
    if (done.has_value() || !root || channel_core::is_lost(done.assume_error())) return done;
    return *root;
  }
  [[nodiscard]] VERBSPP_DATA_PATH bool is_delayed() const noexcept {
    return std::holds_alternative<delayed>(obstacle_);
  }
  [[nodiscard]] VERBSPP_DATA_PATH bool is_refused() const noexcept {
    return std::holds_alternative<error>(obstacle_);
  }

  channel_core& core_;
  /// The obstacle to posting the request, if there is one. The index is given because `{}`
  /// would clear all bytes.
  std::variant<std::monostate, delayed, error> obstacle_{std::in_place_index<0>};
};

/// The awaitable for one request that owns its memory. Awaiting it returns the memory with the
/// result.
template <class Operation, class Memory>
  requires(!std::is_void_v<Memory>)
class [[nodiscard]] awaited_work<Operation, Memory> {
  using request = awaited_work<Operation, void>;

 public:
  VERBSPP_DATA_PATH static awaited_work of(channel_core& core, const wait_limit& limit,
                                           const Operation& rest, Memory&& memory) noexcept {
    return awaited_work(core, limit, rest, std::move(memory));
  }
  awaited_work(const awaited_work&) = delete;
  awaited_work& operator=(const awaited_work&) = delete;
  VERBSPP_DATA_PATH ~awaited_work() {
    if (request_.has_request()) [[unlikely]]
      leave();
  }

  [[nodiscard]] channel_core& polled() const noexcept { return request_.polled(); }
  [[nodiscard]] VERBSPP_DATA_PATH bool await_ready() const noexcept {
    return request_.await_ready();
  }
  [[nodiscard]] VERBSPP_DATA_PATH bool await_suspend(std::coroutine_handle<> waiting) noexcept {
    return request_.await_suspend(waiting);
  }
  [[nodiscard]] VERBSPP_DATA_PATH finished<Memory> await_resume() noexcept {
    const transport_result<completed_work> done = request_.await_resume();
    if (!done.has_value()) [[unlikely]]
      channel_core::keep_if_lost(done.assume_error(), memory_);
    else if constexpr (NotesFilling<Memory>)
      memory_.note_filled(done.assume_value());
    return finished<Memory>{done, std::move(memory_)};
  }

 private:
  VERBSPP_DATA_PATH awaited_work(channel_core& core, const wait_limit& limit, const Operation& rest,
                                 Memory&& memory) noexcept
      : memory_(std::move(memory)), request_(begin(core, limit, rest, memory_)) {}
  [[nodiscard]] VERBSPP_DATA_PATH static request begin(channel_core& core, const wait_limit& limit,
                                                       Operation operation,
                                                       Memory& memory) noexcept {
    if (!name_all(operation, memory)) [[unlikely]]
      return request(core, limit, element_for<fills<Operation>>(memory).assume_error());
    return request::begin(core, limit, operation, nullptr, {});
  }
  /// Hands the memory over to the request in flight, because the coroutine is being destroyed. If
  /// the record that this needs cannot be allocated, waits until the request has finished.
  [[gnu::cold]] void leave() noexcept {
    if (!request_.look())
      if (auto* const left = new (std::nothrow) left_memory<Memory>(std::move(memory_)))
        return request_.leave_with({.keeper = left});
    if (!request_.drop_with_memory()) never_free(std::move(memory_));
  }

  Memory memory_;
  request request_;
};

/// The awaitable for the result of a posted request. The program keeps the request's handle.
template <class Handle>
class [[nodiscard]] awaited_result : awaited {
 public:
  awaited_result(Handle& work, const wait_limit& limit) noexcept
      : awaited(resume, test_nothing, limit), work_(work) {}

  /// Used by senders only. \pre the handle has a request
  [[nodiscard]] channel_core& polled() const noexcept { return *work_.polled(); }

  [[nodiscard]] static bool await_ready() noexcept { return false; }
  /// \returns false if the result is available
  [[nodiscard]] bool await_suspend(std::coroutine_handle<> waiting) noexcept {
    waiting_ = waiting;
    return work_.then(*this);
  }
  [[nodiscard]] auto await_resume() noexcept { return work_.wait(); }

 private:
  [[nodiscard]] static state test_nothing(condition& /*self*/) noexcept { return state::unmet; }

  Handle& work_;
};

/// The awaitable of `async_operations::async_room`: waits for room in the send queue.
class [[nodiscard]] awaited_room : awaited {
 public:
  awaited_room(channel_core& core, std::uint32_t wanted, const wait_limit& limit) noexcept
      : awaited(resume, test_room, limit), core_(core), wanted_(wanted) {}

  /// Used by senders only: the channel whose `poll` resumes the operation.
  [[nodiscard]] channel_core& polled() const noexcept { return core_; }

  [[nodiscard]] bool await_ready() noexcept { return is_over(); }
  void await_suspend(std::coroutine_handle<> waiting) noexcept {
    waiting_ = waiting;
    core_.continue_when(*this);
  }
  [[nodiscard]] result<void> await_resume() noexcept;

 private:
  [[nodiscard]] bool is_over() const noexcept {
    return core_.sends().need_not_wait(wanted_) || wanted_ > core_.sends().capacity();
  }
  [[nodiscard]] static state test_room(condition& self) noexcept {
    return static_cast<awaited_room&>(self).is_over() ? state::met : state::unmet;
  }

  channel_core& core_;
  std::uint32_t wanted_;
};

}  // namespace verbspp::detail

namespace verbspp {

inline detail::awaited_result<scoped_pending> scoped_pending::async_wait(
    const wait_limit& limit) noexcept {
  return {*this, limit};
}
inline detail::awaited_result<kept_pending> kept_pending::async_wait(
    const wait_limit& limit) noexcept {
  return {*this, limit};
}
template <class Memory>
detail::awaited_result<pending<Memory>> pending<Memory>::async_wait(
    const wait_limit& limit) noexcept {
  return {*this, limit};
}

}  // namespace verbspp
