// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace softverbs {

class machine;
class shared_receive_queue;
struct xrc_opening;
struct xrc_target;

// Before they are destroyed, these part from their domain of XRC. Under the engine's lock.

/// With the last object that stands for a queue pair, the queue pair goes.
void part(xrc_target& target);
/// If it is of XRC. Queue pairs that are in the middle of a message to it refuse the rest. What it
/// has completed stays where it is: when a device is closed, that memory may be gone already.
void part(shared_receive_queue& queue, machine& from);
void part(xrc_opening& opening, machine& from) noexcept;

}  // namespace softverbs
