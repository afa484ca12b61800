// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/config.hpp>
#include <verbspp/base/result.hpp>
#include <verbspp/channel/channel_operations.hpp>
#include <verbspp/channel/detail/channel_core.hpp>
#include <verbspp/channel/memory_operations.hpp>
#include <verbspp/channel/pending.hpp>
#include <verbspp/memory/detail/memory_keeper.hpp>
#include <verbspp/memory/work_memory.hpp>
#include <verbspp/work/operation_traits.hpp>
#include <verbspp/work/queue_pair_state.hpp>
#include <verbspp/work/receive_queue_operations.hpp>
#include <verbspp/work/send_queue_operations.hpp>

#include <type_traits>
#include <utility>

namespace verbspp {

namespace detail {

/// Posts requests to a channel, and returns handles for them.
///
/// `Poster` has the functions `core()` and `terms()`, and two types of handles: `borrowing_handle`
/// for requests that borrow their memory, `keeping_handle` for those that keep it.
template <class Poster>
class handle_giver {
 protected:
  handle_giver() noexcept = default;
  handle_giver(handle_giver&&) noexcept = default;
  handle_giver& operator=(handle_giver&&) noexcept = default;
  ~handle_giver() = default;

 private:
  friend send_queue_operations<Poster, transport::rc, queue_pair_state::ready_to_send,
                               posting_interface::extended, channel_tag>;
  friend receive_queue_operations<Poster, queue_pair_state::ready_to_send, receive_queue_kind::own,
                                  channel_tag>;
  friend receive_queue_operations<Poster, queue_pair_state::init, receive_queue_kind::own,
                                  channel_tag>;
  friend memory_operations<Poster>;
  friend memory_receive_operations<Poster>;

  template <class Operation>
  [[nodiscard]] VERBSPP_DATA_PATH auto take(const Operation& operation,
                                            channel_tag /*tag*/) noexcept {
    using posted = result<typename Poster::borrowing_handle>;
    channel_core& core = poster().core();
    request made;
    const result<void> done = core.post(operation, made, poster().terms());
    if (!done.has_value()) [[unlikely]]
      return posted(done.assume_error());
    return posted(std::in_place, &core, made);
  }

  /// Posts an operation whose elements are this memory, which is left unchanged if posting fails.
  template <class Operation, class Memory>
  [[nodiscard]] VERBSPP_DATA_PATH auto take(const Operation& rest, channel_tag /*tag*/,
                                            Memory&& memory) noexcept {
    constexpr bool is_shared = SharedMemory<Memory>;
    constexpr bool is_given = GivenAway<Memory> && !fills<Operation>;
    using handle = std::conditional_t<is_shared || is_given, typename Poster::keeping_handle,
                                      pending<std::remove_cvref_t<Memory>>>;
    using posted = result<handle>;
    channel_core& core = poster().core();
    Operation operation = rest;
    if (!name_all(operation, memory)) [[unlikely]]
      return posted(element_for<Operation>(memory).assume_error());
    kept_memory kept;
    if constexpr (is_shared) kept = memory.keep();
    request made;
    const result<void> done = core.post(operation, made, poster().terms(), kept);
    if (!done.has_value()) [[unlikely]]
      return posted(done.assume_error());
    if constexpr (is_given) core.keep(made, std::forward<Memory>(memory).give());
    if constexpr (!fills<Operation>)
      if (core.watches()) [[unlikely]]
        core.protect(made.number, native_of(operation.elements));
    if constexpr (is_shared || is_given)
      return posted(std::in_place, &core, made);
    else
      return posted(std::in_place, &core, made, std::forward<Memory>(memory));
  }

  [[nodiscard]] VERBSPP_DATA_PATH Poster& poster() noexcept { return static_cast<Poster&>(*this); }
};

}  // namespace detail

/// All that channels and their scopes post, and give handles of: operations whose memory is named
/// by elements, and those that take their memory with them.
///
/// `Poster` has what `detail::handle_giver` asks for.
template <class Poster>
class posting_operations : public channel_operations<Poster>,
                           public memory_operations<Poster>,
                           public detail::handle_giver<Poster> {
 public:
  using channel_operations<Poster>::post_receive;
  using channel_operations<Poster>::post_send;
  using channel_operations<Poster>::post_write;
  using channel_operations<Poster>::post_read;
  using memory_operations<Poster>::post_receive;
  using memory_operations<Poster>::post_send;
  using memory_operations<Poster>::post_write;
  using memory_operations<Poster>::post_read;

 protected:
  posting_operations() noexcept = default;
  posting_operations(posting_operations&&) noexcept = default;
  posting_operations& operator=(posting_operations&&) noexcept = default;
  ~posting_operations() = default;
};

}  // namespace verbspp
