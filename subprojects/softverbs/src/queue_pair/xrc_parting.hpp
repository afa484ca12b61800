// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace softverbs {

class machine;
class shared_receive_queue;
struct xrc_opening;
struct xrc_target;

// These functions remove an object from its XRC domain before the object is destroyed. The caller
// must hold the engine's lock.

/// If `target` is the last object that refers to its queue pair, destroys the queue pair.
void part(xrc_target& target);
/// Makes queue pairs that are receiving a message into the queue refuse the rest of the message.
/// The queue's completions are left unchanged: when a device is closed, the program may already
/// have unmapped their memory. Does nothing if the queue is not an XRC queue.
void part(shared_receive_queue& queue, machine& from);
void part(xrc_opening& opening, machine& from) noexcept;

}  // namespace softverbs
