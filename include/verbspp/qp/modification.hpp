// SPDX-License-Identifier: Apache-2.0
/// \file
/// Modifications whose attributes are known only at run time, checked against the transition table
/// before the kernel is called, for connection managers such as librdmacm's `rdma_init_qp_attr`;
/// and the attributes that such a manager supplies for a handshake.
#pragma once

#include <verbspp/base/result.hpp>

#include <infiniband/verbs.h>

namespace verbspp {

/// Checks that the kernel accepts `ibv_modify_qp` with these attributes, like `modify_is_valid`,
/// but with a reason: the first attribute that is missing, or that the transition does not accept.
/// \errors `invalid_input`
[[nodiscard]] result<void> check_modification(ibv_qp_type type, ibv_qp_state from, ibv_qp_state to,
                                              int attr_mask) noexcept;

/// Calls `ibv_modify_qp` for a queue pair that the library does not own, after `check_modification`
/// from the state that the device reports, or that IBV_QP_CUR_STATE specifies. Without IBV_QP_STATE
/// in the mask, the queue pair remains in that state.
///
/// For a queue pair that the library owns, use `queue_pair::modify_native`, which also updates the
/// type.
/// \errors `invalid_input` if an attribute is missing or not accepted, there is no such transition,
/// or the pointer is null; those of the device, with the transition's name
[[nodiscard]] result<void> modify_native(ibv_qp* queue_pair, const ibv_qp_attr& attributes,
                                         int attr_mask) noexcept;

/// The attributes of a connection manager for each step of a queue pair to RTS, as filled by
/// `rdma_init_qp_attr`. A handshake accepts them instead of the peer's endpoint. `verbspp-cm`
/// creates them, and so can a program that uses librdmacm itself.
///
/// The manager determines the connection: port and partition, path and local address, path MTU, the
/// peer's number and both PSNs. The other attributes come from the builder: rights, timers, retry
/// counts, and the maximum numbers of reads; of these, the manager has the numbers that both ends
/// agreed on.
///
/// A plain value.
struct managed_attributes {
  /// The arguments of `ibv_modify_qp`; IBV_QP_STATE in the mask is optional.
  struct step {
    ibv_qp_attr attributes{};
    int mask = 0;
  };
  step init{};  ///< if empty, port and partition are the builder's choice
  step ready_to_receive{};
  step ready_to_send{};
};

}  // namespace verbspp
