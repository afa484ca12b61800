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

namespace verbspp::detail {

/// The awaitable for one request. The constructor posts the request, unless the queue is full or
/// earlier awaited requests wait for room; in that case, `channel::poll` posts it later. The
/// request keeps its memory alive until it has finished, except memory that an `async_scope`
/// borrows.
template <class Operation>
class [[nodiscard]] awaited_work<Operation, void> : awaited, protected pending_request {
 public:
  /// The constructor for memory that is given as elements. The request keeps alive the buffer to
  /// which they belong.
  template <class Source, class Element>
  VERBSPP_DATA_PATH awaited_work(channel_core& core, const wait_limit& limit, const Source& source,
                                 const kept_elements<Element>& memory) noexcept
      : awaited_work(core, limit) {
    if (!memory.is_refused()) [[likely]]
      start(plain(source, memory.elements()), memory.keep());
    else
      refused_ = memory.refusal();
  }
  /// The constructor for memory that is given as an object: a shared buffer, or a message to be
  /// sent or written.
  template <class Source>
    requires GoesWithWork<Source>
  VERBSPP_DATA_PATH awaited_work(channel_core& core, const wait_limit& limit, const Operation& rest,
                                 Source&& memory) noexcept
      : awaited_work(core, limit) {
    Operation operation = rest;
    if (!names(operation, memory)) [[unlikely]]
      return;
    if constexpr (SharedMemory<Source>)
      start(operation, memory.keep());
    else
      start(operation, std::forward<Source>(memory).give());
  }
  /// The constructor for borrowed memory, which must stay valid until the end of the scope.
  VERBSPP_DATA_PATH awaited_work(channel_core& core, const wait_limit& limit,
                                 const Operation& operation, scope_state& scope) noexcept
      : awaited_work(core, limit) {
    scope_ = &scope;
    start(operation, {});
  }
  awaited_work(const awaited_work&) = delete;
  awaited_work& operator=(const awaited_work&) = delete;
  // The destructor of the base class, the request's handle, does not wait: the request keeps its
  // memory alive, or its scope waits for it.
  VERBSPP_DATA_PATH ~awaited_work() {
    if (delayed_) [[unlikely]] {
      core_.note_delayed(-1);
      delayed_->memory.let_go();
    }
  }

  /// Used by senders only: the channel whose `poll` resumes the operation.
  [[nodiscard]] channel_core& polled() const noexcept { return core_; }

  /// \returns true if posting has failed
  [[nodiscard]] VERBSPP_DATA_PATH bool await_ready() const noexcept { return refused_.has_value(); }
  /// \returns false if the result is already available, so the coroutine continues at once
  [[nodiscard]] VERBSPP_DATA_PATH bool await_suspend(std::coroutine_handle<> waiting) noexcept {
    waiting_ = waiting;
    if (has_request()) [[likely]]
      return then(*this);
    core_.continue_when(*this);
    return true;
  }
  [[nodiscard]] VERBSPP_DATA_PATH transport_result<completed_work> await_resume() noexcept {
    if (refused_) [[unlikely]]
      return *refused_;
    if (has_expired()) [[unlikely]]
      return expired_result();
    return take(call_limit::of_channel());
  }

 protected:
  VERBSPP_DATA_PATH awaited_work(channel_core& core, const wait_limit& limit) noexcept
      : awaited(proceed, test_room, limit), core_(core) {}
  /// Sets the elements of the request so that they cover the whole memory object. \returns false if
  /// the memory cannot be used; the error is then in `refused_`
  template <class Source>
  [[nodiscard]] VERBSPP_DATA_PATH bool names(Operation& operation, Source& memory) noexcept {
    if (name_all(operation, memory)) [[likely]]
      return true;
    refused_ = element_for<Operation>(memory).assume_error();
    return false;
  }
  VERBSPP_DATA_PATH void start(const Operation& operation, const kept_memory& memory) noexcept {
    if (may_post() && !core_.has_delayed()) [[likely]]
      post(operation, memory);
    else
      delay(operation, memory);
  }

 private:
  static constexpr bool is_receive = std::is_same_v<Operation, receive_operation>;
  static constexpr bool is_filling = is_receive || std::is_same_v<Operation, read_operation> ||
                                     std::is_same_v<Operation, compare_and_swap_operation> ||
                                     std::is_same_v<Operation, fetch_and_add_operation>;
  /// A request that waits for room in the queue, and has not been posted yet.
  struct delayed {
    delayed(const Operation& of, const kept_memory& kept) noexcept : operation(of), memory(kept) {}
    Operation operation;
    kept_memory memory;
  };

  [[nodiscard]] VERBSPP_DATA_PATH bool may_post() const noexcept {
    if constexpr (is_receive)
      return core_.receives().need_not_wait();
    else
      return core_.sends().need_not_wait();
  }
  [[nodiscard]] static state test_room(condition& self) noexcept {
    return static_cast<awaited_work&>(self).may_post() ? state::met : state::unmet;
  }
  /// Called when the queue has room for a delayed request, when the limit of that wait is reached,
  /// and when the request has finished.
  static void proceed(continuation& self) noexcept {
    awaited_work& mine = static_cast<awaited_work&>(self);
    if (mine.delayed_ && !mine.has_expired()) [[unlikely]] {
      mine.post(mine.delayed_->operation, mine.delayed_->memory);
      mine.delayed_.reset();
      mine.core_.note_delayed(-1);
      if (mine.has_request() && mine.then(mine)) return;
    }
    mine.waiting_.resume();
  }
  VERBSPP_DATA_PATH void post(const Operation& operation, const kept_memory& memory) noexcept {
    request made;
    const result<void> posted = core_.post(operation, made, {.scope = scope_}, memory);
    if (!posted.has_value()) [[unlikely]] {
      refused_ = posted.assume_error();
      return;
    }
    if constexpr (!is_filling)
      if (core_.watches()) [[unlikely]]
        core_.protect(made.number, operation_traits<Operation>::elements(operation));
    pending_request::operator=(pending_request(&core_, made));
  }
  [[gnu::cold]] void delay(const Operation& operation, const kept_memory& memory) noexcept {
    delayed_.emplace(operation, memory);
    core_.note_delayed(1);
  }
  [[nodiscard, gnu::cold]] transport_result<completed_work> expired_result() noexcept {
    if (!has_request()) return core_.ended_before(limit());
    const std::optional<error> root = core_.root_of_failure();
    const transport_result<completed_work> done = take(call_limit::of_channel());
    if (done.has_value() || !root || channel_core::is_lost(done.assume_error())) return done;
    return *root;
  }

  channel_core& core_;
  scope_state* scope_ = nullptr;
  std::optional<error> refused_{};
  std::optional<delayed> delayed_{};
};

/// The awaitable for one request that owns its memory. Awaiting it returns the memory with the
/// result.
template <class Operation, class Memory>
  requires(!std::is_void_v<Memory>)
class [[nodiscard]] awaited_work<Operation, Memory> : awaited_work<Operation, void> {
  using request = awaited_work<Operation, void>;

 public:
  VERBSPP_DATA_PATH awaited_work(channel_core& core, const wait_limit& limit, const Operation& rest,
                                 Memory&& memory) noexcept
      : request(core, limit), memory_(std::move(memory)) {
    Operation operation = rest;
    if (request::names(operation, memory_)) [[likely]]
      request::start(operation, {});
  }
  awaited_work(const awaited_work&) = delete;
  awaited_work& operator=(const awaited_work&) = delete;
  VERBSPP_DATA_PATH ~awaited_work() {
    if (this->has_request()) [[unlikely]]
      leave();
  }

  using request::await_ready;
  using request::await_suspend;
  using request::polled;
  [[nodiscard]] VERBSPP_DATA_PATH finished<Memory> await_resume() noexcept {
    const transport_result<completed_work> done = request::await_resume();
    if (!done.has_value()) [[unlikely]]
      channel_core::keep_if_lost(done.assume_error(), memory_);
    else if constexpr (NotesFilling<Memory>)
      memory_.note_filled(done.assume_value());
    return finished<Memory>{done, std::move(memory_)};
  }

 private:
  /// Hands the memory over to the request in flight, because the coroutine is being destroyed. If
  /// the record that this needs cannot be allocated, waits until the request has finished.
  [[gnu::cold]] void leave() noexcept {
    if (!this->look())
      if (auto* const left = new (std::nothrow) left_memory<Memory>(std::move(memory_)))
        return this->leave_with({.keeper = left});
    if (!this->drop_with_memory()) never_free(std::move(memory_));
  }

  Memory memory_;
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
