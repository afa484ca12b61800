// SPDX-License-Identifier: Apache-2.0
/// \file
/// Modifications of queue pairs with attributes that are known only at run time, such as those of
/// librdmacm's `rdma_init_qp_attr`. The attributes are checked against the transition table before
/// the kernel is called. This file also defines the attributes that a connection manager supplies
/// for a handshake.
#pragma once

#include <verbspp/base/result.hpp>

#include <infiniband/verbs.h>

namespace verbspp {

/// Checks that the kernel will accept `ibv_modify_qp` with this mask. The values of the attributes
/// are not checked. Unlike `modify_is_valid`, it reports the first attribute that is missing, or
/// that the transition does not accept.
/// \errors `invalid_input`
[[nodiscard]] result<void> check_modification(ibv_qp_type type, ibv_qp_state from, ibv_qp_state to,
                                              int attr_mask) noexcept;

/// Calls `ibv_modify_qp` for a queue pair that the library does not own, after
/// `check_modification`. The previous state is the one that IBV_QP_CUR_STATE specifies, or, without
/// that attribute, the one that the device reports. Without IBV_QP_STATE in the mask, the queue
/// pair remains in that state.
///
/// For a queue pair that the library owns, use `queue_pair::modify_native`, which also keeps the
/// state in the queue pair's type up to date.
/// \errors `invalid_input` if an attribute is missing or not accepted, there is no such transition,
/// or the pointer is null; those of `ibv_query_qp` and, with the transition's name, of
/// `ibv_modify_qp`
[[nodiscard]] result<void> modify_native(ibv_qp* queue_pair, const ibv_qp_attr& attributes,
                                         int attr_mask) noexcept;

/// The attributes that a connection manager supplies for each of the transitions that bring a queue
/// pair to RTS, as filled in by `rdma_init_qp_attr`. A handshake accepts them instead of the peer's
/// endpoint. `verbspp-cm` creates them, and so can a program that uses librdmacm itself.
///
/// The manager determines the connection: port and partition, path and local address, path MTU, the
/// peer's number and both PSNs. The builder determines the rights, timers and retry counts. For
/// each maximum number of reads, the manager's or the builder's value is used, whichever is lower.
///
/// A plain value.
struct managed_attributes {
  /// The arguments of `ibv_modify_qp`; IBV_QP_STATE in the mask is optional.
  struct step {
    ibv_qp_attr attributes{};
    int mask = 0;
  };
  step init{};  ///< if empty, the builder's port and partition are used
  step ready_to_receive{};
  step ready_to_send{};
};

}  // namespace verbspp
