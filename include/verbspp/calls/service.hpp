// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/config.hpp>
#include <verbspp/base/detail/because.hpp>
#include <verbspp/base/result.hpp>
#include <verbspp/calls/detail/service_core.hpp>
#include <verbspp/calls/method.hpp>
#include <verbspp/calls/service_options.hpp>
#include <verbspp/channel/channel.hpp>
#include <verbspp/hub/channel_hub.hpp>

#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <optional>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace verbspp {

namespace detail {

/// Encodes the answer, and sends it.
template <Method Called, class Answer = typename Called::answer>
  requires(!std::is_void_v<Answer>)
[[nodiscard]] VERBSPP_DATA_PATH result<void> answer(
    open_call& call, typename value_to_send<Answer>::type value) noexcept {
  return call.answer_with(
      Called::name, [&](std::span<std::byte> into) { return codec<Answer>::encode(value, into); });
}
/// Sends the answer of a method whose answer is void.
template <Method Called>
[[nodiscard]] result<void> answer(open_call& call) noexcept {
  return call.answer_with(
      Called::name, [](std::span<std::byte>) -> result<std::size_t> { return std::size_t{0}; });
}

template <class Operation, class Memory>
class awaited_access;

}  // namespace detail

/// A call that a handler answers later, on any thread.
///
/// Destroying it without an answer refuses the call, so every call gets an answer or a refusal. It
/// may outlive the client's connection, and the service: answering it then has no effect.
///
/// A move-only owner. Thread rule: as for a plain value; it may be moved to another thread.
template <Method Called>
class [[nodiscard]] received_call {
 public:
  /// The type of `request()`: the value itself, or for `bytes` a `std::span<const std::byte>`.
  using request_type =
      std::remove_cvref_t<typename detail::value_to_send<typename Called::request>::type>;

  /// An empty object, without a call.
  received_call() noexcept = default;
  /// Used by the library only.
  received_call(detail::open_call&& call, request_type&& request) noexcept
      : call_(std::move(call)), request_(std::move(request)) {}

  /// True if the call was not answered yet.
  [[nodiscard]] bool is_open() const noexcept { return call_.is_open(); }
  /// The request. Bytes remain valid until the call is answered. \pre is_open()
  [[nodiscard]] const request_type& request() const& noexcept VERBSPP_LIFETIMEBOUND {
    return *request_;
  }
  void request() const&& = delete;  // a temporary call is soon refused: store it in a variable
  /// The client that has made the call. If the call was answered already, the generation of the id
  /// is 0.
  [[nodiscard]] channel_id client() const noexcept { return call_.client(); }

  /// The number of bytes that the caller lends. 0 if the call was answered already.
  [[nodiscard]] std::uint64_t lent_size() const noexcept
    requires LendsMemory<Called>
  {
    return call_.lent_size();
  }
  /// Reads from the memory that the caller lends, beginning with byte `offset`, until all of `into`
  /// is filled. Blocks. Large data may be read in parts, by several calls of `read`; a device
  /// limits the size of one part (`max_msg_sz` of its port).
  ///
  /// If the memory was sent with the call (`service_options::sent_size`), this function only
  /// copies, and the elements must refer to memory that the program can access. Otherwise, this
  /// function fails if the caller has ended the call, which ends the access to the caller's memory.
  /// The connection of the client is not affected.
  /// \errors `invalid_input` if the bytes are not within the lent memory, or the call was answered
  /// already; `busy` if awaited accesses of the call are open, or another thread accesses the
  /// memory; those of `channel::read`
  template <class Memory>
    requires BorrowedMemory<Memory> && FillableMemory<Memory> &&
             OutlivesCall<Memory>
             [[nodiscard]] result<void> read(Memory&& into, std::uint64_t offset = 0,
                                             call_limit limit = call_limit::of_channel()) noexcept
               requires LendsMemory<Called>
  {
    VERBSPP_TRY(all, into.scatter());
    return read(scatter_list(all), offset, limit);
  }
  [[nodiscard]] result<void> read(const scatter_list& into, std::uint64_t offset = 0,
                                  call_limit limit = call_limit::of_channel()) noexcept
    requires LendsMemory<Called>
  {
    static_assert(Called::lends.contains(access::remote_read),
                  "the method's `lends` lacks access::remote_read, so the service may only write "
                  "to the memory that its calls lend");
    return call_.read(into, offset, limit);
  }
  /// Writes to the memory that the caller lends, beginning with byte `offset`. If the bytes of the
  /// memory are sent with the messages of the call, this function only copies, and the written
  /// bytes arrive with the answer. In all other respects, this function behaves like `read`.
  template <class Memory>
    requires BorrowedMemory<Memory>
  [[nodiscard]] result<void> write(const Memory& from, std::uint64_t offset = 0,
                                   call_limit limit = call_limit::of_channel()) noexcept
    requires LendsMemory<Called>
  {
    VERBSPP_TRY(all, from.gather());
    return write(gather_list(all), offset, limit);
  }
  [[nodiscard]] result<void> write(const gather_list& from, std::uint64_t offset = 0,
                                   call_limit limit = call_limit::of_channel()) noexcept
    requires LendsMemory<Called>
  {
    static_assert(Called::lends.contains(access::remote_write),
                  "the method's `lends` lacks access::remote_write, so the service may only read "
                  "the memory that its calls lend");
    return call_.write(from, offset, limit);
  }
  /// Like `read`, but awaits the end of the access in a coroutine, so that the thread serves other
  /// calls in the meantime, even if the client does not react. Include `<verbspp/calls.hpp>`.
  ///
  ///     VERBSPP_CO_TRYV(co_await call.async_read(shared, offset));
  ///     auto [read, buffer] = co_await call.async_read(std::move(mine), offset);
  ///
  /// The request keeps shared memory, or a part of it, alive; memory with a single owner is moved
  /// into the call, and returned with the result. Several accesses of a call can be in flight. If
  /// the queue of the lane is full, later accesses wait for room. A call cannot have awaited and
  /// blocking accesses at the same time (`busy`).
  ///
  /// Threads that call `service::serve` or `service::poll` resume the coroutine, so an access does
  /// not end, not even at its limit, while no thread calls them. If the client leaves, or the
  /// service is destroyed, open accesses fail. The coroutine may be destroyed at any time, but not
  /// while another thread may resume it. Destroying it ends the wait, and the memory is released
  /// when the device no longer uses it. The call may be answered only when its accesses have ended;
  /// otherwise, an access that is still open fails, or reads bytes that the client has changed.
  ///
  /// Without a limit, the default limit of the client's channel applies, and may be exceeded by a
  /// quarter.
  /// \returns for shared memory, a `result<void>`; otherwise a `finished` with the memory
  /// \errors as `read`; `not_connected` if the client has left
  template <class Memory>
    requires GoesWithWork<Memory> &&
             FillableMemory<Memory>
             [[nodiscard]] detail::awaited_access<read_operation, std::remove_cvref_t<Memory>>
             async_read(Memory&& into, std::uint64_t offset = 0,
                        const wait_limit& limit = detail::default_limit) noexcept
               requires LendsMemory<Called>
  {
    static_assert(Called::lends.contains(access::remote_read),
                  "the method's `lends` lacks access::remote_read, so the service may only write "
                  "to the memory that its calls lend");
    return {call_, offset, detail::given(limit), std::forward<Memory>(into)};
  }
  /// Writes as `write` does, and waits as `async_read` does.
  template <class Memory>
    requires GoesWithWork<Memory>
  [[nodiscard]] detail::awaited_access<write_operation, std::remove_cvref_t<Memory>> async_write(
      Memory&& from, std::uint64_t offset = 0,
      const wait_limit& limit = detail::default_limit) noexcept
    requires LendsMemory<Called>
  {
    static_assert(Called::lends.contains(access::remote_write),
                  "the method's `lends` lacks access::remote_write, so the service may only read "
                  "the memory that its calls lend");
    return {call_, offset, detail::given(limit), std::forward<Memory>(from)};
  }

  /// Sends the answer. Does not wait.
  /// \errors `invalid_input` if the call was answered already, or if the answer is larger than
  /// either end accepts; those of a `codec`. If the answer cannot be encoded, the call is still
  /// open, but its request may have been overwritten
  template <class Answer = typename Called::answer>
    requires(!std::is_void_v<Answer> && std::is_same_v<Answer, typename Called::answer>)
  result<void> answer(typename detail::value_to_send<Answer>::type value) noexcept {
    return detail::answer<Called>(call_, value);
  }
  /// Sends the answer of a method whose answer is void, which informs the client that the call was
  /// executed.
  result<void> answer() noexcept
    requires std::is_void_v<typename Called::answer>
  {
    return detail::answer<Called>(call_);
  }
  /// Refuses the call: the caller gets an error that has this kind and this text, and for which
  /// `is_refusal` is true. At most 400 bytes of the text are sent, and at most as many as fit into
  /// an answer. A no-op if the call was answered already.
  void refuse(error_kind kind, std::string_view text) noexcept { call_.refuse(kind, text); }
  /// Refuses the call with the kind and the message of an error.
  void refuse(const error& why) noexcept { call_.refuse(why); }

 private:
  detail::open_call call_{};
  std::optional<request_type> request_{};
};

namespace detail {

template <Method Called>
using received_value = typename received_call<Called>::request_type;

/// A function that answers immediately: it takes the request and returns the answer, or a result
/// with the answer.
template <class Function, class Called>
concept AnswersAtOnce =
    std::is_invocable_v<const Function&, const received_value<Called>&> &&
    !std::is_invocable_v<const Function&, received_call<Called>> &&
    (std::is_void_v<typename Called::answer> ||
     !std::is_void_v<std::invoke_result_t<const Function&, const received_value<Called>&>>);

template <class Function, class Called>
concept AnswersLater = std::is_invocable_v<const Function&, received_call<Called>>;

/// A method with its handler.
template <Method Called, class Function>
class typed_handler final : public method_handler {
 public:
  explicit typed_handler(Function&& function)
      : method_handler(description_of<Called>), function_(std::move(function)) {}

  void take(open_call&& call) const override {
    auto decoded = codec<typename Called::request>::decode(call.request());
    if (decoded.has_error()) return call.refuse(decoded.assume_error());
    if constexpr (AnswersLater<Function, Called>)
      function_(received_call<Called>(std::move(call), std::move(decoded).assume_value()));
    else
      answer_at_once(call, std::as_const(decoded).assume_value());
  }

 private:
  void answer_at_once(open_call& call, const received_value<Called>& request) const {
    using returned = std::invoke_result_t<const Function&, const received_value<Called>&>;
    if constexpr (std::is_void_v<returned>) {
      function_(request);
      static_cast<void>(answer<Called>(call));
    } else if constexpr (MayLackValue<returned>) {
      auto answered = function_(request);
      if (answered.has_error()) return call.refuse(answered.error());
      if constexpr (std::is_void_v<typename Called::answer>)
        check(call, answer<Called>(call));
      else
        check(call, answer<Called>(call, answered.value()));
    } else {
      check(call, answer<Called>(call, function_(request)));
    }
  }
  static void check(open_call& call, const result<void>& sent) noexcept {
    if (sent.has_error()) call.refuse(sent.error());
  }

  Function function_;
};

/// The handler of a method, as returned by `handles`. Not constrained to methods: otherwise, clang
/// would not print which rule for methods was violated.
template <class Called, class Function>
struct handling {
  Function function;
};

}  // namespace detail

/// Names the handler of a method, for `service::create`. The handler is a function of one of these
/// forms:
///
///     handles<lookup>([](const key& wanted) -> result<account> { ... })   // or -> account
///     handles<lookup>([](received_call<lookup> call) { ... call.answer(account) ... })
///
/// The first form answers immediately; an error that it returns refuses the call. The second form
/// may store the call, and answer it later. Several threads may call a handler at the same time if
/// several threads serve. Calls of one client are passed to handlers one after the other, in order.
/// If a handler throws an exception, `service::serve` or `service::poll` throws the exception to
/// its own caller. The call is then refused, unless the handler has stored or answered it.
template <Method Called, class Function>
  requires(detail::because(detail::AnswersLater<std::decay_t<Function>, Called> ||
                               detail::AnswersAtOnce<std::decay_t<Function>, Called>,
                           "the handler of a method must be a function that takes `const request&` "
                           "(for bytes, a span) and returns the answer, or one that takes a "
                           "`received_call<method>`; a lambda must not be mutable") &&
           detail::because(!LendsMemory<Called> ||
                               detail::AnswersLater<std::decay_t<Function>, Called>,
                           "the handler of a method that lends memory must take a "
                           "`received_call<method>`, which gives access to that memory"))
[[nodiscard]] detail::handling<Called, std::decay_t<Function>> handles(Function&& function) {
  return {std::forward<Function>(function)};
}

/// Executes the calls of its clients.
///
///     VERBSPP_TRY(serving, service::create(domain, {.clients = 100}, handles<lookup>(...), ...));
///     ... for each client that comes
///     VERBSPP_TRY(prepared, domain.build_channel().hub(serving.hub()).build());
///     ... connect it
///     VERBSPP_TRYV(serving.add(std::move(channel)));
///     ... on each thread
///     VERBSPP_TRYV(serving.serve(stop));
///
/// A service has a hub, and memory that grows with `clients` times `in_flight`. It has a receive
/// for every call that a client may send, so no client uses up the receives for the calls of
/// another. A client that has `in_flight` unanswered calls sends the next one only after it has got
/// an answer.
///
/// A client is removed when its channel breaks, when it violates the protocol, or by `remove`. The
/// answers to its open calls are then dropped.
///
/// A move-only owner. Destroying it closes the connections of all clients. After a move, the old
/// object is empty: its functions that return a `result` fail (`invalid_input`). Thread-safe,
/// except that no other call may be in progress when the service is moved or destroyed. Handlers
/// must not destroy it.
class service {
 public:
  /// Creates a service with these methods.
  /// \errors `invalid_input` if an option is out of range; `resource_exhausted`; as
  /// `message_pool::create` and `channel_hub::create`
  template <Method... Called, class... Functions>
  [[nodiscard]] static result<service> create(const protection_domain& domain,
                                              const service_options& options,
                                              detail::handling<Called, Functions>... methods) {
    static_assert(sizeof...(Called) > 0,
                  "a service needs at least one method: handles<method>(...)");
    static_assert(detail::have_different_numbers<Called...>(),
                  "two of these methods have the same number: a number must be unique in the "
                  "service, and each method has one handler");
    std::vector<detail::owned<detail::method_handler>> handlers;
    handlers.reserve(sizeof...(Called));
    (handlers.emplace_back(
         new detail::typed_handler<Called, Functions>(std::move(methods.function))),
     ...);
    VERBSPP_TRY(core, detail::service_core::create(domain, options, std::move(handlers)));
    return service(std::move(core));
  }

  /// The hub for the channels of clients. \pre the service was not moved from
  [[nodiscard]] const channel_hub& hub() const noexcept VERBSPP_LIFETIMEBOUND {
    return core_->clients().hub();
  }
  /// Adds a client, whose channel belongs to the hub of the service.
  /// \returns the id of its channel
  /// \errors `invalid_input` if the channel is empty or belongs to another hub, or its send queue
  /// has fewer places than `service_options::in_flight`; `not_supported` for a UC channel;
  /// `resource_exhausted`. If the call fails, the channel is destroyed
  result<channel_id> add(channel link) noexcept {
    if (!core_) return moved_from("service::add");
    return core_->add(std::move(link));
  }
  /// Removes a client: a thread that serves closes the connection, if necessary after the client's
  /// current calls. Answers that have not arrived at the client by then are dropped. If the channel
  /// with this id has not been added yet, `add` will succeed, and a thread that serves will remove
  /// the client. A no-op for the id of a client that has left. Does not wait, and handlers may call
  /// it.
  void remove(channel_id client) noexcept {
    if (core_) core_->remove(client);
  }
  /// From now on, refuses all calls that no handler has received yet (`not_connected`). Serves
  /// until all earlier calls are answered, and their answers have arrived at the clients. Then the
  /// service can be destroyed, and none of these answers is lost. Other threads may serve in the
  /// meantime. Handlers, and coroutines that await accesses, must not call this function. If it
  /// fails, it can be called again: the service accepts no calls any more.
  /// \errors `timed_out`; `cancelled`; `invalid_input` if the service was moved from; those of
  /// `poll`
  [[nodiscard]] result<void> drain(const wait_limit& until) {
    if (!core_) return moved_from("service::drain");
    return core_->drain(until);
  }
  /// Executes calls, and resumes coroutines that await accesses to lent memory, until the limit is
  /// reached or a stop is requested; both count as success. Any number of threads may call this at
  /// the same time.
  /// \errors as `channel_hub::wait`, except that reaching the limit is not an error
  [[nodiscard]] result<void> serve(const wait_limit& until) {
    if (!core_) return moved_from("service::serve");
    return core_->serve(until);
  }
  /// Executes calls that have arrived, in at most as many turns as there are clients; does not wait
  /// for calls.
  /// \errors as `channel_hub::poll`
  [[nodiscard]] result<void> poll() {
    if (!core_) return moved_from("service::poll");
    return core_->poll();
  }

  /// The descriptor for event loops (`EventSource`): the hub's `file_descriptor`. When it is
  /// readable, call `poll`. -1 if the service was moved from.
  [[nodiscard]] int file_descriptor() const noexcept {
    return core_ ? core_->clients().file_descriptor() : -1;
  }
  /// Like `channel_hub::request_notification`.
  [[nodiscard]] result<bool> request_notification() noexcept {
    if (!core_) return moved_from("service::request_notification");
    return core_->clients().request_notification();
  }
  /// Like `channel_hub::deadline`.
  [[nodiscard]] wait_limit::time_point deadline() const noexcept {
    return core_ ? core_->clients().deadline() : (wait_limit::time_point::max)();
  }

  /// The number of clients.
  [[nodiscard]] std::uint32_t clients() const noexcept {
    return core_ ? core_->clients().size() : 0;
  }
  /// The counters. Each counter is exact, but the counters are read one after the other. \pre the
  /// service was not moved from
  [[nodiscard]] service_statistics statistics() const noexcept { return core_->statistics(); }
  /// The counters of one method; all 0 if the service does not have it.
  template <Method Called>
  [[nodiscard]] service_statistics statistics() const noexcept {
    return core_->statistics(Called::number);
  }
  /// Prints the numbers of calls and answers, and the hub.
  friend std::ostream& operator<<(std::ostream& out, const service& printed);

 private:
  explicit service(detail::owned<detail::service_core> core) noexcept : core_(std::move(core)) {}
  [[nodiscard]] static error moved_from(const char* operation) noexcept {
    return {error_kind::invalid_input, operation, "this service was moved from"};
  }

  detail::owned<detail::service_core> core_;
};

}  // namespace verbspp
