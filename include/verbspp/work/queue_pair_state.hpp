// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/detail/because.hpp>

#include <infiniband/verbs.h>

#include <cstdint>

namespace verbspp {

/// The states of a queue pair, with the values of `ibv_qp_state`.
enum class queue_pair_state : std::uint8_t {
  reset = IBV_QPS_RESET,
  init = IBV_QPS_INIT,  ///< receives can be posted; nothing arrives yet
  ready_to_receive = IBV_QPS_RTR,
  ready_to_send = IBV_QPS_RTS,
  send_queue_drained = IBV_QPS_SQD,
  send_queue_error = IBV_QPS_SQE,
  error = IBV_QPS_ERR,  ///< its requests, outstanding or posted later, complete as flushed
};

[[nodiscard]] constexpr const char* to_string(queue_pair_state state) noexcept {
  switch (state) {
    case queue_pair_state::reset:
      return "RESET";
    case queue_pair_state::init:
      return "INIT";
    case queue_pair_state::ready_to_receive:
      return "RTR";
    case queue_pair_state::ready_to_send:
      return "RTS";
    case queue_pair_state::send_queue_drained:
      return "SQD";
    case queue_pair_state::send_queue_error:
      return "SQE";
    case queue_pair_state::error:
      return "ERR";
  }
  return "unknown state";
}

template <queue_pair_state State>
concept AcceptsReceives =
    detail::because(State != queue_pair_state::reset,
                    "a queue pair in RESET accepts no receives: bring it to INIT first");

/// States in which requests can be posted to the send queue. In SQD, such requests wait; in SQE and
/// ERR, they complete as flushed.
template <queue_pair_state State>
concept AcceptsSends =
    detail::because(
        State != queue_pair_state::reset && State != queue_pair_state::init,
        "this queue pair or channel is not connected, so nothing can be sent yet: call "
        "std::move(queue_pair).handshake(remote_endpoint) (on UD, .activate()) or modify, and use "
        "the queue pair in RTS that it returns; for a channel, call "
        "std::move(prepared).handshake(remote_endpoint)") &&
    detail::because(State != queue_pair_state::ready_to_receive,
                    "a queue pair in RTR only receives: nothing can be sent before it is in RTS");

}  // namespace verbspp
