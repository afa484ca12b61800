// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace softverbs {

class machine;
class shared_receive_queue;
struct xrc_opening;
struct xrc_target;

// These remove objects from their XRC domain before they are destroyed. They require the engine's
// lock.

/// Destroys the queue pair with the last object that refers to it.
void part(xrc_target& target);
/// Does nothing unless it is an XRC queue. Queue pairs that are receiving a message into it refuse
/// the rest. Leaves its completions where they are, because their memory may already be unmapped
/// when a device is closed.
void part(shared_receive_queue& queue, machine& from);
void part(xrc_opening& opening, machine& from) noexcept;

}  // namespace softverbs
