// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <infiniband/verbs.h>

namespace softverbs {

/// True if this process has soft devices; otherwise, all calls are passed on to librdmacm.
bool serves_connections();

/// Returns the connection manager's context of a device, which the whole process shares, and which
/// stays open until it exits. Returns null with errno on failure. Requires the lock of connections.
ibv_context* manager_context(unsigned device);
/// The protection domain of identifiers for which the program passes none.
ibv_pd* manager_domain(unsigned device);
ibv_xrcd* manager_xrc_domain(unsigned device);
/// Called in a child of fork, in which the inherited devices can't be used.
void abandon_devices() noexcept;

}  // namespace softverbs
