// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace softverbs {

// For calls that work here, but make a thread wait for itself on devices whose drivers hold a lock
// from the start of a session to its end. Both return EBUSY; the first of each kind in a process is
// explained on stderr.

/// A completion queue is polled or changed by the thread that is between ibv_start_poll and
/// ibv_end_poll.
int refuse_nested_poll() noexcept;
/// A send queue is posted to by the thread that is between ibv_wr_start and ibv_wr_complete.
int refuse_nested_post() noexcept;

}  // namespace softverbs
