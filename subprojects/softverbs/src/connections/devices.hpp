// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <infiniband/verbs.h>

namespace softverbs {

/// Whether this process has soft devices; else all calls are librdmacm's own.
bool serves_connections();

/// The device as the connection manager has it open, for all of the process and until it ends; null
/// with errno. Under the lock of connections.
ibv_context* manager_context(unsigned device);
/// The domain of who brings none of his own.
ibv_pd* manager_domain(unsigned device);
ibv_xrcd* manager_xrc_domain(unsigned device);
/// In a child of fork: what it inherited is of no use.
void abandon_devices() noexcept;

}  // namespace softverbs
