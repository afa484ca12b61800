// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <infiniband/verbs.h>

/// Verbs that no version of libibverbs has. stand_in.cpp defines them in the same way as libibverbs
/// defines most of its own verbs: each of them calls an operation in a table behind
/// `verbs_context::priv`. This table has a layout of its own.
extern "C" {
int ibv_tomorrow_query(ibv_context* context, int* value);
int ibv_tomorrow_export(ibv_pd* domain);
ibv_mr* ibv_tomorrow_register(ibv_pd* domain);
void ibv_tomorrow_release(ibv_mr* region);
int ibv_tomorrow_change(ibv_qp* pair);
}
