// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <infiniband/verbs.h>

namespace softverbs {

class device_context;
struct xrc_target;

/// Like ibv_create_qp_ex with IBV_QPT_XRC_RECV. Returns 0 or an errno value.
int create_target(device_context& device, ibv_qp_init_attr_ex& attributes, ibv_qp*& created);
/// Like ibv_destroy_qp.
int destroy_target(xrc_target& target);
/// The result of posting to such an object, which has no queues. Does not access its queue pair,
/// which may be moving to another device.
int refuse_request(const ibv_qp& target) noexcept;

}  // namespace softverbs
