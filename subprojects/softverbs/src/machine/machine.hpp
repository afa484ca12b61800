// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/event_queue.hpp"
#include "machine/engine.hpp"
#include "memory/region_table.hpp"
#include "wire/wire.hpp"

#include <infiniband/verbs.h>

#include <vector>

namespace softverbs {

using async_event_queue = event_queue<ibv_async_event>;

/// The hardware, so to say: one for the process, for all of its devices. The engine's lock protects
/// the other parts.
class machine {
 public:
  /// The process' own; a child of fork gets a new one.
  static machine& current();

  machine() = default;
  machine(const machine&) = delete;
  machine& operator=(const machine&) = delete;

  /// Counts open devices: the first one starts it all, 0 or an errno; the last one
  /// stops it. Not under the lock.
  int attach();
  void detach() noexcept;

  /// Events of a device, all that concern no single object, go there, too.
  void listen(unsigned device, async_event_queue& events) {
    listeners_.push_back({device, &events});
  }
  void stop_listening(const async_event_queue& events) noexcept;
  void announce(unsigned device, const ibv_async_event& event);

  softverbs::wire wire;
  region_table regions;
  softverbs::engine engine{wire};

 private:
  struct listener {
    unsigned device;
    async_event_queue* events;
  };
  static void before_fork() noexcept;
  static void after_fork_in_parent() noexcept;
  static void after_fork_in_child() noexcept;
  static void at_exit() noexcept;

  std::vector<listener> listeners_;
  unsigned attached_ = 0;
  machine* predecessor_ = nullptr;
};

}  // namespace softverbs
