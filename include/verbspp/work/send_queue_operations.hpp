// SPDX-License-Identifier: Apache-2.0
/// \file
/// The functions that post the operations of a send queue, with their documentation and
/// constraints.
#pragma once

#include <verbspp/base/config.hpp>
#include <verbspp/base/detail/because.hpp>
#include <verbspp/base/detail/dependent.hpp>
#include <verbspp/memory/access.hpp>
#include <verbspp/memory/memory_window.hpp>
#include <verbspp/memory/window_part.hpp>
#include <verbspp/work/operations.hpp>
#include <verbspp/work/posting_interface.hpp>
#include <verbspp/work/queue_pair_state.hpp>
#include <verbspp/work/transport.hpp>

#include <type_traits>

namespace verbspp {

namespace detail {
/// The operation that a send performs on this transport. On UD, it contains the destination of the
/// datagram.
template <transport Transport>
using sent_by = std::conditional_t<Transport == transport::ud, datagram_operation, send_operation>;
}  // namespace detail

/// The operations that a send queue offers.
///
/// `Poster` inherits from this class, and processes each operation in its own way: a queue pair or
/// a stream posts it and returns a `result<void>`; a channel or a scope posts it and returns a
/// handle in a `result`; a batch adds it to the requests that will be posted together, and returns
/// nothing. `Poster` has `submit(operation, tag)`. A queue pair and its batches also have
/// `submit_bind(window, part, options, tag)`, which returns the handle for peers; a queue pair
/// returns it in a `result`. A call does not compile if the transport, the state or the posting
/// interface does not allow the operation. `Tag` is the type of the argument with which a caller
/// tracks its request; it is an empty class if `Poster` tracks the requests.
///
/// The program must not change the memory of a request, except inline bytes, until the request has
/// completed. The errors depend on `Poster`. For a queue pair, they are:
/// \errors `would_block` if the send queue is full; `invalid_input` for too many elements or inline
/// bytes, for values that the functions below do not permit, and for a fence on a transport other
/// than RC; `not_supported`, `driver`
template <class Poster, transport Transport, queue_pair_state State, posting_interface Posting,
          class Tag = work_tag>
class VERBSPP_CONSUMABLE send_queue_operations {
 public:
  /// Sends a message to the peer, which receives it in the oldest receive that is posted. On UD,
  /// sends a datagram, whose length is at most the path MTU, to its destination. The completion of
  /// the send does not mean that the datagram has arrived. The address handle must live until the
  /// send has completed.
  [[nodiscard]] VERBSPP_CALLABLE_UNCONSUMED VERBSPP_DATA_PATH auto post_send(
      const detail::sent_by<Transport>& operation, Tag tag = {}) noexcept VERBSPP_NONBLOCKING
    requires AcceptsSends<State>
  {
    return poster().submit(operation, tag);
  }
  VERBSPP_DETAIL_OTHERWISE(
      post_send, (Transport != transport::ud && AcceptsSends<State>),
      "post_send takes {.elements, .immediate, .solicited, .fenced}, in this order; on a queue "
      "pair, a tag {.id, .signaled} can follow; on a channel or scope, a buffer before the braces "
      "can replace .elements; only UD sends have a destination, .to");
  VERBSPP_DETAIL_OTHERWISE(
      post_send, (Transport == transport::ud && AcceptsSends<State>),
      "a UD queue pair has no single peer to send to: specify the destination with .to = "
      "address_handle.destination(number, qkey); post_send takes {.elements, .to, .immediate, "
      ".solicited}, in this order; a tag {.id, .signaled} can follow");

  /// Writes to the peer's memory, which must be at least as long as the elements together.
  [[nodiscard]] VERBSPP_CALLABLE_UNCONSUMED VERBSPP_DATA_PATH auto post_write(
      const write_operation& operation, Tag tag = {}) noexcept VERBSPP_NONBLOCKING
    requires CarriesWrites<Transport> && AcceptsSends<State>
  {
    return poster().submit(operation, tag);
  }
  VERBSPP_DETAIL_OTHERWISE(
      post_write, (CarriesWrites<Transport> && AcceptsSends<State>),
      "post_write needs memory of the peer in .remote, and takes {.elements, .remote, .immediate, "
      ".solicited, .fenced}, in this order; on a queue pair, a tag {.id, .signaled} can follow; on "
      "a channel or scope, a buffer before the braces can replace .elements");

  /// Reads from the peer's memory, which must be at least as long as the elements together. The
  /// local memory belongs to the device until the read has completed.
  [[nodiscard]] VERBSPP_CALLABLE_UNCONSUMED VERBSPP_DATA_PATH auto post_read(
      const read_operation& operation, Tag tag = {}) noexcept VERBSPP_NONBLOCKING
    requires CarriesReads<Transport> && AcceptsSends<State>
  {
    return poster().submit(operation, tag);
  }
  VERBSPP_DETAIL_OTHERWISE(
      post_read, (CarriesReads<Transport> && AcceptsSends<State>),
      "post_read needs memory of the peer in .remote, and takes {.elements, .remote, .fenced}, in "
      "this order; on a queue pair, a tag {.id, .signaled} can follow; on a channel or scope, a "
      "buffer before the braces can replace .elements");

  /// Compares a word in the peer's memory with the expected value, and replaces the word if they
  /// are equal, in one step. The 8 bytes of memory for the result belong to the device until the
  /// request has completed.
  [[nodiscard]] VERBSPP_CALLABLE_UNCONSUMED VERBSPP_DATA_PATH auto post_compare_and_swap(
      const compare_and_swap_operation& operation, Tag tag = {}) noexcept VERBSPP_NONBLOCKING
    requires CarriesAtomics<Transport> && AcceptsSends<State>
  {
    return poster().submit(operation, tag);
  }
  VERBSPP_DETAIL_OTHERWISE(
      post_compare_and_swap, (CarriesAtomics<Transport> && AcceptsSends<State>),
      "post_compare_and_swap needs .result = region.scatter(0, 8).value() and .remote = "
      "remote_word::at(memory, offset).value(), and takes {.result, .remote, .expected, .desired, "
      ".fenced}, in this order; on a queue pair, a tag {.id, .signaled} can follow");
  /// Adds a number to a word in the peer's memory, in one step. The 8 bytes of memory for the
  /// result belong to the device until the request has completed.
  [[nodiscard]] VERBSPP_CALLABLE_UNCONSUMED VERBSPP_DATA_PATH auto post_fetch_and_add(
      const fetch_and_add_operation& operation, Tag tag = {}) noexcept VERBSPP_NONBLOCKING
    requires CarriesAtomics<Transport> && AcceptsSends<State>
  {
    return poster().submit(operation, tag);
  }
  VERBSPP_DETAIL_OTHERWISE(
      post_fetch_and_add, (CarriesAtomics<Transport> && AcceptsSends<State>),
      "post_fetch_and_add needs .result = region.scatter(0, 8).value() and .remote = "
      "remote_word::at(memory, offset).value(), and takes {.result, .remote, .addend, .fenced}, in "
      "this order; on a queue pair, a tag {.id, .signaled} can follow");

  /// Writes eight bytes to the peer's memory in one step (`ibv_wr_atomic_write`).
  /// \errors in addition, `invalid_input` if the remote memory is shorter than 8 bytes, or not
  /// aligned to 8 bytes; `not_supported` if the queue pair lacks this operation
  [[nodiscard]] VERBSPP_CALLABLE_UNCONSUMED VERBSPP_DATA_PATH auto post_atomic_write(
      const atomic_write_operation& operation, Tag tag = {}) noexcept VERBSPP_NONBLOCKING
    requires CarriesAcknowledgedWrites<Transport> && PostsExtended<Posting> &&
             LibibverbsWritesAtomically<detail::dependent<ibv_qp_ex, Transport>> &&
             AcceptsSends<State>
  {
    return poster().submit(operation, tag);
  }
  VERBSPP_DETAIL_OTHERWISE(
      post_atomic_write,
      (CarriesAcknowledgedWrites<Transport> && PostsExtended<Posting> &&
       LibibverbsWritesAtomically<detail::dependent<ibv_qp_ex, Transport>> && AcceptsSends<State>),
      "post_atomic_write needs memory of the peer in .remote, and takes {.value, .remote, "
      ".fenced}, in this order; on a queue pair, a tag {.id, .signaled} can follow");
  /// Posts a request that completes when the data that this queue pair previously wrote to the
  /// peer's memory has reached the requested placement (`ibv_wr_flush`).
  /// \errors in addition, `invalid_input` if no placement is requested; `permission` for a
  /// placement that the peer did not grant; `not_supported` if the queue pair lacks this operation
  [[nodiscard]] VERBSPP_CALLABLE_UNCONSUMED VERBSPP_DATA_PATH auto post_flush(
      const flush_operation& operation, Tag tag = {}) noexcept VERBSPP_NONBLOCKING
    requires CarriesAcknowledgedWrites<Transport> && PostsExtended<Posting> &&
             LibibverbsFlushes<detail::dependent<ibv_qp_ex, Transport>> && AcceptsSends<State>
  {
    return poster().submit(operation, tag);
  }
  VERBSPP_DETAIL_OTHERWISE(
      post_flush,
      (CarriesAcknowledgedWrites<Transport> && PostsExtended<Posting> &&
       LibibverbsFlushes<detail::dependent<ibv_qp_ex, Transport>> && AcceptsSends<State>),
      "post_flush needs memory of the peer in .remote, and takes {.remote, .placement, .scope, "
      ".fenced}, in this order; on a queue pair, a tag {.id, .signaled} can follow");

  /// Sends a message, and invalidates an rkey of the peer. Only for devices that support this
  /// operation (`IBV_DEVICE_MEM_MGT_EXTENSIONS`).
  [[nodiscard]] VERBSPP_CALLABLE_UNCONSUMED VERBSPP_DATA_PATH auto post_send_with_invalidate(
      const send_with_invalidate_operation& operation, Tag tag = {}) noexcept VERBSPP_NONBLOCKING
    requires CarriesInvalidation<Transport> && AcceptsSends<State>
  {
    return poster().submit(operation, tag);
  }
  VERBSPP_DETAIL_OTHERWISE(post_send_with_invalidate,
                           (CarriesInvalidation<Transport> && AcceptsSends<State>),
                           "post_send_with_invalidate needs the remote_key of a window or region "
                           "of the peer in .rkey, and takes {.elements, .rkey, .solicited, "
                           ".fenced}, in this order; on a queue pair, a tag {.id, .signaled} can "
                           "follow");
  /// Invalidates an rkey of this side. Only for devices that support this operation
  /// (`IBV_DEVICE_MEM_MGT_EXTENSIONS`).
  [[nodiscard]] VERBSPP_CALLABLE_UNCONSUMED VERBSPP_DATA_PATH auto post_local_invalidate(
      const local_invalidate_operation& operation, Tag tag = {}) noexcept VERBSPP_NONBLOCKING
    requires CarriesInvalidation<Transport> && AcceptsSends<State>
  {
    return poster().submit(operation, tag);
  }
  VERBSPP_DETAIL_OTHERWISE(
      post_local_invalidate, (CarriesInvalidation<Transport> && AcceptsSends<State>),
      "post_local_invalidate needs the remote_key of a window or region of this side in .rkey, and "
      "takes {.rkey, .fenced}, in this order; on a queue pair, a tag {.id, .signaled} can follow");

  /// Binds a memory window to a part of a region. The bind completes in the send completion queue.
  /// After that, the peers that the window's type admits have access through the returned handle,
  /// as far as the queue pair's access flags allow, and the window's previous handle is invalid. A
  /// part of zero bytes unbinds a window of type 1. In a batch, windows must be of type 2, each can
  /// be bound once, and the handle is valid only if the bind is posted.
  /// \errors in addition, `invalid_input` if the window and the region are in different protection
  /// domains, if the window is of type 2 and the part has zero bytes, or if the window was moved
  /// from; `not_supported` if the device cannot bind a part of this length (on some devices, more
  /// than 2 GiB). After an error, the window is unchanged
  template <memory_window_type Type, access_flags Rights>
    requires BindsWindows<Transport> && AcceptsSends<State>
  [[nodiscard]] VERBSPP_CALLABLE_UNCONSUMED VERBSPP_DATA_PATH auto post_bind(
      memory_window<Type>& window, const window_part<Rights>& part, bind_options options,
      Tag tag) noexcept {
    return poster().submit_bind(window, part, options, tag);
  }
  template <memory_window_type Type, access_flags Rights>
    requires BindsWindows<Transport> && AcceptsSends<State>
  [[nodiscard]] VERBSPP_CALLABLE_UNCONSUMED VERBSPP_DATA_PATH auto post_bind(
      memory_window<Type>& window, const window_part<Rights>& part, Tag tag = {}) noexcept {
    return poster().submit_bind(window, part, bind_options{}, tag);
  }

 protected:
  send_queue_operations() noexcept = default;
  send_queue_operations(send_queue_operations&&) noexcept = default;
  send_queue_operations& operator=(send_queue_operations&&) noexcept = default;
  ~send_queue_operations() = default;

 private:
  [[nodiscard]] VERBSPP_DATA_PATH Poster& poster() noexcept VERBSPP_NONBLOCKING {
    return static_cast<Poster&>(*this);
  }
};

}  // namespace verbspp
