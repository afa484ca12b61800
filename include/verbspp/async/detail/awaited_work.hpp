// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/async/detail/awaited.hpp>
#include <verbspp/base/config.hpp>
#include <verbspp/base/result.hpp>
#include <verbspp/base/wait_limit.hpp>
#include <verbspp/channel/async_operations.hpp>
#include <verbspp/channel/pending.hpp>
#include <verbspp/channel/posting_operations.hpp>
#include <verbspp/core/detail/channel_core.hpp>
#include <verbspp/memory/detail/memory_keeper.hpp>
#include <verbspp/wait/call_limit.hpp>
#include <verbspp/wait/continuation.hpp>
#include <verbspp/work/operation_traits.hpp>
#include <verbspp/work/operations.hpp>
#include <verbspp/work/transport_error.hpp>
#include <verbspp/work/work_completion.hpp>

#include <cassert>
#include <coroutine>
#include <cstdint>
#include <memory>
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
  template <class Source>
  VERBSPP_DATA_PATH static awaited_work of(channel_core& core, const wait_limit* limit,
                                           const Source& source) noexcept {
    if (limit != nullptr) return with_care(core, limit, plain(source), awaited_memory(source));
    return post_usual(core, source);
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
    if (stage() != taken) [[unlikely]]
      end_early();
  }

  using awaited::polled;

  [[nodiscard]] static constexpr bool await_ready() noexcept { return false; }
  /// \returns false if posting has failed, or a poll has seen that the request has finished, so the
  /// coroutine continues immediately
  [[nodiscard]] VERBSPP_DATA_PATH bool await_suspend(std::coroutine_handle<> waiting) noexcept {
    const bool waits = is_waiting();  // read before a call that the compiler cannot look into
    if (is_plain()) [[likely]]
      set_waiting(waiting);
    else
      set_unusual_waiting(waiting);
    return waits;
  }
  [[nodiscard]] VERBSPP_DATA_PATH transport_result<completed_work> await_resume() noexcept {
    const transport_result<completed_work> done = take_result();
    note_end(taken);
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
    std::coroutine_handle<> waiting = std::noop_coroutine();
  };
  static_assert(std::is_trivially_destructible_v<delayed>);  // it is in a union

  // The handle is opened before the object exists, so that g++ knows that this does not change the
  // object.
  VERBSPP_DATA_PATH awaited_work(channel_core& core, const request& posted) noexcept
      : awaited(with_handle(core)), usual_(usual_part(posted)) {
    core.continue_last(posted, *this);
  }
  /// For a request with a scope or a limit.
  [[gnu::noinline]] awaited_work(channel_core& core, const wait_limit* limit,
                                 request posted) noexcept
      : awaited(&core), unusual_(posted) {
    set_stage(unusual);
    core.open_handle();
    if (limit != nullptr) set_limit(*limit);
    core.continue_last(posted, *this);
  }
  // The result is passed by value, because its address would force it into memory.
  [[gnu::cold, gnu::noinline]] awaited_work(channel_core& core, result<void> failed) noexcept
      : awaited(&core), refusal_(failed.assume_error()) {
    set_stage(refused);
  }
  [[gnu::cold, gnu::noinline]] awaited_work(channel_core& core, const wait_limit* limit,
                                            const delayed& until_room) noexcept
      : awaited(proceed, is_receive ? test_receive_room : test_room,
                limit != nullptr ? *limit : default_limit, &core),
        delayed_(until_room) {
    set_stage(is_delayed);
    line_up();
  }

  /// Posts a request without a limit of its own. Usually, it keeps shared memory alive, has no
  /// options, and can be posted immediately.
  template <class Source>
  [[nodiscard]] VERBSPP_DATA_PATH static awaited_work post_usual(channel_core& core,
                                                                 const Source& source) noexcept {
    const auto memory = awaited_memory(source);
    counted_keeper* const keeper = memory.keeper();
    // `with_care` gets copies, so that the operation here stays in registers.
    if (keeper == nullptr || has_options(source) || !has_room(core) ||
        core.polls().needs_care_to_await()) [[unlikely]]
      return with_care(core, nullptr, plain(source), memory.copy());
    Operation operation = plain(source);
    set_memory(operation, memory.element());
    request made;
    const result<void> posted = core.post(operation, made);
    if (!posted.has_value()) [[unlikely]]
      return awaited_work(core, posted);
    keeper->count.add();
    core.keep(made, {.keeper = keeper});
    return awaited_work(core, made);
  }
  template <class Element>
  [[nodiscard, gnu::noinline]] static awaited_work with_care(
      channel_core& core, const wait_limit* limit, const Operation& rest,
      kept_elements<Element> memory) noexcept {
    const auto elements = memory.elements();
    if (!elements.has_value()) return awaited_work(core, elements.assume_error());
    Operation operation = rest;
    set_memory(operation, elements.assume_value());
    counted_keeper* const keeper = memory.keeper();
    if (keeper != nullptr) keeper->count.add();
    return begin(core, limit, operation, nullptr, {.keeper = keeper});
  }
  /// Posts the request, unless the limit has been reached, the queue is full, or earlier awaited
  /// requests wait for room. If there is no room, returns an awaitable that posts it later.
  [[nodiscard, gnu::noinline]] static awaited_work begin(channel_core& core,
                                                         const wait_limit* limit,
                                                         const Operation& operation,
                                                         scope_state* scope,
                                                         kept_memory memory) noexcept {
    if (limit != nullptr && limit->has_passed()) {
      memory.let_go();
      return awaited_work(core, channel_core::ended_before(*limit));
    }
    // If the queue is closed, `may_post` returns true, and posting returns the error.
    if (!may_post(core) || core.polls().has_delayed()) [[unlikely]]
      return awaited_work(core, limit, delayed{operation, scope, memory});
    request made;
    const result<void> posted = post(core, operation, scope, memory, made);
    if (!posted.has_value()) [[unlikely]]
      return awaited_work(core, posted);
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
  [[nodiscard]] VERBSPP_DATA_PATH static channel_core* with_handle(channel_core& core) noexcept {
    core.open_handle();
    return &core;
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
  /// other operations. \pre the stage is `usual`
  [[nodiscard]] VERBSPP_DATA_PATH request usual_posted() const noexcept {
    [[maybe_unused]] const usual_request& part = usual_;
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
  [[nodiscard]] VERBSPP_DATA_PATH bool is_posted() const noexcept { return stage() <= unusual; }
  /// \pre `is_posted()`
  [[nodiscard]] request posted() const noexcept {
    return stage() == unusual ? unusual_ : usual_posted();
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
  /// Called when the queue has room for a delayed request, or when the limit is reached before
  /// that.
  static void proceed(continuation& self) noexcept {
    auto& mine = static_cast<awaited_work&>(self);
    const std::coroutine_handle<> waiting = mine.delayed_.waiting;
    if (!mine.end_delay()) waiting.resume();
  }
  /// Posts the delayed request, or refuses it if the limit was reached. \returns true if it was
  /// posted, and has not finished
  [[nodiscard, gnu::cold, gnu::noinline]] bool end_delay() noexcept {
    delayed due = delayed_;
    become_coroutine(due.waiting.address());
    leave_line();
    if (has_expired()) {
      due.memory.let_go();
      refuse(channel_core::ended_before(limit()));
      return false;
    }
    request made;
    const result<void> posted = post(polled(), due.operation, due.scope, due.memory, made);
    if (!posted.has_value()) {
      refuse(posted.assume_error());
      return false;
    }
    polled().open_handle();
    std::construct_at(&unusual_, made);
    set_stage(unusual);
    return polled().continue_with(made, *this);
  }
  [[gnu::cold, gnu::noinline]] void set_unusual_waiting(std::coroutine_handle<> waiting) noexcept {
    if (stage() == is_delayed)
      delayed_.waiting = waiting;
    else
      set_waiting(waiting);
  }
  void refuse(const error& refusal) noexcept {
    std::construct_at(&refusal_, refusal);
    set_stage(refused);
  }
  [[gnu::cold, gnu::noinline]] void end_early() noexcept {
    if (is_posted()) return polled().drop(posted());
    if (stage() != is_delayed) return;
    leave_line();
    delayed_.memory.let_go();
  }
  [[nodiscard]] VERBSPP_DATA_PATH transport_result<completed_work> take_result() noexcept {
    if (!is_plain()) [[unlikely]]
      return unusual_result();
    const request one = usual_posted();
    if (!polled().has_succeeded(one)) [[unlikely]]
      return unusual_result();
    return polled().take_succeeded(one);
  }
  /// The result of a request that has not succeeded, or whose result needs more work, for example
  /// because the request has a scope.
  [[nodiscard, gnu::noinline]] transport_result<completed_work> unusual_result() noexcept {
    if (has_limit()) forget_limit();
    if (stage() == refused) return refusal_;
    if (!is_posted()) return no_request();
    const std::optional<error> root = has_expired() ? polled().root_of_failure() : std::nullopt;
    const transport_result<completed_work> done = polled().take(posted(), call_limit::of_channel());
    if (done.has_value() || !root || channel_core::is_lost(done.assume_error())) return done;
    return *root;
  }

  /// The values of `stage`, each with the member that it makes valid.
  enum : std::uint8_t {
    usual,       ///< in flight
    unusual,     ///< in flight, with a scope or a limit, or after a delay
    is_delayed,  ///< not posted yet
    refused,
    taken  ///< the result was taken
  };
  union {
    usual_request usual_;
    request unusual_;
    delayed delayed_;
    error refusal_;
  };
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
    request_.set_stage(request::taken);
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
      : awaited(work.polled()), work_(work) {
    set_given(limit);
  }

  using awaited::polled;

  [[nodiscard]] static bool await_ready() noexcept { return false; }
  /// \returns false if the result is available
  [[nodiscard]] bool await_suspend(std::coroutine_handle<> waiting) noexcept {
    set_waiting(waiting);
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
      : awaited(test_wanted_room, limit, &core), wanted_(wanted) {}

  using awaited::polled;

  [[nodiscard]] bool await_ready() noexcept { return is_over(); }
  void await_suspend(std::coroutine_handle<> waiting) noexcept {
    set_waiting(waiting);
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
