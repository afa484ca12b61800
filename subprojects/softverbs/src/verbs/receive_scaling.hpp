// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <infiniband/verbs.h>

namespace softverbs {

class device_context;

/// True if the attributes request a queue pair that spreads frames over work queues.
bool asks_to_spread(const ibv_qp_init_attr_ex& attributes) noexcept;
/// Creates a queue pair that spreads frames, for ibv_create_qp_ex. Returns 0 or an errno value.
int create_spreading(device_context& device, ibv_qp_init_attr_ex& attributes, ibv_qp*& created);

}  // namespace softverbs
