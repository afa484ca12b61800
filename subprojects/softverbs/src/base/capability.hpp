// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace softverbs {

/// True if this thread may do what requires CAP_NET_RAW in the kernel. The capability in the
/// thread's own user namespace is sufficient, because no devices of other namespaces are involved.
bool may_send_raw() noexcept;

}  // namespace softverbs
