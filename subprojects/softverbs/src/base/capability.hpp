// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace softverbs {

/// Whether this thread may do what the kernel wants CAP_NET_RAW for. That of its user namespace
/// counts, since no other one's devices are meant.
bool may_send_raw() noexcept;

}  // namespace softverbs
