// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/async/detail/awaited.hpp>
#include <verbspp/base/config.hpp>
#include <verbspp/base/result.hpp>
#include <verbspp/base/wait_limit.hpp>
#include <verbspp/channel/async_operations.hpp>
#include <verbspp/channel/call_limit.hpp>
#include <verbspp/channel/continuation.hpp>
#include <verbspp/channel/detail/channel_core.hpp>
#include <verbspp/channel/pending.hpp>
#include <verbspp/channel/posting_operations.hpp>
#include <verbspp/memory/detail/memory_keeper.hpp>
#include <verbspp/work/operation_traits.hpp>
#include <verbspp/work/operations.hpp>
#include <verbspp/work/transport_error.hpp>
#include <verbspp/work/work_completion.hpp>

#include <cassert>
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
/// request keeps its memory alive until it has finished, unless an `async_scope` borrows the
/// memory, or the awaitable below owns it.
///
/// The request is posted before the object exists, so that the object's members, which are in the
/// coroutine's frame, are written only once. Posting also adds the continuation, so that awaiting
/// only stores the coroutine. The usual path is inlined into the coroutine, so that the compiler
/// need not read the operation back from the frame.
template <class Operation>
class [[nodiscard]] awaited_work<Operation, void> : awaited {
 public:
  /// For memory that is given as elements. If they belong to a shared buffer, the request keeps
  /// that buffer alive.
  /// \param limit null stands for the channel's default limit
  template <class Source, class Element>
  VERBSPP_DATA_PATH static awaited_work of(channel_core& core, const wait_limit* limit,
                                           const Source& source,
                                           const kept_elements<Element>& memory) noexcept {
    if (limit != nullptr) return with_care(core, limit, source, memory);
    return usual(core, source, memory);
  }
  /// For memory that is given as an object: a shared buffer, a message to be sent or written, or
  /// an lvalue of memory that the awaitable below owns.
  template <class Source>
  VERBSPP_DATA_PATH static awaited_work of(channel_core& core, const wait_limit* limit,
                                           Operation operation, Source&& memory) noexcept {
    if (!name_all(operation, memory)) [[unlikely]]
      return awaited_work(core, element_for<fills<Operation>>(memory).assume_error());
    if constexpr (SharedMemory<Source>)
      return begin(core, limit, operation, nullptr, memory.keep());
    else if constexpr (GoesWithWork<Source>)
      return begin(core, limit, operation, nullptr, std::forward<Source>(memory).give());
    else
      return begin(core, limit, operation, nullptr, {});
  }
  /// For borrowed memory, which must stay valid until the end of the scope.
  VERBSPP_DATA_PATH static awaited_work in_scope(channel_core& core, const wait_limit& limit,
                                                 const Operation& operation,
                                                 scope_state& scope) noexcept {
    return begin(core, given(limit), operation, &scope, {});
  }
  awaited_work(const awaited_work&) = delete;
  awaited_work& operator=(const awaited_work&) = delete;
  /// Does not wait: the request keeps its memory alive, or the scope waits for the request.
  VERBSPP_DATA_PATH ~awaited_work() {
    if (!std::holds_alternative<std::monostate>(progress_)) [[unlikely]]
      end_early();
  }

  using awaited::polled;

  [[nodiscard]] static constexpr bool await_ready() noexcept { return false; }
  /// \returns false if posting has failed, or a poll has seen that the request has finished, so the
  /// coroutine continues immediately
  [[nodiscard]] VERBSPP_DATA_PATH bool await_suspend(std::coroutine_handle<> waiting) noexcept {
    waiting_ = waiting;
    return is_waiting();
  }
  [[nodiscard]] VERBSPP_DATA_PATH transport_result<completed_work> await_resume() noexcept {
    if (!std::holds_alternative<usual_request>(progress_)) [[unlikely]]
      return unusual_result();
    const request one = usual_posted();
    if (!polled().has_succeeded(one)) [[unlikely]]
      return unusual_result();
    const completed_work done = polled().take_succeeded(one);
    progress_.template emplace<std::monostate>();
    // The continuation has been called, so the destructor need not check whether it waits.
    assert(!is_waiting());
    if (is_waiting()) __builtin_unreachable();
    return done;
  }

 private:
  template <class, class>
  friend class awaited_work;

  static constexpr bool is_receive = std::is_same_v<Operation, receive_operation>;
  static constexpr bool is_filling = is_receive || std::is_same_v<Operation, read_operation> ||
                                     std::is_same_v<Operation, compare_and_swap_operation> ||
                                     std::is_same_v<Operation, fetch_and_add_operation>;
  static constexpr bool is_read = std::is_same_v<Operation, read_operation>;
  /// A request in flight without a scope or a limit, which keeps its memory alive or owns it. The
  /// continuation has the request's number.
  struct usual_request {
    /// The slot of a receive, or the number of bytes to read.
    std::conditional_t<is_receive, receive_slot*,
                       std::conditional_t<is_read, std::uint32_t, std::monostate>>
        rest;
  };
  /// A request that waits for room in the queue, and has not been posted yet.
  struct delayed {
    Operation operation;
    scope_state* scope;
    kept_memory memory;
  };

  VERBSPP_DATA_PATH awaited_work(channel_core& core, const request& posted) noexcept
      : awaited(resume, &core), progress_(usual_part(posted)) {
    core.open_handle();
    core.continue_last(posted, *this);
  }
  /// For a request with a scope or a limit.
  [[gnu::noinline]] awaited_work(channel_core& core, const wait_limit* limit,
                                 request posted) noexcept
      : awaited(resume, &core), progress_(posted) {
    core.open_handle();
    if (limit != nullptr) set_limit(*limit);
    core.continue_last(posted, *this);
  }
  [[gnu::cold, gnu::noinline]] awaited_work(channel_core& core, const error& refusal) noexcept
      : awaited(resume, &core), progress_(refusal) {}
  [[gnu::cold, gnu::noinline]] awaited_work(channel_core& core, const wait_limit* limit,
                                            const delayed& until_room) noexcept
      : awaited(proceed, is_receive ? test_receive_room : test_room,
                limit != nullptr ? *limit : default_limit, &core),
        progress_(until_room) {
    line_up();
  }

  /// Posts a request without a limit of its own. Usually, it keeps shared memory alive, has no
  /// options, and can be posted immediately.
  template <class Source, class Element>
  [[nodiscard]] VERBSPP_DATA_PATH static awaited_work usual(
      channel_core& core, const Source& source, const kept_elements<Element>& memory) noexcept {
    // `with_care` builds an operation of its own, so that the operation here stays in registers.
    if (!memory.is_kept() || has_options(source) || !has_room(core) ||
        core.polls().needs_care_to_await()) [[unlikely]]
      return with_care(core, nullptr, source, memory);
    counted_keeper& keeper = memory.keeper();
    request made;
    const result<void> posted = core.post(without_options(source, memory.element()), made);
    if (!posted.has_value()) [[unlikely]]
      return awaited_work(core, posted.assume_error());
    keeper.count.add();
    core.keep(made, {.keeper = &keeper});
    return awaited_work(core, made);
  }
  template <class Source, class Element>
  [[nodiscard, gnu::noinline]] static awaited_work with_care(
      channel_core& core, const wait_limit* limit, const Source& source,
      const kept_elements<Element>& memory) noexcept {
    if (memory.is_refused()) return awaited_work(core, memory.refusal());
    return begin(core, limit, plain(source, memory.elements()), nullptr, memory.keep());
  }
  /// Posts the request, unless the queue is full or earlier awaited requests wait for room. In that
  /// case, returns an awaitable that posts it later.
  [[nodiscard, gnu::noinline]] static awaited_work begin(channel_core& core,
                                                         const wait_limit* limit,
                                                         const Operation& operation,
                                                         scope_state* scope,
                                                         kept_memory memory) noexcept {
    // If the queue is closed, `may_post` returns true, and posting returns the error.
    if (!may_post(core) || core.polls().has_delayed()) [[unlikely]]
      return awaited_work(core, limit, delayed{operation, scope, memory});
    request made;
    const result<void> posted = post(core, operation, scope, memory, made);
    if (!posted.has_value()) [[unlikely]]
      return awaited_work(core, posted.assume_error());
    if (limit != nullptr || scope != nullptr) return awaited_work(core, limit, made);
    return awaited_work(core, made);
  }
  [[nodiscard]] VERBSPP_DATA_PATH static result<void> post(channel_core& core,
                                                           const Operation& operation,
                                                           scope_state* scope, kept_memory memory,
                                                           request& made) noexcept {
    const result<void> posted = core.post(operation, made, {.scope = scope});
    if (!posted.has_value()) [[unlikely]] {
      memory.let_go();
      return posted;
    }
    if (memory.keeper != nullptr) core.keep(made, memory);
    if constexpr (!is_filling)
      if (core.watches() && scope == nullptr) [[unlikely]]
        core.protect(made.number, operation_traits<Operation>::elements(operation));
    return posted;
  }
  [[nodiscard]] VERBSPP_DATA_PATH static usual_request usual_part(const request& posted) noexcept {
    if constexpr (is_receive)
      return {.rest = posted.slot};
    else if constexpr (is_read)
      return {.rest = posted.bytes};
    else
      return {};
  }
  /// The request in flight. The operation is a constant here, so the compiler omits the code for
  /// other operations. \pre `progress_` holds a `usual_request`
  [[nodiscard]] VERBSPP_DATA_PATH request usual_posted() const noexcept {
    const usual_request& part = *std::get_if<usual_request>(&progress_);
    request one;
    if constexpr (is_receive) {
      one.slot = part.rest;
      one.operation = work_operation::receive;
    } else {
      one.number = request_number();
      one.operation = operation_traits<Operation>::completes_as;
    }
    if constexpr (is_read) one.bytes = part.rest;
    one.keeps = true;
    return one;
  }
  [[nodiscard]] VERBSPP_DATA_PATH bool is_posted() const noexcept {
    return std::holds_alternative<usual_request>(progress_) ||
           std::holds_alternative<request>(progress_);
  }
  /// \pre `is_posted()`
  [[nodiscard]] request posted() const noexcept {
    const request* const unusual = std::get_if<request>(&progress_);
    return unusual != nullptr ? *unusual : usual_posted();
  }
  [[nodiscard]] VERBSPP_DATA_PATH static bool has_room(const channel_core& core) noexcept {
    if constexpr (is_receive)
      return core.receives().is_open() && core.receives().has_room();
    else
      return core.sends().has_room();
  }
  [[nodiscard]] VERBSPP_DATA_PATH static bool may_post(const channel_core& core) noexcept {
    if constexpr (is_receive)
      return core.receives().need_not_wait();
    else
      return core.sends().need_not_wait();
  }
  [[nodiscard]] static state test_receive_room(condition& self) noexcept {
    const channel_core& core = static_cast<awaited_work&>(self).polled();
    return core.receives().need_not_wait() ? state::met : state::unmet;
  }
  /// Called when the queue has room for a delayed request, when the limit is reached before that,
  /// and when the request has finished.
  static void proceed(continuation& self) noexcept {
    auto& mine = static_cast<awaited_work&>(self);
    if (std::holds_alternative<delayed>(mine.progress_) && mine.end_delay()) return;
    resume(self);
  }
  /// Posts the delayed request, or refuses it if the limit was reached. \returns true if it was
  /// posted, and has not finished
  [[nodiscard, gnu::cold, gnu::noinline]] bool end_delay() noexcept {
    delayed due = *std::get_if<delayed>(&progress_);
    leave_line();
    if (has_expired()) {
      due.memory.let_go();
      progress_ = channel_core::ended_before(limit());
      return false;
    }
    request made;
    const result<void> posted = post(polled(), due.operation, due.scope, due.memory, made);
    if (!posted.has_value()) {
      progress_ = posted.assume_error();
      return false;
    }
    polled().open_handle();
    progress_ = made;
    return polled().continue_with(made, *this);
  }
  [[gnu::cold, gnu::noinline]] void end_early() noexcept {
    if (is_posted()) return polled().drop(posted());
    if (delayed* const mine = std::get_if<delayed>(&progress_)) {
      leave_line();
      mine->memory.let_go();
    }
  }
  /// The result of a request that has not succeeded, or whose result needs more work, for example
  /// because the request has a scope.
  [[nodiscard, gnu::noinline]] transport_result<completed_work> unusual_result() noexcept {
    if (const error* const refusal = std::get_if<error>(&progress_)) return *refusal;
    if (!is_posted()) return no_request();
    const std::optional<error> root = has_expired() ? polled().root_of_failure() : std::nullopt;
    const transport_result<completed_work> done = polled().take(posted(), call_limit::of_channel());
    progress_.template emplace<std::monostate>();
    if (done.has_value() || !root || channel_core::is_lost(done.assume_error())) return done;
    return *root;
  }

  /// The request in flight; the request to post later; the reason why the request was refused; or
  /// nothing, because the result was taken. A `request` has a scope or a limit, or was delayed.
  std::variant<usual_request, request, delayed, error, std::monostate> progress_;
};

/// The awaitable for one request that owns its memory. Awaiting it returns the memory with the
/// result.
template <class Operation, class Memory>
  requires(!std::is_void_v<Memory>)
class [[nodiscard]] awaited_work<Operation, Memory> {
  using request = awaited_work<Operation, void>;

 public:
  VERBSPP_DATA_PATH static awaited_work of(channel_core& core, const wait_limit* limit,
                                           const Operation& rest, Memory&& memory) noexcept {
    return awaited_work(core, limit, rest, std::move(memory));
  }
  awaited_work(const awaited_work&) = delete;
  awaited_work& operator=(const awaited_work&) = delete;
  VERBSPP_DATA_PATH ~awaited_work() {
    if (request_.is_posted()) [[unlikely]]
      leave();
  }

  [[nodiscard]] channel_core& polled() const noexcept { return request_.polled(); }
  [[nodiscard]] static constexpr bool await_ready() noexcept { return false; }
  [[nodiscard]] VERBSPP_DATA_PATH bool await_suspend(std::coroutine_handle<> waiting) noexcept {
    return request_.await_suspend(waiting);
  }
  [[nodiscard]] VERBSPP_DATA_PATH finished<Memory> await_resume() noexcept {
    const transport_result<completed_work> done = request_.await_resume();
    if (!done.has_value()) [[unlikely]]
      channel_core::keep_if_lost(done.assume_error(), memory_);
    else
      note_filling(memory_, done);
    return finished<Memory>{done, std::move(memory_)};
  }

 private:
  VERBSPP_DATA_PATH awaited_work(channel_core& core, const wait_limit* limit, const Operation& rest,
                                 Memory&& memory) noexcept
      : memory_(std::move(memory)), request_(request::of(core, limit, rest, memory_)) {}
  /// Hands the memory over to the request in flight, because the coroutine is being destroyed. If
  /// the record for this handover cannot be allocated, this function waits until the request has
  /// finished.
  [[gnu::cold]] void leave() noexcept {
    channel_core& core = request_.polled();
    detail::request posted = request_.posted();
    request_.progress_.template emplace<std::monostate>();
    if (!core.is_done(posted)) core.collect();
    if (!core.is_done(posted))
      if (auto* const left = new (std::nothrow) left_memory<Memory>(std::move(memory_))) {
        core.keep(posted, {.keeper = left});
        return core.drop(posted);
      }
    if (!core.drop_with_care(posted, true)) never_free(std::move(memory_));
  }

  Memory memory_;
  request request_;
};

/// The awaitable for the result of a posted request. The program keeps the request's handle.
template <class Handle>
class [[nodiscard]] awaited_result : awaited {
 public:
  awaited_result(Handle& work, const wait_limit& limit) noexcept
      : awaited(resume, work.polled()), work_(work) {
    if (const wait_limit* const own = given(limit)) set_limit(*own);
  }

  using awaited::polled;

  [[nodiscard]] static bool await_ready() noexcept { return false; }
  /// \returns false if the result is available
  [[nodiscard]] bool await_suspend(std::coroutine_handle<> waiting) noexcept {
    waiting_ = waiting;
    return work_.then(*this);
  }
  [[nodiscard]] auto await_resume() noexcept {
    channel_core* const core = work_.polled();
    const std::optional<error> root =
        has_expired() && core != nullptr ? core->root_of_failure() : std::nullopt;
    auto done = work_.wait();
    if (root) [[unlikely]]
      blame(done, *root);
    return done;
  }

 private:
  /// If the request was flushed because this wait's limit broke the channel, reports the limit as
  /// the cause.
  static void blame(transport_result<completed_work>& done, const error& root) noexcept {
    if (done.has_error() && !channel_core::is_lost(done.assume_error())) done = root;
  }
  template <class Memory>
  static void blame(finished<Memory>& done, const error& root) noexcept {
    blame(done.result, root);
  }

  Handle& work_;
};

/// The awaitable of `async_operations::async_room`: waits for room in the send queue.
class [[nodiscard]] awaited_room : awaited {
 public:
  awaited_room(channel_core& core, std::uint32_t wanted, const wait_limit& limit) noexcept
      : awaited(resume, test_wanted_room, limit, &core), wanted_(wanted) {}

  using awaited::polled;

  [[nodiscard]] bool await_ready() noexcept { return is_over(); }
  void await_suspend(std::coroutine_handle<> waiting) noexcept {
    waiting_ = waiting;
    polled().continue_when(*this);
  }
  [[nodiscard]] result<void> await_resume() noexcept;

 private:
  [[nodiscard]] bool is_over() const noexcept { return polled().sends().need_not_wait(wanted_); }
  [[nodiscard]] static state test_wanted_room(condition& self) noexcept {
    return static_cast<awaited_room&>(self).is_over() ? state::met : state::unmet;
  }

  std::uint32_t wanted_;
};

}  // namespace verbspp::detail

namespace verbspp {

inline detail::awaited_result<kept_pending> kept_pending::async_wait(
    const wait_limit& limit) noexcept {
  return {*this, limit};
}
template <class Memory>
detail::awaited_result<pending<Memory>> pending<Memory>::async_wait(
    const wait_limit& limit) noexcept
  requires(!std::is_void_v<Memory>)
{
  return {*this, limit};
}

}  // namespace verbspp
