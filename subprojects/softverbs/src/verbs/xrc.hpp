// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <infiniband/verbs.h>

namespace softverbs {

class device_context;
struct xrc_target;

/// Creates an XRC receive queue pair for ibv_create_qp_ex. Returns 0 or an errno value.
int create_target(device_context& device, ibv_qp_init_attr_ex& attributes, ibv_qp*& created);
/// Implements ibv_destroy_qp for an object that refers to an XRC receive queue pair.
int destroy_target(xrc_target& target);
/// Returns the error for a request posted to an XRC receive queue pair, to which nothing can be
/// posted. Uses only the object `target`: the queue pair to which the object refers may be moving
/// to another context of the device at the same time.
int refuse_request(const ibv_qp& target) noexcept;

}  // namespace softverbs
