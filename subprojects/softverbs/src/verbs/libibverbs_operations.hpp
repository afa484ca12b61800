// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <infiniband/verbs.h>

namespace softverbs {

/// The table through which libibverbs calls a driver's operations, for `verbs_context::priv`: each
/// operation in it says EOPNOTSUPP. The table has the layout of the libibverbs that is loaded and
/// lives as long as the process.
verbs_ex_private* unsupported_operations() noexcept;

}  // namespace softverbs
