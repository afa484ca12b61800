// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <infiniband/verbs.h>

namespace softverbs {

/// Whether a queue pair of this type may go from `from` to `to` with exactly these
/// attributes given (IBV_QP_STATE among them or not).
bool transition_is_valid(ibv_qp_type type, ibv_qp_state from, ibv_qp_state to, int mask) noexcept;

}  // namespace softverbs
