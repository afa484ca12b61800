// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <infiniband/verbs.h>

namespace softverbs {

/// True if a queue pair of this type may change from `from` to `to` with exactly these attributes,
/// whether or not they include IBV_QP_STATE.
bool transition_is_valid(ibv_qp_type type, ibv_qp_state from, ibv_qp_state to, int mask) noexcept;

}  // namespace softverbs
