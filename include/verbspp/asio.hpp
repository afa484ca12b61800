// SPDX-License-Identifier: Apache-2.0
/// \file
/// Channels in programs with Asio: operations with completion tokens, and waits for event sources.
///
/// This header needs standalone Asio 1.22 or newer, or Boost.Asio of Boost 1.78 or newer. If both
/// are found, it uses standalone Asio. To choose Boost.Asio, define `VERBSPP_USE_BOOST_ASIO` in all
/// sources that include this header.
#pragma once

#include <verbspp/base/error.hpp>
#include <verbspp/base/event_source.hpp>
#include <verbspp/base/result.hpp>
#include <verbspp/base/wait_limit.hpp>
#include <verbspp/channel/async_operations.hpp>
#include <verbspp/channel/channel.hpp>
#include <verbspp/channel/inbox.hpp>
#include <verbspp/channel/posting_operations.hpp>
#include <verbspp/coroutine.hpp>
#include <verbspp/memory/work_memory.hpp>
#include <verbspp/work/operations.hpp>

#if !defined(VERBSPP_USE_BOOST_ASIO) && __has_include(<asio/version.hpp>)
#include <asio/version.hpp>

#if ASIO_VERSION < 102200
#error "<verbspp/asio.hpp> needs Asio 1.22 or newer"
#endif

#include <asio/any_io_executor.hpp>
#include <asio/associated_allocator.hpp>
#include <asio/associated_cancellation_slot.hpp>
#include <asio/associated_executor.hpp>
#include <asio/async_result.hpp>
#include <asio/cancellation_type.hpp>
#include <asio/compose.hpp>
#include <asio/error.hpp>
#include <asio/execution/context.hpp>
#include <asio/execution_context.hpp>
#include <asio/executor_work_guard.hpp>
#include <asio/posix/stream_descriptor.hpp>
#include <asio/post.hpp>
#include <asio/query.hpp>
#include <asio/recycling_allocator.hpp>
#include <asio/steady_timer.hpp>
#define VERBSPP_DETAIL_ASIO with_asio
#define VERBSPP_DETAIL_ASIO_NAMESPACE ::asio
#elif __has_include(<boost/asio/version.hpp>)
#include <boost/asio/version.hpp>

#if BOOST_ASIO_VERSION < 102200
#error "<verbspp/asio.hpp> needs Boost 1.78 or newer"
#endif

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/associated_allocator.hpp>
#include <boost/asio/associated_cancellation_slot.hpp>
#include <boost/asio/associated_executor.hpp>
#include <boost/asio/async_result.hpp>
#include <boost/asio/cancellation_type.hpp>
#include <boost/asio/compose.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/execution/context.hpp>
#include <boost/asio/execution_context.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/query.hpp>
#include <boost/asio/recycling_allocator.hpp>
#include <boost/asio/steady_timer.hpp>
#define VERBSPP_DETAIL_ASIO with_boost_asio
#define VERBSPP_DETAIL_ASIO_NAMESPACE ::boost::asio
#else
#error "<verbspp/asio.hpp> needs Asio: install libasio-dev, or Boost 1.78 or newer"
#endif

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

// A program may use both libraries in different sources, so there are types for each of them.
namespace detail {

namespace net = VERBSPP_DETAIL_ASIO_NAMESPACE;
using net_error = decltype(make_error_code(net::error::operation_aborted));

inline namespace VERBSPP_DETAIL_ASIO {

/// The descriptor and the timer of a wait for an event source. They exist until the wait completes.
struct asio_waits {
  explicit asio_waits(const net::any_io_executor& executor)
      : descriptor(executor), timer(executor) {}
  asio_waits(const asio_waits&) = delete;
  asio_waits& operator=(const asio_waits&) = delete;
  // The source owns the descriptor.
  ~asio_waits() { release(); }

  void cancel() noexcept {
    net_error ignored{};
    descriptor.cancel(ignored);  // NOLINT(bugprone-unused-return-value)
  }
  // NOLINTNEXTLINE(bugprone-exception-escape): Asio throws only where it cannot release descriptors
  void release() noexcept {
    if (descriptor.is_open()) static_cast<void>(descriptor.release());
    timer.cancel();
  }

  net::posix::stream_descriptor descriptor;
  net::steady_timer timer;
  bool is_due = false;  ///< the timer has ended the wait
};

/// The implementation of `asio_source::async_wait`.
template <class Source>
class asio_wait {
 public:
  asio_wait(Source& source, const std::shared_ptr<asio_waits>& waits)
      : source_(source), waits_(waits) {}

  template <class Self>
  void operator()(Self& self) {
    if (has_begun_) return self.complete(outcome_);
    has_begun_ = true;
    self.reset_cancellation_state(net::enable_total_cancellation());
    const result<bool> requested = source_.request_notification();
    asio_waits& waits = *waits_;
    if (!requested.has_value())
      outcome_ = requested.assume_error();
    else if (!requested.assume_value() && begin_sleep())
      return waits.descriptor.async_wait(net::posix::descriptor_base::wait_read, std::move(self));
    net::post(waits.descriptor.get_executor(), std::move(self));
  }
  template <class Self>
  void operator()(Self& self, const net_error& failed) {
    waits_->timer.cancel();
    const bool is_due = std::exchange(waits_->is_due, false);
    if (!failed || is_due) return self.complete(success());
    if (failed == net::error::operation_aborted)
      return self.complete(
          error(error_kind::cancelled, "asio_source::async_wait", "the wait was cancelled"));
    self.complete(error::from_errno(failed.value(), "asio_source::async_wait"));
  }

 private:
  /// Passes the descriptor to Asio, and sets the timer if the source has a deadline. \returns false
  /// if Asio does not accept the descriptor
  [[nodiscard]] bool begin_sleep() {
    asio_waits& waits = *waits_;
    net_error failed;
    if (!waits.descriptor.is_open()) waits.descriptor.assign(source_.file_descriptor(), failed);
    if (failed) {
      outcome_ = error::from_errno(failed.value(), "asio_source::async_wait",
                                   "Asio does not accept the descriptor of the event source");
      return false;
    }
    const wait_limit::time_point deadline = source_.deadline();
    if (deadline == (wait_limit::time_point::max)()) return true;
    waits.timer.expires_at(deadline);
    waits.timer.async_wait([observed = std::weak_ptr(waits_)](const net_error& cancelled) {
      const auto due = observed.lock();
      if (cancelled || !due) return;
      due->is_due = true;
      due->cancel();
    });
    return true;
  }

  Source& source_;
  std::shared_ptr<asio_waits> waits_;
  bool has_begun_ = false;
  result<void> outcome_ = success();
};

}  // namespace VERBSPP_DETAIL_ASIO
}  // namespace detail

inline namespace VERBSPP_DETAIL_ASIO {

/// Waits for an event source in the loop of an Asio executor: for a hub, a table of clients, an
/// acceptor, a session, or an object of the connection manager.
///
///     asio_source events(executor, hub);
///     for (;;) {
///       VERBSPP_CO_TRYV(co_await events.async_wait(use_awaitable));
///       VERBSPP_CO_TRY(arrived, hub.poll(slots));
///       ...
///     }
///
/// It does not own the source, which must outlive it and must not be moved. A source can have only
/// one `asio_source` at a time. Use `asio_channel` for channels, and for the inbox of a channel.
/// The socket of an `exchange_session` is a descriptor for which Asio can wait without this class.
///
/// A move-only owner. It must not live longer than the execution context. Thread rule: one thread
/// at a time, like Asio's own objects: if several threads run the context, the executor has to be a
/// strand.
template <EventSource Source>
class asio_source {
 public:
  using executor_type = detail::net::any_io_executor;

  asio_source(const executor_type& executor, Source& source)
      : source_(&source), waits_(std::make_shared<detail::asio_waits>(executor)) {}
  asio_source(asio_source&&) noexcept = default;
  asio_source& operator=(asio_source&& other) noexcept {
    if (this == &other) return *this;
    end();
    source_ = other.source_;
    waits_ = std::move(other.waits_);
    return *this;
  }
  asio_source(const asio_source&) = delete;
  asio_source& operator=(const asio_source&) = delete;
  /// Cancels the wait.
  ~asio_source() { end(); }

  [[nodiscard]] executor_type get_executor() const { return waits_->descriptor.get_executor(); }
  /// Waits until the source may have work: then call its own function that never blocks, such as
  /// `poll` or `advance`. There is one wait at a time. During the wait, do not call functions of
  /// the source that may read its events; or `cancel` the wait first, and start it again
  /// afterwards.
  ///
  /// Completes with a `result<void>`. A cancellation slot may end the wait, without effects on the
  /// source.
  /// \errors `cancelled`; as the source's `request_notification`
  template <class Token>
  auto async_wait(Token&& token) {
    return detail::net::async_compose<Token, void(result<void>)>(
        detail::asio_wait<Source>(*source_, waits_), token, waits_->descriptor);
  }
  /// Ends the wait, which completes with `cancelled`.
  void cancel() noexcept { waits_->cancel(); }

 private:
  void end() noexcept {
    if (waits_) waits_->release();
  }

  Source* source_;
  std::shared_ptr<detail::asio_waits> waits_;
};

}  // namespace VERBSPP_DETAIL_ASIO

namespace detail {

/// An element of a circular list, or the head of the list.
class asio_link {
 public:
  asio_link() noexcept = default;
  asio_link(const asio_link&) = delete;
  asio_link& operator=(const asio_link&) = delete;
  ~asio_link() { leave(); }

  [[nodiscard]] bool is_alone() const noexcept { return next_ == this; }
  /// \pre `!is_alone()`
  [[nodiscard]] asio_link& next() const noexcept { return *next_; }
  /// Becomes the last member. \pre `is_alone()`
  void join(asio_link& head) noexcept {
    next_ = &head;
    previous_ = head.previous_;
    previous_->next_ = this;
    head.previous_ = this;
  }
  void leave() noexcept {
    previous_->next_ = next_;
    next_->previous_ = previous_;
    next_ = previous_ = this;
  }

 private:
  asio_link* next_ = this;
  asio_link* previous_ = this;
};

inline namespace VERBSPP_DETAIL_ASIO {

/// An operation that has begun, and has not completed.
class asio_operation : public asio_link {
 public:
  using function = void (*)(asio_operation& self, const error* cause);

  explicit asio_operation(function ends) noexcept : ends_(ends) {}

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

  void add(asio_link& one) {
    const std::lock_guard lock(mutex_);
    one.join(members_);
  }
  void remove(asio_link& one) {
    const std::lock_guard lock(mutex_);
    one.leave();
  }

 private:
  inline void shutdown() noexcept override;

  std::mutex mutex_{};  ///< threads that run other contexts may add channels to this one
  asio_link members_{};
};

/// The state of an `asio_channel`. Its address does not change when the `asio_channel` is moved.
class asio_channel_state : public asio_link,
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
    while (!operations.is_alone()) static_cast<asio_operation&>(operations.next()).abandon();
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
      if (!operations.is_alone()) sleep();
    } else if (operations.is_alone() || link.deadline() < alarm_) {
      wake();
    }
  }
  /// Makes the executor poll the channel, and begin the next wait for events.
  void wake() {
    if (operations.is_alone() && !is_asleep_) return;
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
  asio_link operations{};

 private:
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
    while (!operations.is_alone()) static_cast<asio_operation&>(operations.next()).cancel(cause);
  }

  asio_channels* all_;  ///< null: the execution context is being destroyed
  polled_channel polled_{link};
  std::optional<asio_source<polled_channel>> events_{};
  bool is_asleep_ = false;
  bool is_waking_ = false;
  wait_limit::time_point alarm_ = (wait_limit::time_point::max)();
};

inline void asio_channels::shutdown() noexcept {
  // Destroying a handler may destroy a channel. No other thread uses the context any more.
  while (!members_.is_alone()) {
    auto& first = static_cast<asio_channel_state&>(members_.next());
    first.leave();
    if (const auto state = first.weak_from_this().lock()) state->abandon();
  }
}

/// A call of a channel that returns an awaitable object, with the memory of the request.
template <class Function, class Memory>
struct asio_call {
  using result_type =
      std::remove_cvref_t<decltype(std::declval<Function&>()(std::declval<channel&>(),
                                                             std::declval<Memory&>())
                                       .await_resume())>;

  [[nodiscard]] auto operator()(channel& link) { return function(link, memory); }
  /// The result of a wait that has ended before its request has finished. Its memory is empty:
  /// `memory` was moved into the request, which keeps it.
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
struct no_memory {};

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
      join(state.operations);
      auto slot = net::get_associated_cancellation_slot(handler);
      if (slot.is_connected()) slot.template emplace<canceller>(*this, call.ends_at);
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
    struct alignas(std::max_align_t) block {
      std::byte bytes[alignof(std::max_align_t)];
    };
    using block_allocator = typename std::allocator_traits<net::associated_allocator_t<
        Handler, net::recycling_allocator<void>>>::template rebind_alloc<block>;
    static_assert(alignof(block_allocator) <= alignof(block));

    [[nodiscard]] static constexpr std::size_t frame_blocks(std::size_t size) noexcept {
      return (size + sizeof(block) - 1) / sizeof(block);
    }
    [[nodiscard]] static constexpr std::size_t blocks_for(std::size_t size) noexcept {
      return frame_blocks(size) + frame_blocks(sizeof(block_allocator));
    }

    /// The function in the cancellation slot.
    class canceller {
     public:
      canceller(promise_type& operation, net::cancellation_type ends_at) noexcept
          : operation_(&operation), ends_at_(ends_at) {}
      void operator()(net::cancellation_type type) {
        if ((type & ends_at_) == net::cancellation_type::none || operation_ == nullptr) return;
        promise_type& operation = *std::exchange(operation_, nullptr);
        const auto state = operation.state_.shared_from_this();
        operation.cancel({error_kind::cancelled, "wait of an Asio operation",
                          "it was cancelled; if its request was posted, the request continues, and "
                          "keeps its memory"});
        state->update();
      }

     private:
      promise_type* operation_;
      net::cancellation_type ends_at_;
    };

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
    // Not inline, because clang before version 17 would keep its variables in the frame that it
    // destroys.
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

/// The function object that Asio calls, when it has the handler, to start the operation.
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
/// with `wait_mode::spin`, operations fail (`not_supported`).
///
/// It has the operations of `async_operations`, whose rules for memory apply: shared memory and
/// messages are kept, memory with a single owner is moved, and borrowed memory does not compile. An
/// operation whose memory is named as `.elements` or `.result` is a view: await it in the
/// expression that creates it, since a token such as `use_awaitable` starts it later. Memory that
/// is passed as an object is stored in the operation. If the queue is full, the request waits for
/// room.
///
/// Each operation completes with one argument, as elsewhere in the library: a
/// `transport_result<completed_work>`, or a `finished<Memory>` if it has moved its memory. It does
/// not report failures by exceptions. The handler is always posted to its associated executor,
/// which is the executor of the channel by default, and never called within the function that
/// starts the operation. Until the operation completes, both executors have outstanding work. The
/// associated allocator provides the memory for the operation's state.
///
/// The channel's default limit applies to requests, and breaks the channel when it is reached.
/// Terminal or partial cancellation, by the associated cancellation slot, ends only the wait for
/// the operation (`cancelled`): the request continues, and keeps its memory until the device has
/// released it. The `memory` of the `finished` is then empty.
///
/// A move-only owner of the channel. Destroying it closes the channel, so its operations complete.
/// If the execution context is destroyed first, they do not complete: their handlers are destroyed.
/// Thread rule: as for the channel. Start and cancel operations, and call all functions, on the
/// executor of the channel; if several threads run the context, it has to be a strand.
/// \errors as `async_operations`; `cancelled`
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

  [[nodiscard]] executor_type get_executor() const noexcept { return state_->executor; }
  /// The channel, for its other functions. Use the reference only in the current handler, and call
  /// `link` again in the next one. Each call makes the executor poll the channel after the handler,
  /// since functions of the channel that wait may read the event for which the executor waits.
  [[nodiscard]] channel& link() {
    state_->wake();
    return state_->link;
  }
  /// Polls the channel, which completes operations. Call this for a channel of a hub when the hub
  /// has reported an event of the channel.
  void poll() { state_->poll(); }

  template <class Token>
  auto async_send(const async_send_operation& operation, Token&& token) {
    return start([operation](channel& link, auto&) { return link.async_send(operation); }, token);
  }
  /// Here and below, the whole memory object is sent, written or filled.
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
  /// \errors as `inbox::next`; `cancelled`
  template <class Token>
  auto async_wait(inbox& messages, Token&& token) {
    return start([&messages](channel& /*link*/,
                             auto&) { return messages.async_wait(wait_limit::forever()); },
                 token, detail::no_memory(), detail::net::cancellation_type::all);
  }

 private:
  template <class Memory = detail::no_memory, class Function, class Token>
  auto start(Function function, Token& token, Memory&& memory = {},
             detail::net::cancellation_type ends_at = detail::net::cancellation_type::terminal |
                                                      detail::net::cancellation_type::partial) {
    using call = detail::asio_call<Function, std::remove_cvref_t<Memory>>;
    return detail::net::async_initiate<Token, void(typename call::result_type)>(
        detail::asio_start(*state_), token,
        call{std::move(function), std::forward<Memory>(memory), ends_at});
  }
  void end() noexcept {
    if (state_) state_->close();
  }

  std::shared_ptr<detail::asio_channel_state> state_;
};

}  // namespace VERBSPP_DETAIL_ASIO

}  // namespace verbspp

#undef VERBSPP_DETAIL_ASIO
#undef VERBSPP_DETAIL_ASIO_NAMESPACE
