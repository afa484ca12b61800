// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace softverbs {

class machine;
class shared_receive_queue;
struct xrc_opening;
struct xrc_target;

// These remove objects from their XRC domain before they are destroyed. They require the engine's
// lock.

/// Destroys the queue pair, too, if this is the last object that refers to it.
void part(xrc_target& target);
/// Queue pairs that are receiving a message into the queue refuse the rest of it. The queue's
/// completions are left unchanged, because their memory may already be unmapped when a device is
/// closed. Does nothing if the queue is not an XRC queue.
void part(shared_receive_queue& queue, machine& from);
void part(xrc_opening& opening, machine& from) noexcept;

}  // namespace softverbs
