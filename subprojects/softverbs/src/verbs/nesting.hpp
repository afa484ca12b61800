// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace softverbs {

// These functions refuse calls that could work here, but would deadlock on devices whose drivers
// hold a lock from the start of a session to its end. Both functions return EBUSY. The first call
// of each in a process prints an explanation on stderr.

/// Called if a thread polls or resizes a completion queue, or resets or destroys a queue pair or
/// work queue that uses it, between the thread's ibv_start_poll and ibv_end_poll.
int refuse_nested_poll() noexcept;
/// Called if a thread that has called ibv_wr_start for a queue pair posts to its send queue, or
/// calls ibv_wr_start again, before ibv_wr_complete or ibv_wr_abort.
int refuse_nested_post() noexcept;

}  // namespace softverbs
