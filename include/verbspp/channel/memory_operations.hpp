// SPDX-License-Identifier: Apache-2.0
/// \file
/// The operations of a channel whose memory goes with them, owned or shared, instead of being named
/// by elements.
#pragma once

#include <verbspp/base/config.hpp>
#include <verbspp/base/detail/because.hpp>
#include <verbspp/channel/channel_operations.hpp>
#include <verbspp/memory/scatter_gather.hpp>
#include <verbspp/memory/work_memory.hpp>
#include <verbspp/work/operations.hpp>

#include <type_traits>
#include <utility>

namespace verbspp {

/// Memory that goes with a request: what shares it is copied or moved, what owns it moved.
template <class Memory>
concept GoesWithWork = SharedMemory<Memory> || WorkMemory<Memory>;

namespace detail {
/// What owns its memory, and would have to be moved.
template <class Memory>
concept LeftBehind =
    std::is_lvalue_reference_v<Memory> && enable_work_memory<std::remove_cvref_t<Memory>>;
/// What goes with work, but can't be filled.
template <class Memory>
concept OnlyToBeSent = GoesWithWork<Memory> && !FillableMemory<Memory>;
}  // namespace detail

// Said in one sentence wherever it is met.
#define VERBSPP_DETAIL_LEFT_BEHIND                                                                \
  VERBSPP_DETAIL_REFUSED(detail::LeftBehind<Memory>,                                              \
                         "work that owns its memory takes it over: write std::move(buffer); it "  \
                         "comes back with the result. To keep it, share it, or name elements of " \
                         "it: .elements = buffer.gather().value()")
#define VERBSPP_DETAIL_ONLY_TO_BE_SENT                                                    \
  VERBSPP_DETAIL_REFUSED(detail::OnlyToBeSent<Memory>,                                    \
                         "the device writes there: only memory that was registered with " \
                         "access::local_write can be filled")

/// Receives that take their memory with them, as `memory_operations` do: all that there is before
/// the handshake.
template <class Poster>
class memory_receive_operations {
 public:
  template <class Memory>
    requires GoesWithWork<Memory> && FillableMemory<Memory>
  [[nodiscard]] VERBSPP_DATA_PATH auto post_receive(Memory&& memory) noexcept {
    return static_cast<Poster&>(*this).take(receive_operation(), channel_tag(),
                                            std::forward<Memory>(memory));
  }

  template <class Memory>
  void post_receive(Memory&&) VERBSPP_DETAIL_LEFT_BEHIND;
  template <class Memory>
  void post_receive(Memory&&) VERBSPP_DETAIL_ONLY_TO_BE_SENT;

 protected:
  memory_receive_operations() noexcept = default;
  memory_receive_operations(memory_receive_operations&&) noexcept = default;
  memory_receive_operations& operator=(memory_receive_operations&&) noexcept = default;
  ~memory_receive_operations() = default;
};

/// Operations that take their memory with them, for whatever posts to a channel. All of the memory
/// is sent, written or filled; a part of a buffer is memory, too (`registered_buffer::part`).
///
/// - What owns its memory, such as a `registered_buffer`, is moved into the handle, and comes back
///   with the result, on failure too. If it can't be posted, it stays where it was.
/// - What shares it, such as a `shared_buffer`, is kept alive until the request has finished,
///   whether the handle is kept or not.
/// - A `message` of a pool is given to what sends or writes it, and its place comes back to the
///   pool by itself, whether the handle is kept or not; to what fills it, as memory that is owned.
///   If it can't be posted, it stays where it was.
///
/// `Poster` has `take(operation, channel_tag, memory)`. The operation names no elements of its own.
/// \errors as of the operation with elements; `invalid_input` for memory that was moved from, or
/// above 2^32 - 1 bytes
template <class Poster>
class memory_operations : public memory_receive_operations<Poster> {
 public:
  template <class Memory>
    requires GoesWithWork<Memory>
  [[nodiscard]] VERBSPP_DATA_PATH auto post_send(Memory&& memory,
                                                 const send_operation& rest = {}) noexcept {
    return poster().take(rest, channel_tag(), std::forward<Memory>(memory));
  }
  template <class Memory>
    requires GoesWithWork<Memory>
  [[nodiscard]] VERBSPP_DATA_PATH auto post_write(Memory&& memory,
                                                  const write_operation& rest) noexcept {
    return poster().take(rest, channel_tag(), std::forward<Memory>(memory));
  }
  template <class Memory>
    requires GoesWithWork<Memory> && FillableMemory<Memory>
  [[nodiscard]] VERBSPP_DATA_PATH auto post_read(Memory&& memory,
                                                 const read_operation& rest) noexcept {
    return poster().take(rest, channel_tag(), std::forward<Memory>(memory));
  }

  template <class Memory>
  void post_send(Memory&&, const send_operation& = {}) VERBSPP_DETAIL_LEFT_BEHIND;
  template <class Memory>
  void post_write(Memory&&, const write_operation&) VERBSPP_DETAIL_LEFT_BEHIND;
  template <class Memory>
  void post_read(Memory&&, const read_operation&) VERBSPP_DETAIL_LEFT_BEHIND;
  template <class Memory>
  void post_read(Memory&&, const read_operation&) VERBSPP_DETAIL_ONLY_TO_BE_SENT;

 protected:
  memory_operations() noexcept = default;
  memory_operations(memory_operations&&) noexcept = default;
  memory_operations& operator=(memory_operations&&) noexcept = default;
  ~memory_operations() = default;

 private:
  [[nodiscard]] VERBSPP_DATA_PATH Poster& poster() noexcept { return static_cast<Poster&>(*this); }
};

#undef VERBSPP_DETAIL_LEFT_BEHIND
#undef VERBSPP_DETAIL_ONLY_TO_BE_SENT

namespace detail {

/// Memory that belongs to the request once it was posted, and goes back by itself.
template <class Memory>
concept GivenAway = requires(Memory&& memory) { std::move(memory).give().let_go(); };

/// Whether the operation has the device write to its elements.
template <class Operation>
inline constexpr bool fills = std::is_same_v<decltype(Operation::elements), scatter_list>;

/// All of the memory as an element of the operation, or why not.
template <class Operation, class Memory>
[[nodiscard]] VERBSPP_DATA_PATH auto element_for(const Memory& memory) noexcept {
  if constexpr (fills<Operation>)
    return memory.scatter();
  else
    return memory.gather();
}

/// Makes all of the memory the operation's elements, unless that can't be, and `element_for` says
/// why. \returns whether it can
template <class Operation, class Memory>
[[nodiscard]] VERBSPP_DATA_PATH bool name_all(Operation& operation, const Memory& memory) noexcept {
  if constexpr (requires { memory.is_one_element(); }) {
    // A result would have what it holds in memory, where there is a call that may write to it.
    if (!memory.is_one_element()) [[unlikely]]
      return false;
    using element = std::conditional_t<fills<Operation>, scatter_element, gather_element>;
    operation.elements = memory.template all<element>();
  } else {
    const auto all = element_for<Operation>(memory);
    if (!all.has_value()) [[unlikely]]
      return false;
    operation.elements = all.assume_value();
  }
  return true;
}

}  // namespace detail

}  // namespace verbspp
