// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <infiniband/verbs.h>

namespace softverbs {

/// True if this process has soft devices; otherwise, all calls are passed on to librdmacm.
bool serves_connections();

/// Returns the connection manager's context for this device. All identifiers of the process share
/// the context, and it stays open until the process exits. Returns null with errno on failure.
/// Requires the lock of connections.
ibv_context* manager_context(unsigned device);
/// Returns the protection domain of identifiers for which the program passes none.
ibv_pd* manager_domain(unsigned device);
ibv_xrcd* manager_xrc_domain(unsigned device);
/// Forgets the inherited devices in a forked child, because they can't be used there.
void abandon_devices() noexcept;

}  // namespace softverbs
