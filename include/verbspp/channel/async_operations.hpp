// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/config.hpp>
#include <verbspp/base/detail/because.hpp>
#include <verbspp/base/detail/dependent.hpp>
#include <verbspp/base/result.hpp>
#include <verbspp/base/wait_limit.hpp>
#include <verbspp/channel/posting_operations.hpp>
#include <verbspp/memory/detail/memory_keeper.hpp>
#include <verbspp/memory/detail/share_count.hpp>
#include <verbspp/memory/scatter_gather.hpp>
#include <verbspp/memory/work_memory.hpp>
#include <verbspp/wait/call_limit.hpp>
#include <verbspp/work/operations.hpp>

#include <cstdint>
#include <type_traits>
#include <utility>

namespace verbspp {

namespace detail {

/// A request that a coroutine awaits. The specializations for all arguments are in
/// awaited_work.hpp, so this definition is used only if that header was not included.
template <class Operation, class Memory>
class awaited_work {
  static_assert(sizeof(Operation) == 0,
                "to await calls in coroutines, #include <verbspp/coroutine.hpp>");
};

class awaited_room;

}  // namespace detail

/// The memory of an awaited request: a `shared_buffer` or a part of one, inline bytes, or none. The
/// request keeps a shared buffer alive until the device no longer uses it.
///
/// This is a view: create it in the expression that awaits the request. It is trivially
/// destructible, because g++ 11 and 12 destroy the non-trivial members of an aggregate twice in a
/// `co_await` expression.
template <class Element>
class VERBSPP_VIEW kept_elements {
  static constexpr bool is_filled = std::is_same_v<Element, scatter_element>;

 public:
  constexpr kept_elements() noexcept {}
  template <class Memory>
    requires SharedMemory<Memory> && (!is_filled || detail::HasScatter<Memory>)
  VERBSPP_DATA_PATH kept_elements(const Memory& memory VERBSPP_LIFETIMEBOUND) noexcept {
    if constexpr (requires { typename Memory::part_type; }) {
      memory_ = memory.keeper();
      source_ = &buffer<Memory>;
    } else if (memory.is_one_element()) [[likely]] {
      element_ = memory.template all<Element>();
      memory_ = memory.keeper();
      source_ = &part;
    } else {
      memory_ = &memory;
      source_ = &refused<Memory>;
    }
  }
  kept_elements(inline_payload payload VERBSPP_LIFETIMEBOUND) noexcept
    requires(!is_filled)
      : source_(&inlined), element_(payload.element()) {}

  template <class Memory>
  kept_elements(const Memory&) VERBSPP_DETAIL_REFUSED(
      (!SharedMemory<Memory> && !std::is_same_v<Memory, kept_elements> &&
       (is_filled || !std::is_same_v<Memory, inline_payload>)),
      "the device may still use the memory of an awaited request after the coroutine is destroyed, "
      "so the request has to keep the memory alive: pass a shared_buffer or a part of one; or, "
      "except for an atomic operation, move the buffer, as in async_write(std::move(buffer), "
      "{.remote = memory}); or borrow the memory in an async_scope, which waits for the device");
  template <class Memory>
  kept_elements(const Memory&)
      VERBSPP_DETAIL_REFUSED((is_filled && SharedMemory<Memory> && !detail::HasScatter<Memory>),
                             "the device writes to this memory: only memory that was registered "
                             "with access::local_write can be filled");

  /// Used by the library only: the keeper of the memory; null if the memory is not shared, or
  /// cannot be described by one element.
  [[nodiscard]] VERBSPP_DATA_PATH detail::counted_keeper* keeper() const noexcept {
    if (source_ == nullptr) return nullptr;
    if (source_->from == kind::part) return as_keeper(memory_);
    if (source_->from != kind::buffer) return nullptr;
    detail::counted_keeper* const whole = as_keeper(memory_);
    return whole != nullptr && whole->element.length() != 0 ? whole : nullptr;
  }
  /// The memory as one element. \pre `keeper()` is not null
  [[nodiscard]] VERBSPP_DATA_PATH element_list<Element> element() const noexcept {
    if (source_->from == kind::part) return element_;
    return as_keeper(memory_)->template all<Element>();
  }
  /// A copy that is made member by member, so that the compiler can keep this object in registers.
  [[nodiscard]] VERBSPP_DATA_PATH kept_elements copy() const noexcept {
    kept_elements made;
    made.memory_ = memory_;
    made.source_ = source_;
    if (source_ != nullptr && source_->from != kind::buffer)
      made.element_ = Element::from_native(element_.native());
    return made;
  }
  /// The elements, or the reason why the memory has none.
  [[nodiscard]] result<element_list<Element>> elements() const noexcept {
    if (source_ == nullptr) return element_list<Element>();
    if constexpr (!is_filled)
      if (source_->from == kind::inlined)
        return element_list<Element>(inline_payload(
            std::span(reinterpret_cast<const std::byte*>(element_.address()), element_.length())));
    if (keeper() != nullptr) return element();
    return source_->refusal(memory_);
  }

 private:
  [[nodiscard]] VERBSPP_DATA_PATH static detail::counted_keeper* as_keeper(
      const void* memory) noexcept {
    return static_cast<detail::counted_keeper*>(const_cast<void*>(memory));
  }

  enum class kind : std::uint8_t { buffer, part, inlined, refused };
  /// The kind of memory, and the function that returns the error if it has no element. This object
  /// has a pointer to it, which g++ 12 tracks through copies in a coroutine's frame, unlike an
  /// enumerator.
  struct source {
    kind from;
    error (*refusal)(const void* memory) noexcept = nullptr;
  };
  static constexpr source part{kind::part};
  static constexpr source inlined{kind::inlined};
  template <class Memory>
  static constexpr source buffer{
      kind::buffer, [](const void* memory) noexcept {
        return Memory::template describe<Element>(as_keeper(memory)).assume_error();
      }};
  template <class Memory>
  static constexpr source refused{
      kind::refused, [](const void* memory) noexcept {
        return detail::element_for<is_filled>(*static_cast<const Memory*>(memory)).assume_error();
      }};

  const void* memory_ = nullptr;  ///< the keeper of a buffer or part; or the memory that is refused
  const source* source_ = nullptr;
  union {
    Element element_;  ///< describes a part, or the bytes that are sent inline
  };
};

// The operations for awaited calls, which are the operations in work/operations.hpp with memory
// that the request keeps alive.

/// A `send_operation` whose memory the request keeps alive.
using async_send_operation = basic_send_operation<kept_elements<gather_element>>;
/// A `receive_operation` whose memory the request keeps alive.
using async_receive_operation = basic_receive_operation<kept_elements<scatter_element>>;
/// A `write_operation` whose memory the request keeps alive.
using async_write_operation = basic_write_operation<kept_elements<gather_element>>;
/// A `read_operation` whose memory the request keeps alive.
using async_read_operation = basic_read_operation<kept_elements<scatter_element>>;
/// A `compare_and_swap_operation` whose memory the request keeps alive. `result` is an 8-byte part
/// of a `shared_buffer`.
using async_compare_and_swap_operation =
    basic_compare_and_swap_operation<kept_elements<scatter_element>>;
/// A `fetch_and_add_operation` whose memory the request keeps alive. `result` is an 8-byte part
/// of a `shared_buffer`.
using async_fetch_and_add_operation = basic_fetch_and_add_operation<kept_elements<scatter_element>>;

namespace detail {

// `copied` copies member by member, so that the compiler can keep the operation of an awaited call
// in registers.

[[nodiscard]] VERBSPP_DATA_PATH optional_immediate_data
copied(const optional_immediate_data& from) noexcept {
  if (from.has_value()) return immediate_data(from->value());
  return {};
}
template <class Remote>
[[nodiscard]] VERBSPP_DATA_PATH Remote copied(const Remote& from) noexcept {
  using memory = std::remove_cvref_t<decltype(from.memory())>;
  return memory(from.memory().address(), from.memory().length(), from.memory().rkey());
}

// `plain` converts the operation of an awaited call to the operation that is posted, without its
// memory.

[[nodiscard]] VERBSPP_DATA_PATH send_operation plain(const async_send_operation& from) noexcept {
  return {.immediate = copied(from.immediate), .solicited = from.solicited, .fenced = from.fenced};
}
[[nodiscard]] VERBSPP_DATA_PATH receive_operation
plain(const async_receive_operation& /*from*/) noexcept {
  return {};
}
[[nodiscard]] VERBSPP_DATA_PATH write_operation plain(const async_write_operation& from) noexcept {
  return {.remote = copied(from.remote),
          .immediate = copied(from.immediate),
          .solicited = from.solicited,
          .fenced = from.fenced};
}
[[nodiscard]] VERBSPP_DATA_PATH read_operation plain(const async_read_operation& from) noexcept {
  return {.remote = copied(from.remote), .fenced = from.fenced};
}
[[nodiscard]] VERBSPP_DATA_PATH compare_and_swap_operation
plain(const async_compare_and_swap_operation& from) noexcept {
  return {.result = scatter_list().single(),
          .remote = from.remote,
          .expected = from.expected,
          .desired = from.desired,
          .fenced = from.fenced};
}
[[nodiscard]] VERBSPP_DATA_PATH fetch_and_add_operation
plain(const async_fetch_and_add_operation& from) noexcept {
  return {.result = scatter_list().single(),
          .remote = from.remote,
          .addend = from.addend,
          .fenced = from.fenced};
}

/// The memory of an operation for an awaited call.
template <class Source>
[[nodiscard]] VERBSPP_DATA_PATH auto awaited_memory(const Source& from) noexcept {
  if constexpr (requires { from.result; })
    return from.result;
  else
    return from.elements;
}
/// True if the operation has immediate data, or is solicited or fenced.
template <class Source>
[[nodiscard]] VERBSPP_DATA_PATH bool has_options(const Source& from) noexcept {
  bool has_some = false;
  if constexpr (requires { from.immediate; })
    has_some = from.immediate.has_value() | from.solicited;
  if constexpr (requires { from.fenced; }) has_some |= from.fenced;
  return has_some;
}
/// Sets the memory of an operation.
template <class Operation, class Element>
VERBSPP_DATA_PATH void set_memory(Operation& of, const element_list<Element>& elements) noexcept {
  if constexpr (requires { of.result; })
    of.result = elements.empty() ? elements.single() : *elements.begin();
  else
    of.elements = elements;
}

}  // namespace detail

// The messages that the compiler prints if the memory of an awaited call is unsuitable.
#define VERBSPP_DETAIL_BORROWED(Operation)                                                     \
  VERBSPP_DETAIL_REFUSED(                                                                      \
      (std::is_same_v<Plain, Operation>),                                                      \
      "the elements of this operation are borrowed, but the device may still use the "         \
      "memory of an awaited request after the coroutine is destroyed: write the operation in " \
      "the call, with a shared_buffer or a part of one as its memory; or await this "          \
      "operation in an async_scope")
#define VERBSPP_DETAIL_NOT_MOVED                                                                  \
  VERBSPP_DETAIL_REFUSED(                                                                         \
      (std::is_lvalue_reference_v<Memory> && enable_work_memory<std::remove_cvref_t<Memory>>),    \
      "a request takes ownership of its memory: write std::move(buffer); the request's result "   \
      "returns the buffer, unless it is a message that was sent or written. To keep the buffer, " \
      "share it, or borrow elements of it in an async_scope")

/// Awaited calls, for coroutines of any type: each, except `async_room`, posts one request, and
/// resumes the coroutine when the request has finished. The `co_await` expression returns the
/// result. Include `<verbspp/coroutine.hpp>` to use them.
///
///     VERBSPP_CO_TRYV(co_await link.async_write({.elements = shared, .remote = theirs}));
///     auto [read, buffer] = co_await link.async_read(std::move(mine), {.remote = theirs});
///
/// `channel::poll` resumes the coroutine, on the thread that polls; so the program's event loop has
/// to poll the channel (see `channel::file_descriptor`). If the queue is full, requests wait for
/// room in the order in which they were made.
///
/// The request keeps its memory alive, so the coroutine may be destroyed at any time: this ends the
/// wait, and the memory is released when the device no longer uses it. Pass shared memory as the
/// operation's `.elements`, or as an object. Memory with a single owner is moved into the call, and
/// is returned with the result, in a `finished`. A message from a pool belongs to the request that
/// sends or writes it. Borrowed memory does not compile.
///
/// Without a limit, the channel's default limit applies to the wait for room and to the wait for
/// the request. Each of these waits may exceed the limit by a quarter. If the limit is reached, the
/// channel breaks, as it does in all waits for requests. There are two exceptions: if the limit was
/// reached before the call, or while the request waited for room in the queue, the request is not
/// posted, and the channel is not affected.
///
/// Await the returned object in the expression that creates it, because it refers to the arguments
/// and to inline bytes without copying them. `Poster` provides `core()`, which returns the
/// channel's state. Thread rule: as for the channel.
/// \errors as `blocking_operations`
template <class Poster>
class async_operations {
  template <class Operation, class Memory = void>
  using awaited = detail::dependent_on<detail::awaited_work<Operation, Memory>, Poster>;
  /// The awaitable for a memory object. It owns the memory, and returns it with the result, unless
  /// the request keeps the memory.
  template <class Operation, class Memory>
  using awaited_with = awaited<Operation, std::conditional_t<detail::is_kept<Operation, Memory>,
                                                             void, std::remove_cvref_t<Memory>>>;

  // The operations are passed by value: g++ 12 tracks the members of such a copy, which it need not
  // make, but not those of an object in a coroutine's frame.

 public:
  [[nodiscard]] VERBSPP_DATA_PATH awaited<send_operation> async_send(
      async_send_operation operation, const wait_limit& limit = detail::default_limit) noexcept {
    return awaited<send_operation>::of(core(), detail::given(limit), operation);
  }
  [[nodiscard]] VERBSPP_DATA_PATH awaited<receive_operation> async_receive(
      async_receive_operation operation, const wait_limit& limit = detail::default_limit) noexcept {
    return awaited<receive_operation>::of(core(), detail::given(limit), operation);
  }
  [[nodiscard]] VERBSPP_DATA_PATH awaited<write_operation> async_write(
      async_write_operation operation, const wait_limit& limit = detail::default_limit) noexcept {
    return awaited<write_operation>::of(core(), detail::given(limit), operation);
  }
  [[nodiscard]] VERBSPP_DATA_PATH awaited<read_operation> async_read(
      async_read_operation operation, const wait_limit& limit = detail::default_limit) noexcept {
    return awaited<read_operation>::of(core(), detail::given(limit), operation);
  }
  [[nodiscard]] VERBSPP_DATA_PATH awaited<compare_and_swap_operation> async_compare_and_swap(
      async_compare_and_swap_operation operation,
      const wait_limit& limit = detail::default_limit) noexcept {
    return awaited<compare_and_swap_operation>::of(core(), detail::given(limit), operation);
  }
  [[nodiscard]] VERBSPP_DATA_PATH awaited<fetch_and_add_operation> async_fetch_and_add(
      async_fetch_and_add_operation operation,
      const wait_limit& limit = detail::default_limit) noexcept {
    return awaited<fetch_and_add_operation>::of(core(), detail::given(limit), operation);
  }

  template <class Memory>
    requires GoesWithWork<Memory>
  [[nodiscard]] VERBSPP_DATA_PATH awaited_with<send_operation, Memory> async_send(
      Memory&& memory, const send_operation& rest = {},
      const wait_limit& limit = detail::default_limit) noexcept {
    return awaited_with<send_operation, Memory>::of(core(), detail::given(limit), rest,
                                                    std::forward<Memory>(memory));
  }
  template <class Memory>
    requires GoesWithWork<Memory> && FillableMemory<Memory>
  [[nodiscard]] VERBSPP_DATA_PATH awaited_with<receive_operation, Memory> async_receive(
      Memory&& memory, const wait_limit& limit = detail::default_limit) noexcept {
    return awaited_with<receive_operation, Memory>::of(
        core(), detail::given(limit), receive_operation(), std::forward<Memory>(memory));
  }
  template <class Memory>
    requires GoesWithWork<Memory>
  [[nodiscard]] VERBSPP_DATA_PATH awaited_with<write_operation, Memory> async_write(
      Memory&& memory, const write_operation& rest,
      const wait_limit& limit = detail::default_limit) noexcept {
    return awaited_with<write_operation, Memory>::of(core(), detail::given(limit), rest,
                                                     std::forward<Memory>(memory));
  }
  template <class Memory>
    requires GoesWithWork<Memory> && FillableMemory<Memory>
  [[nodiscard]] VERBSPP_DATA_PATH awaited_with<read_operation, Memory> async_read(
      Memory&& memory, const read_operation& rest,
      const wait_limit& limit = detail::default_limit) noexcept {
    return awaited_with<read_operation, Memory>::of(core(), detail::given(limit), rest,
                                                    std::forward<Memory>(memory));
  }

  template <class Plain>
  void async_send(const Plain&, const wait_limit& = detail::default_limit)
      VERBSPP_DETAIL_BORROWED(send_operation);
  template <class Plain>
  void async_receive(const Plain&, const wait_limit& = detail::default_limit)
      VERBSPP_DETAIL_BORROWED(receive_operation);
  template <class Plain>
  void async_write(const Plain&, const wait_limit& = detail::default_limit)
      VERBSPP_DETAIL_BORROWED(write_operation);
  template <class Plain>
  void async_read(const Plain&, const wait_limit& = detail::default_limit)
      VERBSPP_DETAIL_BORROWED(read_operation);
  template <class Plain>
  void async_compare_and_swap(const Plain&, const wait_limit& = detail::default_limit)
      VERBSPP_DETAIL_BORROWED(compare_and_swap_operation);
  template <class Plain>
  void async_fetch_and_add(const Plain&, const wait_limit& = detail::default_limit)
      VERBSPP_DETAIL_BORROWED(fetch_and_add_operation);
  template <class Memory>
  void async_send(Memory&&, const send_operation& = {},
                  const wait_limit& = detail::default_limit) VERBSPP_DETAIL_NOT_MOVED;
  template <class Memory>
  void async_receive(Memory&&, const wait_limit& = detail::default_limit) VERBSPP_DETAIL_NOT_MOVED;
  template <class Memory>
  void async_write(Memory&&, const write_operation&,
                   const wait_limit& = detail::default_limit) VERBSPP_DETAIL_NOT_MOVED;
  template <class Memory>
  void async_read(Memory&&, const read_operation&,
                  const wait_limit& = detail::default_limit) VERBSPP_DETAIL_NOT_MOVED;

  /// Waits until the send queue has room for this number of requests, without posting anything.
  /// Before this coroutine uses the room, other coroutines that wait for room may use it.
  /// \errors `invalid_input` if the queue cannot hold that many requests; `timed_out`, `cancelled`:
  /// the channel is not affected; `not_connected` if the channel is not connected
  [[nodiscard]] detail::dependent_on<detail::awaited_room, Poster> async_room(
      std::uint32_t requests = 1, const wait_limit& limit = detail::default_limit) noexcept {
    return {core(), requests, limit};
  }

 protected:
  async_operations() noexcept = default;
  async_operations(async_operations&&) noexcept = default;
  async_operations& operator=(async_operations&&) noexcept = default;
  ~async_operations() = default;

 private:
  [[nodiscard]] VERBSPP_DATA_PATH detail::channel_core& core() noexcept {
    return static_cast<Poster&>(*this).core();
  }
};

#undef VERBSPP_DETAIL_BORROWED
#undef VERBSPP_DETAIL_NOT_MOVED

}  // namespace verbspp
