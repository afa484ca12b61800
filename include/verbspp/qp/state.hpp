// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/detail/because.hpp>
#include <verbspp/work/posting_interface.hpp>
#include <verbspp/work/queue_pair_state.hpp>
#include <verbspp/work/transport.hpp>

#include <cstdint>

namespace verbspp {

template <queue_pair_state State>
concept Prepared = detail::because(
    State == queue_pair_state::init,
    "handshake() (on UD, activate()) needs a prepared queue pair, in INIT, like the "
    "one that build() returns: this one is in another state, for example because "
    "it is already connected");

template <queue_pair_state State>
concept Reset = detail::because(State == queue_pair_state::reset,
                                "only a queue pair in RESET can be prepared: see to_reset()");

namespace detail {
/// True if a failed send stops only the send queue, so that the queue pair goes to SQE. This is the
/// case on UC and UD, in the two states in which sends are processed, RTS and SQD. On RC, the queue
/// pair goes to ERR.
template <transport Transport, queue_pair_state State>
inline constexpr bool stops_sending =
    Transport != transport::rc &&
    (State == queue_pair_state::ready_to_send || State == queue_pair_state::send_queue_drained);
}  // namespace detail

/// True for the states to which a device may move a queue pair on its own.
template <transport Transport, queue_pair_state State, queue_pair_state Actual>
concept EntersByItself =
    detail::because(
        Actual == queue_pair_state::error || Actual == queue_pair_state::send_queue_error,
        "on its own, a device moves a queue pair only to ERR or SQE: for other states, use "
        "handshake, modify, prepare or to_reset; after C code has changed the state, use "
        "assume_state_unchecked") &&
    detail::because(Actual != queue_pair_state::error || State != queue_pair_state::reset,
                    "a device does not move a queue pair from RESET to ERR, because a queue pair "
                    "in RESET processes nothing: after C code has changed the state, use "
                    "assume_state_unchecked") &&
    detail::because(
        Actual != queue_pair_state::send_queue_error || detail::stops_sending<Transport, State>,
        "only a failed send on a UC or UD queue pair in RTS or SQD leads to SQE: every other "
        "failure leads to ERR");

}  // namespace verbspp
