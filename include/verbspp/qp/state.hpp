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

/// Has a peer of its own.
template <transport Transport>
concept Connects = detail::because(
    Transport == transport::rc || Transport == transport::uc,
    "a UD queue pair is connected to nobody: handshake, path and access flags are for RC and UC; "
    "on UD every datagram has an address handle");

template <transport Transport>
concept SendsDatagrams =
    detail::because(Transport == transport::ud,
                    "only UD sends datagrams: the queue key, activate() and multicast groups do "
                    "not exist on RC and UC");

template <transport Transport>
concept SendsToItsPeer =
    detail::because(Transport != transport::ud,
                    "a UD queue pair has no peer of its own to send to: name the destination, as "
                    ".to = address_handle.destination(number, qkey)");

/// Has acknowledgements, and so retries and requests with an answer.
template <transport Transport>
concept Acknowledges =
    detail::because(Transport == transport::rc,
                    "only RC has acknowledgements: on UC and UD there are no timeouts, no retries "
                    "and no outstanding reads to set");

template <transport Transport>
concept CarriesWrites = detail::because(Transport == transport::rc || Transport == transport::uc,
                                        "UD carries nothing but sends: an RDMA write needs RC or "
                                        "UC");

template <transport Transport>
concept CarriesReads =
    detail::because(Transport != transport::ud,
                    "UD carries nothing but sends: an RDMA read needs RC") &&
    detail::because(Transport != transport::uc,
                    "UC carries no RDMA reads, since it has no answers: they need RC");

template <transport Transport>
concept CarriesAtomics =
    detail::because(Transport != transport::ud,
                    "UD carries nothing but sends: atomic operations need RC") &&
    detail::because(Transport != transport::uc,
                    "UC carries no atomic operations, since it has no answers: they need RC");

template <transport Transport>
concept CarriesInvalidation =
    detail::because(Transport == transport::rc, "only RC carries invalidations of an rkey");

template <transport Transport>
concept BindsWindows =
    detail::because(Transport != transport::ud,
                    "UD carries nothing but sends, so nobody could access memory through a window: "
                    "binding one needs RC or UC");

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
concept AcceptsReceives =
    detail::because(State != queue_pair_state::reset,
                    "a queue pair in RESET takes no receives: bring it to INIT first");

/// In SQD sends wait; in SQE and ERR they complete as flushed.
template <queue_pair_state State>
concept AcceptsSends =
    detail::because(State != queue_pair_state::reset && State != queue_pair_state::init,
                    "this queue pair is not connected: nothing can be sent before "
                    "std::move(queue_pair).handshake(remote_endpoint) (on UD: .activate()) has "
                    "returned a connected one") &&
    detail::because(State != queue_pair_state::ready_to_receive,
                    "a queue pair in RTR only receives: nothing can be sent before it is in RTS");

template <queue_pair_state State>
concept Prepared = detail::because(
    State == queue_pair_state::init,
    "only a prepared queue pair (in INIT), as build() returns it, has a handshake: this one is not "
    "there yet, or is connected already");

template <queue_pair_state State>
concept Reset = detail::because(State == queue_pair_state::reset,
                                "only a queue pair in RESET can be prepared: see to_reset()");

}  // namespace verbspp
