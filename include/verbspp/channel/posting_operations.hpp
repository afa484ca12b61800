// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/config.hpp>
#include <verbspp/base/detail/because.hpp>
#include <verbspp/base/result.hpp>
#include <verbspp/channel/pending.hpp>
#include <verbspp/core/detail/channel_core.hpp>
#include <verbspp/memory/detail/memory_keeper.hpp>
#include <verbspp/memory/scatter_gather.hpp>
#include <verbspp/memory/work_memory.hpp>
#include <verbspp/work/operation_traits.hpp>
#include <verbspp/work/operations.hpp>
#include <verbspp/work/posting_interface.hpp>
#include <verbspp/work/queue_pair_state.hpp>
#include <verbspp/work/receive_queue_operations.hpp>
#include <verbspp/work/send_queue_operations.hpp>
#include <verbspp/work/transport.hpp>

#include <type_traits>
#include <utility>

namespace verbspp {

/// Memory that can be passed to a request as an object: memory with a single owner, which is moved,
/// or shared memory, which is copied or moved.
template <class Memory>
concept GoesWithWork = SharedMemory<Memory> || WorkMemory<Memory>;

namespace detail {

/// True if the device writes to the operation's elements.
template <class Operation>
inline constexpr bool fills = std::is_same_v<decltype(Operation::elements), scatter_list>;

/// True if the request keeps the memory, and releases it at its end: shared memory, and messages
/// that are sent or written. Otherwise, the memory is returned with the result.
template <class Operation, class Memory>
inline constexpr bool is_kept =
    SharedMemory<Memory> ||
    (!fills<Operation> && requires(Memory&& memory) { std::forward<Memory>(memory).give(); });

/// Returns an element that covers the whole memory, or an error.
template <bool IsFilled, class Memory>
[[nodiscard]] VERBSPP_DATA_PATH auto element_for(Memory& memory) noexcept {
  if constexpr (IsFilled)
    return memory.scatter();
  else
    return memory.gather();
}

/// Makes the operation's elements cover the whole memory.
/// \returns false if that is not possible; `element_for` then returns the error
template <class Operation, class Memory>
[[nodiscard]] VERBSPP_DATA_PATH bool name_all(Operation& operation, Memory& memory) noexcept {
  if constexpr (requires { memory.is_one_element(); }) {
    // This path has no `result`, which compilers would keep in memory instead of in registers.
    if (!memory.is_one_element()) [[unlikely]]
      return false;
    using element = std::conditional_t<fills<Operation>, scatter_element, gather_element>;
    operation.elements = memory.template all<element>();
  } else {
    const auto all = element_for<fills<Operation>>(memory);
    if (!all.has_value()) [[unlikely]]
      return false;
    operation.elements = all.assume_value();
  }
  return true;
}

}  // namespace detail

// The messages that the compiler prints if the memory that is passed to a call is unsuitable.
#define VERBSPP_DETAIL_LEFT_BEHIND                                                                \
  VERBSPP_DETAIL_REFUSED(                                                                         \
      (std::is_lvalue_reference_v<Memory> && enable_work_memory<std::remove_cvref_t<Memory>>),    \
      "a request takes ownership of its memory: write std::move(buffer); the request's result "   \
      "returns the buffer, unless it is a message that was sent or written. To keep the buffer, " \
      "share it, or pass elements of it: .elements = buffer.gather().value() or "                 \
      "buffer.scatter().value()")
#define VERBSPP_DETAIL_ONLY_TO_BE_SENT                                                        \
  VERBSPP_DETAIL_REFUSED(GoesWithWork<Memory> && !FillableMemory<Memory>,                     \
                         "the device writes to this memory: only memory that was registered " \
                         "with access::local_write can be filled")

/// The type of the tag argument of a channel's operations. With a plain queue pair, the program
/// tags its requests in order to recognize their completions. A channel recognizes them itself, so
/// its tag is empty.
struct channel_tag {};

/// The operations that a channel, its scopes and its streams can post. An operation that a UC
/// channel does not support fails at run time (`not_supported`), since channels of all transports
/// have the same type.
///
/// `Poster` has a function `submit(operation, channel_tag)`, which is called for operations of both
/// queues. In a `State` before `ready_to_send`, only receive requests are accepted.
/// \errors those of a queue pair; `not_connected` if the channel is not connected, unless a
/// prepared channel gets a receive; `not_supported` for an operation that UC does not support, or
/// that needs `extended_posting`; `invalid_input` if the queue has the length 0, or for a receive
/// if the channel's hub posts all receives; `resource_exhausted` if the results of too many
/// receives were not taken; if posting waits for room, those of the wait, as in `pending::wait`
template <class Poster, queue_pair_state State = queue_pair_state::ready_to_send>
class channel_operations
    : public send_queue_operations<Poster, transport::rc, State, posting_interface::extended,
                                   channel_tag>,
      public receive_queue_operations<Poster, State, receive_queue_kind::own, channel_tag> {
 public:
  template <class... Arguments>
  void post_bind(Arguments&&...)
      VERBSPP_DETAIL_REFUSED(sizeof...(Arguments) + 1 != 0,
                             "a channel gives its peer access to memory through leases: on RC, "
                             "write channel.lease(region.window_part<rights>(offset, "
                             "length).value()), which binds and invalidates a window; on UC, "
                             "channel.lease<rights, lease_by::registration>(region, offset, "
                             "length)");

 protected:
  channel_operations() noexcept = default;
  channel_operations(channel_operations&&) noexcept = default;
  channel_operations& operator=(channel_operations&&) noexcept = default;
  ~channel_operations() = default;
};

/// The operations that channels and their scopes post. Each returns a handle to the request. The
/// memory of a request is given as elements, or as an object. With an object, the request covers
/// all of the object, and the operation names no elements. A part of a buffer is an object, too
/// (`registered_buffer::part`).
///
/// - Memory with a single owner, such as a `registered_buffer`, is moved into the handle, and is
/// returned with the result, even on failure. If posting fails, it stays with the caller.
/// - Shared memory, such as a `shared_buffer`, is kept alive until the request has finished,
/// whether the handle is kept or not. A shared buffer that is moved into the call is empty once the
/// request has been posted.
/// - A `message` from a pool belongs to the request that sends or writes it, which returns its
/// place to the pool, whether the handle is kept or not. A handle to a request that fills a message
/// owns that message. If posting fails, the message stays with the caller.
///
/// `Poster` has the functions `core()` and `terms()`, and two types of handles: `borrowing_handle`
/// for requests that borrow their memory, and `keeping_handle` for requests that keep it alive. In
/// a `State` before `ready_to_send`, only receive requests are accepted.
/// \errors for memory that is given as an object: as for the operation with elements;
/// `invalid_input` if the memory was moved from, or has more than 2^32 - 1 bytes
template <class Poster, queue_pair_state State = queue_pair_state::ready_to_send>
class posting_operations : public channel_operations<Poster, State> {
 public:
  using channel_operations<Poster, State>::post_receive;
  using channel_operations<Poster, State>::post_send;
  using channel_operations<Poster, State>::post_write;
  using channel_operations<Poster, State>::post_read;

  template <class Memory>
    requires GoesWithWork<Memory> && FillableMemory<Memory>
  [[nodiscard]] VERBSPP_DATA_PATH auto post_receive(Memory&& memory) noexcept {
    return submit(receive_operation(), std::forward<Memory>(memory));
  }
  template <class Memory>
    requires GoesWithWork<Memory> && AcceptsSends<State>
  [[nodiscard]] VERBSPP_DATA_PATH auto post_send(Memory&& memory,
                                                 const send_operation& rest = {}) noexcept {
    return submit(rest, std::forward<Memory>(memory));
  }
  template <class Memory>
    requires GoesWithWork<Memory> && AcceptsSends<State>
  [[nodiscard]] VERBSPP_DATA_PATH auto post_write(Memory&& memory,
                                                  const write_operation& rest) noexcept {
    return submit(rest, std::forward<Memory>(memory));
  }
  template <class Memory>
    requires GoesWithWork<Memory> && FillableMemory<Memory> && AcceptsSends<State>
  [[nodiscard]] VERBSPP_DATA_PATH auto post_read(Memory&& memory,
                                                 const read_operation& rest) noexcept {
    return submit(rest, std::forward<Memory>(memory));
  }

  template <class Memory>
  void post_receive(Memory&&) VERBSPP_DETAIL_LEFT_BEHIND;
  template <class Memory>
  void post_receive(Memory&&) VERBSPP_DETAIL_ONLY_TO_BE_SENT;
  template <class Memory>
  void post_send(Memory&&, const send_operation& = {}) VERBSPP_DETAIL_LEFT_BEHIND;
  template <class Memory>
  void post_write(Memory&&, const write_operation&) VERBSPP_DETAIL_LEFT_BEHIND;
  template <class Memory>
  void post_read(Memory&&, const read_operation&) VERBSPP_DETAIL_LEFT_BEHIND;
  template <class Memory>
  void post_read(Memory&&, const read_operation&) VERBSPP_DETAIL_ONLY_TO_BE_SENT;

 protected:
  posting_operations() noexcept = default;
  posting_operations(posting_operations&&) noexcept = default;
  posting_operations& operator=(posting_operations&&) noexcept = default;
  ~posting_operations() = default;

 private:
  friend send_queue_operations<Poster, transport::rc, State, posting_interface::extended,
                               channel_tag>;
  friend receive_queue_operations<Poster, State, receive_queue_kind::own, channel_tag>;

  template <class Operation>
  [[nodiscard]] VERBSPP_DATA_PATH auto submit(const Operation& operation,
                                              channel_tag /*tag*/) noexcept {
    using posted = result<typename Poster::borrowing_handle>;
    detail::channel_core& core = poster().core();
    detail::request made;
    const result<void> done = core.post(operation, made, poster().terms());
    if (!done.has_value()) [[unlikely]]
      return posted(done.assume_error());
    return posted(std::in_place, &core, made);
  }

  template <class Operation, class Memory>
    requires GoesWithWork<Memory>
  [[nodiscard]] VERBSPP_DATA_PATH auto submit(const Operation& rest, Memory&& memory) noexcept {
    constexpr bool is_kept = detail::is_kept<Operation, Memory>;
    using handle = std::conditional_t<is_kept, typename Poster::keeping_handle,
                                      pending<std::remove_cvref_t<Memory>>>;
    using posted = result<handle>;
    detail::channel_core& core = poster().core();
    Operation operation = rest;
    if (!detail::name_all(operation, memory)) [[unlikely]]
      return posted(detail::element_for<detail::fills<Operation>>(memory).assume_error());
    detail::request made;
    const result<void> done = core.post(operation, made, poster().terms());
    if (!done.has_value()) [[unlikely]]
      return posted(done.assume_error());
    if constexpr (is_kept && requires { std::forward<Memory>(memory).give(); })
      core.keep(made, std::forward<Memory>(memory).give());
    else if constexpr (is_kept)
      core.keep(made, memory.keep());
    if constexpr (!detail::fills<Operation>)
      if (core.watches()) [[unlikely]]
        core.protect(made.number, detail::native_of(operation.elements));
    if constexpr (is_kept)
      return posted(std::in_place, &core, made);
    else
      return posted(std::in_place, &core, made, std::forward<Memory>(memory));
  }

  [[nodiscard]] VERBSPP_DATA_PATH Poster& poster() noexcept { return static_cast<Poster&>(*this); }
};

#undef VERBSPP_DETAIL_LEFT_BEHIND
#undef VERBSPP_DETAIL_ONLY_TO_BE_SENT

}  // namespace verbspp
