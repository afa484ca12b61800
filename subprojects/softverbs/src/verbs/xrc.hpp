// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <infiniband/verbs.h>

namespace softverbs {

class device_context;
struct xrc_target;

/// As ibv_create_qp_ex with IBV_QPT_XRC_RECV: 0 or an errno.
int create_target(device_context& device, ibv_qp_init_attr_ex& attributes, ibv_qp*& created);
/// As ibv_destroy_qp.
int destroy_target(xrc_target& target);
/// What comes of a request to such an object, which has no queues. Its queue pair isn't asked: that
/// may be passing to another device.
int refuse_request(const ibv_qp& target) noexcept;

}  // namespace softverbs
