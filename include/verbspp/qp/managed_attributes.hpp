// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <infiniband/verbs.h>

namespace verbspp {

/// What a connection manager says of a connection: the attributes for each step of a queue pair's
/// way to RTS, as `rdma_init_qp_attr` gives them. A handshake takes them in the place of the peer's
/// endpoint; `verbspp-cm` makes them, and a program that uses librdmacm itself can, too.
///
/// The manager decides where and to whom: port and partition, path and local address, path MTU, the
/// peer's number and both PSNs. The rest is as the builder was given it: rights, timers and retry
/// counts, and how many reads there may be at most; of these the manager's numbers are what both
/// ends agreed on.
///
/// A plain value.
struct managed_attributes {
  /// What `ibv_modify_qp` takes; IBV_QP_STATE may be in the mask or not.
  struct step {
    ibv_qp_attr attributes{};
    int mask = 0;
  };
  step init{};  ///< may be empty: then the port and the partition are the builder's
  step ready_to_receive{};
  step ready_to_send{};
};

}  // namespace verbspp
