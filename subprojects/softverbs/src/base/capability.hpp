// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace softverbs {

/// True if this thread has CAP_NET_RAW in its own user namespace. This is sufficient, because no
/// devices of other namespaces are involved.
bool may_send_raw() noexcept;

}  // namespace softverbs
