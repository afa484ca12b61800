// SPDX-License-Identifier: Apache-2.0
/// \file
/// Modifications whose attributes are known at run time only, checked against the transition table
/// before the kernel is asked: for connection managers, such as librdmacm's `rdma_init_qp_attr`;
/// and the attributes that such a manager has for a handshake.
#pragma once

#include <verbspp/base/result.hpp>

#include <infiniband/verbs.h>

namespace verbspp {

/// Whether the kernel takes `ibv_modify_qp` with these attributes, as `modify_is_valid`, with the
/// reason in words: the first attribute that is missing, or that the transition does not take.
/// \errors `invalid_input`
[[nodiscard]] result<void> check_modification(ibv_qp_type type, ibv_qp_state from, ibv_qp_state to,
                                              int attr_mask) noexcept;

/// `ibv_modify_qp`, for a queue pair that the library does not hold. `check_modification` comes
/// first, from the state that the device reports, or the one that IBV_QP_CUR_STATE names; without
/// IBV_QP_STATE in the mask the queue pair stays in that.
///
/// A queue pair that the library holds has `queue_pair::modify_native`, which the type follows.
/// \errors `invalid_input` if an attribute is missing or not taken, there is no such transition, or
/// the pointer is null; those of the device, with the transition's name
[[nodiscard]] result<void> modify_native(ibv_qp* queue_pair, const ibv_qp_attr& attributes,
                                         int attr_mask) noexcept;

/// The attributes that a connection manager has for each step of a queue pair's way to RTS, as
/// `rdma_init_qp_attr` fills them. A handshake takes them in the place of the peer's
/// endpoint; `verbspp-cm` makes them, and a program that uses librdmacm itself can, too.
///
/// The manager decides where and to whom: port and partition, path and local address, path MTU, the
/// peer's number and both PSNs. The rest is as the builder was given it: rights, timers and retry
/// counts, and how many reads there may be at most; of these the manager's numbers are what both
/// ends agreed on.
///
/// A plain value.
struct managed_attributes {
  /// The arguments of `ibv_modify_qp`; IBV_QP_STATE may be in the mask or not.
  struct step {
    ibv_qp_attr attributes{};
    int mask = 0;
  };
  step init{};  ///< if empty, the builder has the port and the partition
  step ready_to_receive{};
  step ready_to_send{};
};

}  // namespace verbspp
