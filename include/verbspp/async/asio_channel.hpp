// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/async/detail/awaited.hpp>
#include <verbspp/async/detail/awaited_message.hpp>
#include <verbspp/async/detail/awaited_work.hpp>
#include <verbspp/base/asio_source.hpp>
#include <verbspp/base/detail/asio_library.hpp>
#include <verbspp/base/detail/because.hpp>
#include <verbspp/base/detail/list_links.hpp>
#include <verbspp/base/error.hpp>
#include <verbspp/base/result.hpp>
#include <verbspp/base/wait_limit.hpp>
#include <verbspp/channel/async_operations.hpp>
#include <verbspp/channel/channel.hpp>
#include <verbspp/channel/inbox.hpp>
#include <verbspp/channel/posting_operations.hpp>
#include <verbspp/memory/work_memory.hpp>
#include <verbspp/work/operations.hpp>

#include <cassert>
#include <concepts>
#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <type_traits>
#include <utility>

namespace verbspp {

namespace detail {
inline namespace VERBSPP_DETAIL_ASIO {

/// An operation that has begun, and has not completed.
class asio_operation : public list_links {
 public:
  using function = void (*)(asio_operation& self, const error* cause);

  explicit asio_operation(function ends) noexcept : ends_(ends) {}
  asio_operation(const asio_operation&) = delete;
  asio_operation& operator=(const asio_operation&) = delete;
  ~asio_operation() { unlink(); }

  /// Ends the wait: completes the operation with an error.
  void cancel(const error& cause) { ends_(*this, &cause); }
  /// Destroys the operation and its handler.
  void abandon() { ends_(*this, nullptr); }

 private:
  function ends_;
};

class asio_channel_state;

/// A channel as an event source that reports only the events that the channel's `poll` handles:
/// finished requests, and the end of the connection. It ignores results and messages that the
/// program has not taken.
class polled_channel {
 public:
  explicit polled_channel(channel& link) noexcept : link_(link) {}

  [[nodiscard]] int file_descriptor() const noexcept { return link_.file_descriptor(); }
  [[nodiscard]] result<bool> request_notification() noexcept {
    const std::uint32_t before = link_.outstanding();
    const result<bool> has_news = link_.request_notification();
    if (!has_news.has_value() || !has_news.assume_value()) return has_news;
    return link_.outstanding() != before || link_.failure().has_value();
  }
  [[nodiscard]] wait_limit::time_point deadline() const noexcept { return link_.deadline(); }

 private:
  channel& link_;
};

/// The channels of an execution context. Their operations are destroyed with the context.
class asio_channels : public net::execution_context::service {
 public:
  using key_type = asio_channels;
  inline static net::execution_context::id id;

  explicit asio_channels(net::execution_context& owner) : service(owner) {}

  void add(list_links& one) {
    const std::lock_guard lock(mutex_);
    one.link_before(members_);
  }
  void remove(list_links& one) {
    const std::lock_guard lock(mutex_);
    one.unlink();
  }

 private:
  inline void shutdown() noexcept override;

  std::mutex mutex_{};  ///< guards `members_`, except in `shutdown`
  list_links members_{&members_, &members_};
};

/// The state of an `asio_channel`. Its address does not change when the `asio_channel` is moved.
class asio_channel_state : public list_links,
                           public std::enable_shared_from_this<asio_channel_state> {
 public:
  asio_channel_state(const net::any_io_executor& runs, channel&& connected)
      : executor(runs),
        link(std::move(connected)),
        all_(&net::use_service<asio_channels>(net::query(runs, net::execution::context))) {
    // A channel of a hub needs no wait: the loop that polls the hub polls its channels.
    if (link.id().generation == 0) events_.emplace(executor, polled_);
    all_->add(*this);
  }
  asio_channel_state(const asio_channel_state&) = delete;
  asio_channel_state& operator=(const asio_channel_state&) = delete;
  ~asio_channel_state() = default;

  /// Closes the channel, so that all operations complete.
  void close() {
    if (all_ != nullptr) std::exchange(all_, nullptr)->remove(*this);
    events_.reset();
    link = channel();
  }
  /// Destroys all operations, because the execution context is being destroyed.
  void abandon() {
    all_ = nullptr;
    events_.reset();
    is_asleep_ = false;
    while (has_operations()) static_cast<asio_operation&>(*operations.next).abandon();
  }
  void poll() {
    const auto kept = shared_from_this();  // a continuation may destroy the `asio_channel`
    link.poll();
    update();
  }
  /// Begins the wait for events if there are operations. Ends it if there are none, or if the
  /// deadline has become earlier.
  void update() {
    if (!events_) return;
    if (!is_asleep_) {
      if (has_operations()) sleep();
    } else if (!has_operations() || link.deadline() < alarm_) {
      wake();
    }
  }
  /// Makes the executor call `poll`. Does nothing if there is neither an operation nor a wait.
  void wake() {
    if (!has_operations() && !is_asleep_) return;
    if (std::exchange(is_waking_, true)) return;
    if (is_asleep_) return events_->cancel();
    net::post(executor, [observed = weak_from_this()] {
      const auto state = observed.lock();
      if (!state) return;
      state->is_waking_ = false;
      state->poll();
    });
  }

  net::any_io_executor executor;
  channel link;
  list_links operations{&operations, &operations};

 private:
  [[nodiscard]] bool has_operations() const noexcept { return operations.next != &operations; }
  void sleep() {
    is_asleep_ = true;
    events_->async_wait([observed = weak_from_this()](const result<void>& woken) {
      const auto state = observed.lock();
      if (!state || !state->events_) return;
      state->is_asleep_ = state->is_waking_ = false;
      if (!woken.has_value() && woken.assume_error() != error_kind::cancelled)
        state->cancel_all(woken.assume_error());
      state->poll();
    });
    alarm_ = link.deadline();
  }
  void cancel_all(const error& cause) {
    while (has_operations()) static_cast<asio_operation&>(*operations.next).cancel(cause);
  }

  asio_channels* all_;  ///< null after `close` or `abandon`
  polled_channel polled_{link};
  std::optional<asio_source<polled_channel>> events_{};
  bool is_asleep_ = false;
  bool is_waking_ = false;
  wait_limit::time_point alarm_ = (wait_limit::time_point::max)();
};

inline void asio_channels::shutdown() noexcept {
  // Destroying a handler may destroy a channel. No other thread uses the context any more.
  while (members_.next != &members_) {
    auto& first = static_cast<asio_channel_state&>(*members_.next);
    first.unlink();
    if (const auto state = first.weak_from_this().lock()) state->abandon();
  }
}

/// A call to a channel's function that returns an awaitable, together with the request's memory.
template <class Function, class Memory>
struct asio_call {
  using result_type =
      std::remove_cvref_t<decltype(std::declval<Function&>()(std::declval<channel&>(),
                                                             std::declval<Memory&>())
                                       .await_resume())>;

  [[nodiscard]] auto operator()(channel& link) { return function(link, memory); }
  /// The result of a wait that ended before its request finished. The memory in this result is
  /// empty, because the awaited call owns the memory.
  [[nodiscard]] result_type ended(const error& cause) {
    if constexpr (requires(result_type& done) { done.memory; })
      return {cause, std::move(memory)};
    else
      return cause;
  }

  Function function;
  Memory memory;
  net::cancellation_type ends_at;  ///< the types of cancellation that end the wait
};

/// A handler with its result.
template <class Handler, class Result>
class asio_completion {
 public:
  using executor_type = net::associated_executor_t<Handler, net::any_io_executor>;
  using allocator_type = net::associated_allocator_t<Handler, net::recycling_allocator<void>>;

  asio_completion(Handler&& handler, Result&& done, net::any_io_executor executor)
      : handler_(std::move(handler)), result_(std::move(done)), executor_(std::move(executor)) {}

  [[nodiscard]] executor_type get_executor() const noexcept {
    return net::get_associated_executor(handler_, executor_);
  }
  [[nodiscard]] allocator_type get_allocator() const noexcept {
    return net::get_associated_allocator(handler_, net::recycling_allocator<void>());
  }
  void operator()() { std::move(handler_)(std::move(result_)); }

 private:
  Handler handler_;
  Result result_;
  net::any_io_executor executor_;
};

/// A coroutine that awaits a call of a channel, and then posts the handler with the result. Its
/// frame is the state of the operation.
template <class Handler, class Call>
struct asio_request {
  using result_type = typename Call::result_type;

  class promise_type : public asio_operation {
   public:
    promise_type(asio_channel_state& state, Handler& handler, Call& call)
        : asio_operation(end),
          state_(state),
          handler_(handler),
          call_(call),
          io_work_(state.executor),
          handler_work_(net::get_associated_executor(handler, state.executor)) {
      link_before(state.operations);
      auto slot = net::get_associated_cancellation_slot(handler);
      if (slot.is_connected())
        slot.assign([operation = this,
                     ends_at = call.ends_at](net::cancellation_type type) mutable {
          if ((type & ends_at) == net::cancellation_type::none || operation == nullptr) return;
          const auto kept = operation->state_.shared_from_this();
          std::exchange(operation, nullptr)
              ->cancel(
                  {error_kind::cancelled, "wait of an Asio operation",
                   "any request that the operation has posted continues, and keeps its memory"});
          kept->update();
        });
    }

    static void* operator new(std::size_t size, asio_channel_state& /*state*/, Handler& handler,
                              Call& /*call*/) {
      block_allocator allocator(
          net::get_associated_allocator(handler, net::recycling_allocator<void>()));
      block* const frame = allocator.allocate(blocks_for(size));
      ::new (static_cast<void*>(frame + frame_blocks(size))) block_allocator(std::move(allocator));
      return frame;
    }
    static void operator delete(void* memory, std::size_t size) {
      auto* const frame = static_cast<block*>(memory);
      auto* const kept =
          std::launder(reinterpret_cast<block_allocator*>(frame + frame_blocks(size)));
      block_allocator allocator(std::move(*kept));
      kept->~block_allocator();
      allocator.deallocate(frame, blocks_for(size));
    }

    asio_request get_return_object() noexcept { return {}; }
    std::suspend_never initial_suspend() noexcept { return {}; }
    std::suspend_never final_suspend() noexcept { return {}; }
    void return_void() noexcept {}
    [[noreturn]] void unhandled_exception() noexcept { std::terminate(); }

    /// Destroys the coroutine, and posts the handler.
    void complete(result_type&& done) {
      auto slot = net::get_associated_cancellation_slot(handler_);
      if (slot.is_connected()) slot.clear();
      const auto io_work = std::move(io_work_);
      const auto handler_work = std::move(handler_work_);
      asio_completion<Handler, result_type> completion(std::move(handler_), std::move(done),
                                                       state_.executor);
      destroy();
      net::post(std::move(completion));
    }

   private:
    using block = std::max_align_t;
    using block_allocator = typename std::allocator_traits<net::associated_allocator_t<
        Handler, net::recycling_allocator<void>>>::template rebind_alloc<block>;
    static_assert(alignof(block_allocator) <= alignof(block));

    [[nodiscard]] static constexpr std::size_t frame_blocks(std::size_t size) noexcept {
      return (size + sizeof(block) - 1) / sizeof(block);
    }
    [[nodiscard]] static constexpr std::size_t blocks_for(std::size_t size) noexcept {
      return frame_blocks(size) + frame_blocks(sizeof(block_allocator));
    }

    static void end(asio_operation& self, const error* cause) {
      auto& mine = static_cast<promise_type&>(self);
      if (cause == nullptr) return mine.destroy();
      mine.complete(mine.call_.ended(*cause));
    }
    void destroy() { std::coroutine_handle<promise_type>::from_promise(*this).destroy(); }

    asio_channel_state& state_;
    Handler& handler_;
    Call& call_;
    net::executor_work_guard<net::any_io_executor> io_work_;
    net::executor_work_guard<net::associated_executor_t<Handler, net::any_io_executor>>
        handler_work_;
  };

  /// Completes the operation.
  struct completing {
    [[nodiscard]] bool await_ready() const noexcept { return false; }
    // Not inline, because clang before version 17 would keep this function's variables in the frame
    // that the function destroys.
    [[gnu::noinline]] void await_suspend(std::coroutine_handle<promise_type> operation) {
      result_type copy = std::move(done);
      operation.promise().complete(std::move(copy));
    }
    void await_resume() const noexcept {}
    result_type& done;
  };

  static asio_request run(asio_channel_state& state, [[maybe_unused]] Handler handler, Call call) {
    result_type done = co_await call(state.link);
    co_await completing{done};
  }
};

/// The function object with which Asio starts the operation, once Asio has the handler.
class asio_start {
 public:
  using executor_type = net::any_io_executor;

  explicit asio_start(asio_channel_state& state) noexcept : state_(&state) {}
  [[nodiscard]] executor_type get_executor() const noexcept { return state_->executor; }

  template <class Handler, class Call>
  void operator()(Handler&& handler, Call call) const {
    const auto state = state_->shared_from_this();
    asio_request<std::decay_t<Handler>, Call>::run(*state, std::forward<Handler>(handler),
                                                   std::move(call));
    state->update();
  }

 private:
  asio_channel_state* state_;
};

/// The result of the awaited call that the function makes.
template <class Function>
using result_on_channel = std::remove_cvref_t<
    decltype(std::declval<std::invoke_result_t<Function&, channel&>&>().await_resume())>;

/// A function for `asio_channel::async_await`.
template <class Function>
concept MakesAwaitedCallOnChannel =
    std::move_constructible<Function> &&
    because(
        requires(Function& function, channel& link) {
          { function(link) } -> AwaitedCall;
        },
        "async_await needs a function that takes the channel, and returns an awaited call, as in "
        "link.async_await([](channel& mine) { return mine.async_room(); }, token)") &&
    because(std::is_convertible_v<const error&, result_on_channel<Function>>,
            "the result of this call returns its memory, but a cancelled wait has no memory to "
            "return: pass the memory to an operation of the asio_channel, as in "
            "link.async_write(std::move(buffer), {.remote = theirs}, token), or share it");

}  // namespace VERBSPP_DETAIL_ASIO
}  // namespace detail

inline namespace VERBSPP_DETAIL_ASIO {

/// A channel whose operations take completion tokens of Asio: `use_awaitable`, callbacks,
/// `use_future`, `deferred`, `as_tuple`, and others.
///
///     asio_channel link(executor, std::move(connected));
///     VERBSPP_CO_TRYV(co_await link.async_send(std::move(message), use_awaitable));
///     VERBSPP_CO_TRY(answer, co_await link.async_wait(answers, use_awaitable));
///
/// The executor polls the channel while operations wait. Nothing else has to poll it, unless the
/// channel belongs to a hub: then the program waits for the hub with an `asio_source`, and calls
/// `poll` of each channel that has news. A channel without a hub needs a wait mode that sleeps:
/// with `wait_mode::spin`, operations that have to wait fail (`not_supported`).
///
/// An `asio_channel` has the requests of `async_operations`, whose rules for memory apply: a
/// request keeps alive shared memory, and messages that it sends or writes; other memory with a
/// single owner is moved, and returned with the result; borrowed memory does not compile. An
/// operation whose memory is named as `.elements` or `.result` is a view: await it in the
/// expression that creates it, since a token such as `use_awaitable` starts it later. Memory that
/// is passed as an object is stored in the operation. If the queue is full, the request waits for
/// room.
///
/// Each operation completes with one argument, as elsewhere in the library: for a request, a
/// `transport_result<completed_work>`, or a `finished<Memory>` if it returns its memory. No
/// operation reports a failure through an exception. The handler is always posted to its associated
/// executor, which is the executor of the channel by default, and never called within the function
/// that starts the operation. Until the operation completes, both executors have outstanding work.
/// The associated allocator provides the memory for the operation's state.
///
/// The channel's default limit applies to requests, as for `async_operations`. Terminal or partial
/// cancellation, through the associated cancellation slot, ends only the wait for the operation
/// (`cancelled`): a request that was posted continues, and keeps its memory until the device has
/// released it. The `memory` of the `finished` result is then empty.
///
/// A move-only owner of the channel. Destroying it closes the channel, so its operations complete.
/// If the execution context is destroyed first, they do not complete: their handlers are destroyed.
/// Thread rule: as for the channel. Start and cancel operations, and call all functions, on the
/// executor of the channel, which has to be a strand if several threads run the context.
/// \errors as `async_operations` and `asio_source::async_wait`
class asio_channel {
 public:
  using executor_type = detail::net::any_io_executor;

  asio_channel(const executor_type& executor, channel connected)
      : state_(std::make_shared<detail::asio_channel_state>(executor, std::move(connected))) {}
  template <class Context>
    requires std::is_convertible_v<Context&, detail::net::execution_context&>
  asio_channel(Context& context, channel connected)
      : asio_channel(executor_type(context.get_executor()), std::move(connected)) {}
  asio_channel(asio_channel&&) noexcept = default;
  asio_channel& operator=(asio_channel&& other) noexcept {
    if (this == &other) return *this;
    end();
    state_ = std::move(other.state_);
    return *this;
  }
  asio_channel(const asio_channel&) = delete;
  asio_channel& operator=(const asio_channel&) = delete;
  ~asio_channel() { end(); }

  [[nodiscard]] executor_type get_executor() const noexcept { return state().executor; }
  /// The channel, for its other functions. Use the reference only in the current handler, and call
  /// `link` again in the next one. While operations wait, each call makes the executor poll the
  /// channel after the handler, because a blocking function of the channel may consume the event
  /// that the executor is waiting for.
  [[nodiscard]] channel& link() {
    state().wake();
    return state_->link;
  }
  /// Polls the channel, which completes operations. Call this for a channel of a hub when the hub
  /// has reported an event of the channel.
  void poll() { state().poll(); }

  template <class Token>
  auto async_send(const async_send_operation& operation, Token&& token) {
    return start([operation](channel& link, auto&) { return link.async_send(operation); }, token);
  }
  /// Here and below, the request covers the whole memory object.
  template <class Memory, class Token>
    requires GoesWithWork<Memory>
  auto async_send(Memory&& memory, Token&& token) {
    return async_send(std::forward<Memory>(memory), send_operation(), std::forward<Token>(token));
  }
  template <class Memory, class Token>
    requires GoesWithWork<Memory>
  auto async_send(Memory&& memory, const send_operation& rest, Token&& token) {
    return start<Memory>(
        [rest](channel& link, auto& stored) {
          return link.async_send(std::forward<Memory>(stored), rest);
        },
        token, std::forward<Memory>(memory));
  }
  template <class Token>
  auto async_receive(const async_receive_operation& operation, Token&& token) {
    return start([operation](channel& link, auto&) { return link.async_receive(operation); },
                 token);
  }
  template <class Memory, class Token>
    requires GoesWithWork<Memory> && FillableMemory<Memory>
  auto async_receive(Memory&& memory, Token&& token) {
    return start<Memory>(
        [](channel& link, auto& stored) {
          return link.async_receive(std::forward<Memory>(stored));
        },
        token, std::forward<Memory>(memory));
  }
  template <class Token>
  auto async_write(const async_write_operation& operation, Token&& token) {
    return start([operation](channel& link, auto&) { return link.async_write(operation); }, token);
  }
  template <class Memory, class Token>
    requires GoesWithWork<Memory>
  auto async_write(Memory&& memory, const write_operation& rest, Token&& token) {
    return start<Memory>(
        [rest](channel& link, auto& stored) {
          return link.async_write(std::forward<Memory>(stored), rest);
        },
        token, std::forward<Memory>(memory));
  }
  template <class Token>
  auto async_read(const async_read_operation& operation, Token&& token) {
    return start([operation](channel& link, auto&) { return link.async_read(operation); }, token);
  }
  template <class Memory, class Token>
    requires GoesWithWork<Memory> && FillableMemory<Memory>
  auto async_read(Memory&& memory, const read_operation& rest, Token&& token) {
    return start<Memory>(
        [rest](channel& link, auto& stored) {
          return link.async_read(std::forward<Memory>(stored), rest);
        },
        token, std::forward<Memory>(memory));
  }
  template <class Token>
  auto async_compare_and_swap(const async_compare_and_swap_operation& operation, Token&& token) {
    return start(
        [operation](channel& link, auto&) { return link.async_compare_and_swap(operation); },
        token);
  }
  template <class Token>
  auto async_fetch_and_add(const async_fetch_and_add_operation& operation, Token&& token) {
    return start([operation](channel& link, auto&) { return link.async_fetch_and_add(operation); },
                 token);
  }
  /// Waits for the next message of the inbox of this channel, and completes with a
  /// `result<message>`. No limit ends the wait. Cancellation of any type ends it, and loses no
  /// message.
  /// \errors as `inbox::poll` and `asio_source::async_wait`
  template <class Token>
  auto async_wait(inbox& messages, Token&& token) {
    return start([&messages](channel& /*link*/,
                             auto&) { return messages.async_wait(wait_limit::forever()); },
                 token, detail::no_memory(), detail::net::cancellation_type::all);
  }
  /// Calls the function with the channel, and completes with the result of the awaited call that
  /// the function returns. This is for calls that have no function above: room in the send queue,
  /// leases and their revocation, handles of posted requests, scopes and streams.
  ///
  ///     link.async_await([](channel& mine) { return mine.async_room(4); }, token);
  ///     link.async_await(
  ///         [&](channel& mine) { return mine.async_lease<access::remote_write>(shared); }, token);
  ///     link.async_await([&](channel&) { return granted.async_revoke(); }, token);
  ///
  /// The function is called when the operation starts. The operation keeps it, with all that it has
  /// captured, until the operation completes, so it may move captured memory into a lease. The
  /// objects to which the call refers, such as the lease to be revoked, a handle, a scope or the
  /// elements of a request, must exist until then. The call must be one that `poll` of this channel
  /// completes, and not, for example, a wait of an `event_loop`. An exception that the function
  /// throws ends the program.
  ///
  /// Calls whose result returns memory with a single owner do not compile, because a cancelled wait
  /// would have no memory to return: `async_wait` of a handle that owns its memory, and
  /// `async_revoke` of a lease that owns its memory. Use shared memory, or the operations above.
  ///
  /// Cancellation has the effect that destroying a coroutine has: a lease that is being granted is
  /// revoked, and a lease whose revocation waits for room stays open.
  /// \errors those of the call, and of `asio_source::async_wait`
  template <class Function, class Token>
    requires detail::MakesAwaitedCallOnChannel<Function>
  auto async_await(Function begin, Token&& token) {
    return start([begin = std::move(begin)](channel& link, auto&) mutable { return begin(link); },
                 token);
  }

 private:
  template <class Memory = detail::no_memory, class Function, class Token>
  auto start(Function function, Token& token, Memory&& memory = {},
             detail::net::cancellation_type ends_at = detail::net::cancellation_type::terminal |
                                                      detail::net::cancellation_type::partial) {
    using call = detail::asio_call<Function, std::remove_cvref_t<Memory>>;
    return detail::net::async_initiate<Token, void(typename call::result_type)>(
        detail::asio_start(state()), token,
        call{std::move(function), std::forward<Memory>(memory), ends_at});
  }
  [[nodiscard]] detail::asio_channel_state& state() const noexcept {
    assert(state_ && "this asio_channel was moved from");
    return *state_;
  }
  void end() noexcept {
    if (state_) state_->close();
  }

  std::shared_ptr<detail::asio_channel_state> state_;
};

}  // namespace VERBSPP_DETAIL_ASIO
}  // namespace verbspp
