// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/config.hpp>
#include <verbspp/base/detail/because.hpp>
#include <verbspp/work/operations.hpp>
#include <verbspp/work/posting_interface.hpp>
#include <verbspp/work/queue_pair_state.hpp>

namespace verbspp {

/// The operations that a receive queue offers. `Poster`, which inherits from this class, is a queue
/// pair, a channel, a scope, a stream or a batch of receives. Its `submit(operation, tag)` posts
/// the receive, or adds it to the batch.
///
/// The memory belongs to the device until the receive has completed. On UD, the first 40 bytes of
/// the memory are reserved for the global route header, and `received_datagram` returns the payload
/// that follows it.
/// \errors for a queue pair: `would_block` if the queue is full; `invalid_input` for too many
/// elements, or too few bytes on UD; `driver`
template <class Poster, queue_pair_state State, receive_queue_kind Receives,
          class Tag = receive_tag>
class VERBSPP_CONSUMABLE receive_queue_operations {
 public:
  /// Provides memory for one message.
  [[nodiscard]] VERBSPP_CALLABLE_UNCONSUMED VERBSPP_DATA_PATH auto post_receive(
      const receive_operation& operation, Tag tag = {}) noexcept VERBSPP_NONBLOCKING
    requires OwnReceiveQueue<Receives> && AcceptsReceives<State>
  {
    return static_cast<Poster&>(*this).submit(operation, tag);
  }
  VERBSPP_DETAIL_OTHERWISE(
      post_receive, (OwnReceiveQueue<Receives> && AcceptsReceives<State>),
      "post_receive takes {.elements}; on a queue pair, a tag {.id} can follow; on a channel or "
      "scope, a buffer can replace the braces");

 protected:
  receive_queue_operations() noexcept = default;
  receive_queue_operations(receive_queue_operations&&) noexcept = default;
  receive_queue_operations& operator=(receive_queue_operations&&) noexcept = default;
  ~receive_queue_operations() = default;
};

}  // namespace verbspp
