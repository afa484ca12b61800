// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/config.hpp>
#include <verbspp/base/result.hpp>
#include <verbspp/calls/caller_options.hpp>
#include <verbspp/calls/detail/caller_core.hpp>
#include <verbspp/calls/detail/lanes.hpp>
#include <verbspp/calls/duration_histogram.hpp>
#include <verbspp/calls/lent_memory.hpp>
#include <verbspp/calls/method.hpp>
#include <verbspp/channel/channel.hpp>
#include <verbspp/pool/message.hpp>
#include <verbspp/wait/call_limit.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>

namespace verbspp {

/// The bytes of an answer, which stay in the memory of the caller that received them. A move-only
/// owner, which may outlive the caller.
class [[nodiscard]] received_bytes {
 public:
  received_bytes() noexcept = default;
  /// Used by the library only.
  explicit received_bytes(message arrived) noexcept : message_(std::move(arrived)) {}

  /// The bytes; none if the object is empty or was moved from.
  [[nodiscard]] std::span<const std::byte> view() const& noexcept VERBSPP_LIFETIMEBOUND {
    if (!message_) return {};
    return detail::body_of(message_);
  }
  /// The number of bytes.
  [[nodiscard]] std::size_t size() const noexcept {
    return message_ ? message_.size() - detail::call_header::size : 0;
  }
  void view() const&& = delete;  // a temporary releases its bytes: store the answer in a variable

 private:
  message message_{};
};

namespace detail {

/// The type of the value that a caller gets as the answer.
template <class Value>
struct owned_value {
  using type = Value;
};
template <>
struct owned_value<bytes> {
  using type = received_bytes;
};

// Not constrained to methods: otherwise, clang would not print which rule for methods was violated.
template <class Called>
using answer_to = typename owned_value<typename Called::answer>::type;
template <class Called>
using request_for = typename value_to_send<typename Called::request>::type;

/// Decodes the answer from the message that contains it.
template <Method Called>
[[nodiscard]] result<answer_to<Called>> decode_answer(result<message>&& arrived) noexcept {
  using value = typename Called::answer;
  if (arrived.has_error()) [[unlikely]]
    return arrived.assume_error();
  if constexpr (std::is_void_v<value>)
    return success();
  else if constexpr (std::is_same_v<value, bytes>)
    return received_bytes(std::move(arrived).assume_value());
  else
    return codec<value>::decode(body_of(std::as_const(arrived).assume_value()));
}

/// Encodes the request into the space that `begin` has returned, and sends it. \returns the slot
template <Method Called>
[[nodiscard]] VERBSPP_DATA_PATH result<std::uint16_t> send_call(
    caller_core& core, std::span<std::byte> space, request_for<Called> request) noexcept {
  const auto size = codec<typename Called::request>::encode(request, space);
  if (size.has_error()) [[unlikely]]
    return size.assume_error();
  return core.send(description_of<Called>, size.assume_value());
}

/// The size of this request; `any_size` if it is not known before the request is encoded.
template <Method Called>
[[nodiscard]] std::uint32_t size_of_request(request_for<Called> request) noexcept {
  if constexpr (std::is_same_v<typename Called::request, bytes>)
    return static_cast<std::uint32_t>(std::min<std::size_t>(request.size(), any_size));
  else
    return codec<typename Called::request>::size;
}

/// Like `send_call`, for a call that lends memory.
template <Method Called>
[[nodiscard]] result<std::uint16_t> send_lending_call(caller_core& core,
                                                      const result<std::span<std::byte>>& begun,
                                                      request_for<Called> request,
                                                      const loan& lent) noexcept {
  if (begun.has_error()) [[unlikely]]
    return begun.assume_error();
  const std::span<std::byte> into = begun.assume_value();
  const std::size_t offset = caller_core::request_offset(into, description_of<Called>, lent);
  const auto size = codec<typename Called::request>::encode(request, into.subspan(offset));
  if (size.has_error()) [[unlikely]] {
    VERBSPP_TRYV(core.abandon_loan());
    return size.assume_error();
  }
  return core.send_lending(description_of<Called>, lent, offset + size.assume_value());
}

template <Method Called>
class awaited_call;

}  // namespace detail

/// True if the service has refused the call: the error has the kind and the text that the handler,
/// or the service itself, has sent. False for errors of the connection and of limits.
[[nodiscard]] bool is_refusal(const error& failure) noexcept;

/// A handle to a call in flight, as returned by `caller::post_call`.
///
/// The answer can be taken only once, by `poll` or `wait`. Destroying the handle ends the call: its
/// answer is dropped when it arrives. The handle may outlive the caller: the call has then failed,
/// unless the caller had processed its answer before.
///
/// Move-only. Thread rule: one thread at a time for the handle and its caller.
template <Method Called>
class [[nodiscard]] pending_call {
 public:
  using answer = result<detail::answer_to<Called>>;

  /// An empty handle.
  pending_call() noexcept = default;
  /// Used by the library only.
  pending_call(detail::reference<detail::caller_core> core, std::uint16_t slot) noexcept
      : core_(std::move(core)), slot_(slot) {}
  pending_call(pending_call&&) noexcept = default;
  pending_call& operator=(pending_call&& other) noexcept {
    if (this == &other) return *this;
    give_up();
    core_ = std::move(other.core_);
    slot_ = other.slot_;
    return *this;
  }
  pending_call(const pending_call&) = delete;
  pending_call& operator=(const pending_call&) = delete;
  VERBSPP_DATA_PATH ~pending_call() {
    if (core_) [[unlikely]]
      core_->give_up(slot_);
  }

  /// True if the handle has a call whose answer was not taken, whether or not the answer has
  /// arrived.
  [[nodiscard]] bool has_call() const noexcept { return static_cast<bool>(core_); }
  /// Returns the answer if it has arrived; does not wait for it.
  /// \errors as `caller::call`; `invalid_input` if the handle is empty
  [[nodiscard]] std::optional<answer> poll() noexcept {
    if (!core_) return answer(no_call());
    if (!core_->is_done(slot_)) core_->poll();
    if (!core_->is_done(slot_)) return std::nullopt;
    const auto core = std::move(core_);
    return detail::decode_answer<Called>(core->finish(slot_, description));
  }
  /// Waits for the answer. If the limit is reached first, the call ends, and its answer is dropped
  /// when it arrives; the connection and other calls are not affected.
  /// \errors as `caller::call`; `invalid_input` if the handle is empty
  [[nodiscard]] answer wait(call_limit limit = call_limit::of_channel()) noexcept {
    if (!core_) return no_call();
    const auto core = std::move(core_);
    return detail::decode_answer<Called>(core->wait(slot_, description, limit));
  }
  /// Ends the call. Its answer is dropped when it arrives. A no-op if the handle is empty.
  void give_up() noexcept {
    if (core_) std::exchange(core_, {})->give_up(slot_);
  }

 private:
  static constexpr const detail::method_description& description = detail::description_of<Called>;
  [[nodiscard]] static error no_call() noexcept {
    return {error_kind::invalid_input, Called::name,
            "this handle has no call: it was default constructed or moved from, poll or wait has "
            "returned the result of its call, or give_up has ended the call"};
  }

  detail::reference<detail::caller_core> core_{};
  std::uint16_t slot_ = 0;
};

/// Makes calls to a service at the other end of a channel.
///
///     VERBSPP_TRY(prepared, domain.build_channel().build());
///     VERBSPP_TRY(calls, caller::open(prepared));
///     ... connect the channel, for example through an exchange
///     VERBSPP_TRYV(calls.start<lookup, store>(std::move(channel), 5s));
///     VERBSPP_TRY(found, calls.call<lookup>({.number = 7}, 10ms));
///
/// Many calls can be in flight, and their answers may arrive in any order. The limit of a call
/// applies only to this call: when the limit is reached, the call returns `timed_out`, its late
/// answer is dropped, and other calls on the same connection continue to work. Requests are copied
/// into the memory of the caller, so the program may change a request as soon as `call` or
/// `post_call` returns.
///
/// Every call needs two things: a credit, for which the service keeps a receive posted, and a
/// posted receive of the caller for the answer. So a receive is posted for every message that
/// arrives. A call that ended early keeps its credit and its receive until its late answer arrives.
///
/// If the connection breaks, all calls whose answers have not arrived fail with the cause. Then
/// open another caller for the next connection.
///
/// A move-only owner. It may be destroyed while calls are in flight: their handles then return
/// `not_connected`. A caller that was moved from refuses all calls (`invalid_input`). Thread rule:
/// one thread at a time for the caller, its handles and its channel; `statistics` may be called on
/// any thread, except during `start`.
class caller {
 public:
  /// Prepares calls over a channel that is not connected yet: posts receives for the answers.
  /// \errors `invalid_input` if the channel's queues are too small, or an option is out of range;
  /// `not_supported` for a UC channel, or a channel of a hub with a pool; `not_connected` if the
  /// channel is empty; as `message_pool::create` and `inbox::open`
  [[nodiscard]] static result<caller> open(prepared_channel& link,
                                           const caller_options& options = {}) noexcept {
    VERBSPP_TRY(core, detail::caller_core::open(link, options));
    return caller(std::move(core));
  }
  caller(caller&&) noexcept = default;
  caller& operator=(caller&& other) noexcept {
    if (this == &other) return *this;
    close();
    core_ = std::move(other.core_);
    return *this;
  }
  caller(const caller&) = delete;
  caller& operator=(const caller&) = delete;
  ~caller() { close(); }

  /// Takes over the connected channel, and compares the methods with those of the service.
  /// \errors `mismatch` with a text that describes the difference; `not_found` if the service lacks
  /// a method; `invalid_input` if this is not the channel for which the caller was opened, or if a
  /// method lends memory and `message_size` is below 376 bytes at either end; `resource_exhausted`;
  /// as `call`
  template <Method... Called>
  [[nodiscard]] result<void> start(channel link,
                                   call_limit limit = call_limit::of_channel()) noexcept {
    static_assert(sizeof...(Called) > 0, "name the methods: calls.start<lookup, store>(...)");
    static_assert(detail::have_different_numbers<Called...>(),
                  "two of these methods have the same number: a number must be unique in the "
                  "service, and each method must be named only once");
    if (!core_) return moved_from("caller::start");
    static constexpr std::array<const detail::method_description*, sizeof...(Called)> all{
        &detail::description_of<Called>...};
    return core_->start(std::move(link), all, limit);
  }

  /// Calls the method, and waits for its answer. First waits for a credit if there is none.
  /// \returns the answer, or nothing if it is void
  /// \errors `timed_out`, `cancelled` if the limit ended the wait: the service may or may not
  /// execute the call; the error with which the service has refused the call (`is_refusal`);
  /// `invalid_input` if the request is larger than `message_size` at either end; `mismatch` if the
  /// answer has the wrong size; `would_block` if other requests of the program fill the send queue;
  /// `not_connected` before `start`; those of a `codec`; as `channel::wait`; the cause if the
  /// connection is broken
  template <Method Called>
    requires detail::LendsNothing<Called>
  [[nodiscard]] result<detail::answer_to<Called>> call(
      detail::request_for<Called> request, call_limit limit = call_limit::of_channel()) noexcept {
    if (!core_) [[unlikely]]
      return moved_from(Called::name);
    constexpr const auto& described = detail::description_of<Called>;
    const wait_limit until = core_->begin_limit(limit);
    VERBSPP_TRY(space, core_->begin_waiting(described, nullptr, until));
    VERBSPP_TRY(slot, detail::send_call<Called>(*core_.get(), space, request));
    return detail::decode_answer<Called>(core_->wait(slot, described, until));
  }
  /// As above, for a method whose calls lend memory: the service may access `memory` until it has
  /// answered, or until the limit is reached. When the call returns, the service has no access, and
  /// the program may use the memory. See `Lendable` for the kinds of memory.
  ///
  /// The bytes of small memory are sent with the messages of the call
  /// (`caller_options::sent_size`). A call that lends larger memory needs a lane, which is a queue
  /// pair of its own. If that call ends before its answer arrives, its lane is no longer used, and
  /// a later call that needs a lane connects another one. The connection and other calls are not
  /// affected.
  /// \errors as above; as `channel::lease`; those of connecting a lane; `driver` if the device did
  /// not revoke the access: the memory must then not be freed
  template <Method Called, class Memory>
    requires LendsMemory<Called> && Lendable<Memory, detail::description_of<Called>.lends>
  [[nodiscard]] result<detail::answer_to<Called>> call(
      detail::request_for<Called> request, Memory&& memory,
      call_limit limit = call_limit::of_channel()) noexcept {
    if (!core_) [[unlikely]]
      return moved_from(Called::name);
    constexpr const auto& described = detail::description_of<Called>;
    const detail::loan lent{.what = detail::lend<described.lends>(memory),
                            .request_size = detail::size_of_request<Called>(request)};
    const wait_limit until = core_->begin_limit(limit);
    VERBSPP_TRY(slot,
                detail::send_lending_call<Called>(
                    *core_.get(), core_->begin_waiting(described, &lent, until), request, lent));
    return detail::decode_answer<Called>(core_->wait(slot, described, until));
  }
  /// Sends the call, and returns a handle to it; never blocks.
  /// \errors `would_block` if there is no credit, awaited calls wait for one, or kept answers use
  /// up the memory; otherwise as `call`
  template <Method Called>
    requires detail::LendsNothing<Called>
  [[nodiscard]] result<pending_call<Called>> post_call(
      detail::request_for<Called> request) noexcept {
    if (!core_) [[unlikely]]
      return moved_from(Called::name);
    if (core_->has_queue()) [[unlikely]]
      return detail::caller_core::has_no_credit(Called::name);
    std::span<std::byte> space = core_->begin_at_once();
    if (space.empty()) [[unlikely]] {
      VERBSPP_TRY(begun, core_->begin(detail::description_of<Called>));
      space = begun;
    }
    const auto slot = detail::send_call<Called>(*core_.get(), space, request);
    if (slot.has_error()) [[unlikely]]
      return slot.assume_error();
    return pending_call<Called>(core_, slot.assume_value());
  }
  /// As above, for a method whose calls lend memory. The call keeps the shared memory until the
  /// service can no longer access it. Does not wait for the service, but may wait for the device,
  /// for example until a memory window is bound or, when the answer is taken, invalidated.
  /// \errors as `call` with memory; `would_block` as above, and if all lanes are in use, or the
  /// service has not connected one yet
  template <Method Called, class Memory>
    requires LendsMemory<Called> && SharedMemory<Memory> &&
             Lendable<Memory, detail::description_of<Called>.lends>
  [[nodiscard]] result<pending_call<Called>> post_call(detail::request_for<Called> request,
                                                       const Memory& memory) noexcept {
    if (!core_) [[unlikely]]
      return moved_from(Called::name);
    if (core_->has_queue()) [[unlikely]]
      return detail::caller_core::has_no_credit(Called::name);
    constexpr const auto& described = detail::description_of<Called>;
    const detail::loan lent =
        detail::share<described.lends>(memory, detail::size_of_request<Called>(request));
    VERBSPP_TRY(slot, detail::send_lending_call<Called>(
                          *core_.get(), core_->begin_lending(described, lent), request, lent));
    return pending_call<Called>(core_, slot);
  }
  /// Like `call`, but awaits the answer in a coroutine; include `<verbspp/calls.hpp>`.
  /// `channel::poll` of the caller's channel resumes the coroutine. The request has to outlive the
  /// `co_await` expression, as an argument of that expression does. Destroying the coroutine ends
  /// the call.
  template <Method Called>
    requires detail::LendsNothing<Called>
  [[nodiscard]] detail::awaited_call<Called> async_call(
      detail::request_for<Called> request VERBSPP_LIFETIMEBOUND,
      const wait_limit& limit = detail::default_limit) noexcept;
  /// As above, for a method whose calls lend memory. The call keeps the shared memory until the
  /// service can no longer access it, even if the coroutine is destroyed. Like `post_call`, it may
  /// block the thread until the device has bound or invalidated a memory window.
  template <Method Called, class Memory>
    requires LendsMemory<Called> && SharedMemory<Memory> &&
             Lendable<Memory, detail::description_of<Called>.lends>
  [[nodiscard]] detail::awaited_call<Called> async_call(
      detail::request_for<Called> request VERBSPP_LIFETIMEBOUND,
      const Memory& memory VERBSPP_LIFETIMEBOUND,
      const wait_limit& limit = detail::default_limit) noexcept;

  /// The channel, for event loops, `channel::poll` and `channel::failure`. \pre the caller was not
  /// moved from
  [[nodiscard]] channel& link() noexcept { return core_->link(); }
  /// The counters. Each counter is exact, but the counters are read one after the other. This may
  /// be called on any thread, except during `start`, which sets the counters to 0. \pre the caller
  /// was not moved from
  [[nodiscard]] caller_statistics statistics() const noexcept { return core_->statistics(); }
  /// The counters of one method. Methods that were not passed to `start` share their counters with
  /// the messages of the library itself.
  template <Method Called>
  [[nodiscard]] caller_statistics statistics() const noexcept {
    return core_->statistics(Called::number);
  }
  /// The durations of the calls of a method, each measured from the sending of the call until its
  /// answer or refusal was taken. Empty without `caller_options::measures_durations`. Thread rule:
  /// as for `statistics`.
  template <Method Called>
  [[nodiscard]] duration_histogram durations() const noexcept {
    return core_->durations(Called::number);
  }
  /// Prints the numbers of calls, answers and lent bytes, and the channel.
  friend std::ostream& operator<<(std::ostream& out, const caller& printed);

 private:
  explicit caller(detail::reference<detail::caller_core> core) noexcept : core_(std::move(core)) {}

  [[nodiscard]] static error moved_from(const char* operation) noexcept {
    return {error_kind::invalid_input, operation, "this caller was moved from"};
  }
  void close() noexcept {
    if (core_) core_->close();
  }

  detail::reference<detail::caller_core> core_;
};

}  // namespace verbspp
