// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/detail/because.hpp>

#include <infiniband/verbs.h>

#include <cstdint>

namespace verbspp {

/// The service of a queue pair; the values are those of `ibv_qp_type`.
enum class transport : std::uint8_t {
  rc = IBV_QPT_RC,  ///< reliable connection
  uc = IBV_QPT_UC,  ///< unreliable connection
  ud = IBV_QPT_UD,  ///< unreliable datagram
};

[[nodiscard]] const char* to_string(transport type) noexcept;

/// What a queue pair can do at the moment; the values are those of `ibv_qp_state`.
enum class queue_pair_state : std::uint8_t {
  reset = IBV_QPS_RESET,
  init = IBV_QPS_INIT,  ///< receives can be posted; nothing arrives yet
  ready_to_receive = IBV_QPS_RTR,
  ready_to_send = IBV_QPS_RTS,
  send_queue_drained = IBV_QPS_SQD,
  send_queue_error = IBV_QPS_SQE,
  error = IBV_QPS_ERR,  ///< everything that is outstanding or posted completes as flushed
};

[[nodiscard]] const char* to_string(queue_pair_state state) noexcept;

template <transport Transport>
concept Connectable = detail::because(Transport == transport::rc,
                                      "so far only transport::rc (reliable connection) can be "
                                      "built; UC and UD are not there yet");

template <queue_pair_state State>
concept AcceptsReceives =
    detail::because(State != queue_pair_state::reset,
                    "a queue pair in RESET takes no receives: bring it to INIT first");

template <queue_pair_state State>
concept Connected = detail::because(
    State == queue_pair_state::ready_to_send,
    "this queue pair is not connected: nothing can be sent before "
    "std::move(queue_pair).handshake(remote_endpoint) has returned a connected one");

template <queue_pair_state State>
concept Prepared = detail::because(
    State == queue_pair_state::init,
    "this queue pair is connected already: only a prepared queue pair, as build() returns it, "
    "has a handshake");

}  // namespace verbspp
