// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <infiniband/verbs.h>

namespace softverbs {

/// Returns a table for `verbs_context::priv`, through which libibverbs calls a driver's operations.
/// Nearly all operations in it only fail, with EOPNOTSUPP. The table has the layout of the loaded
/// libibverbs, and lives as long as the process.
verbs_ex_private* unsupported_operations() noexcept;

}  // namespace softverbs
