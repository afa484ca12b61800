// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <infiniband/verbs.h>

namespace softverbs {

class device_context;

/// Whether a queue pair is asked for that spreads frames over work queues.
bool asks_to_spread(const ibv_qp_init_attr_ex& attributes) noexcept;
/// As ibv_create_qp_ex, of such a one: 0 or an errno.
int create_spreading(device_context& device, ibv_qp_init_attr_ex& attributes, ibv_qp*& created);

}  // namespace softverbs
