// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/detail/because.hpp>
#include <verbspp/work/queue_pair_state.hpp>
#include <verbspp/work/transport.hpp>

#include <cstdint>

namespace verbspp {

/// Where a queue pair takes its receives from.
enum class receive_queue_kind : std::uint8_t {
  own,
  shared,  ///< a `shared_receive_queue`
};

/// How a queue pair's batches are posted.
enum class posting_interface : std::uint8_t {
  standard,  ///< `ibv_post_send` of a linked list, which every device has
  extended,  ///< `ibv_wr_start` to `ibv_wr_complete`
};

template <receive_queue_kind Receives>
concept OwnReceiveQueue =
    detail::because(Receives == receive_queue_kind::own,
                    "this queue pair takes its receives from a shared receive queue: post them "
                    "there");

template <queue_pair_state State>
concept Prepared = detail::because(
    State == queue_pair_state::init,
    "only a prepared queue pair (in INIT), as build() returns it, has a handshake: this one is not "
    "there yet, or is connected already");

template <queue_pair_state State>
concept Reset = detail::because(State == queue_pair_state::reset,
                                "only a queue pair in RESET can be prepared: see to_reset()");

}  // namespace verbspp
