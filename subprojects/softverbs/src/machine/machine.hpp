// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/event_queue.hpp"
#include "base/shared_memory.hpp"
#include "machine/announcements.hpp"
#include "machine/engine.hpp"
#include "machine/xrc_domains.hpp"
#include "memory/device_memory.hpp"
#include "memory/region_table.hpp"
#include "wire/wire.hpp"

#include <infiniband/verbs.h>

#include <mutex>
#include <vector>

namespace softverbs {

using async_event_queue = event_queue<ibv_async_event>;

/// An open device, which is notified of events.
class device_listener {
 public:
  /// Called for events of the device or of a port, but not of a single object. Called with the
  /// engine's lock held, like `on_repair`.
  virtual void on_device_event(const ibv_async_event& event) = 0;
  /// Called when broken devices work again, even if this device was not broken.
  virtual void on_repair() = 0;

 protected:
  ~device_listener() = default;
};

/// The simulated hardware: one machine for the process and all of its devices. The engine's lock
/// protects the public members, unless their comments say otherwise.
class machine {
 public:
  /// Returns the machine of this process; a forked child gets a new one.
  static machine& current();
  /// False in a child of the process that created the machine.
  bool is_current() const noexcept;

  /// Called when the process exits. Stops the engine's thread. Then tries to send the packets
  /// that are still owed to peers, and closes all connections, unless another thread doesn't finish
  /// its direct access in time.
  static void at_exit() noexcept;

  machine() = default;
  machine(const machine&) = delete;
  machine& operator=(const machine&) = delete;

  /// These functions count the open devices. Opening the first device starts the wire and the
  /// engine, and closing the last one stops them. `attach` returns 0 or an errno value. Both must
  /// be called without the engine's lock.
  int attach();
  void detach() noexcept;

  /// Called after objects have been hidden in the tables. Waits until no thread of this process,
  /// and no other process, uses them. Returns false if a use by another process doesn't end within
  /// five seconds, for example because that process was stopped. Must be called without the
  /// engine's lock, and without the locks that are taken after it.
  bool wait_for_users(const announcements::use& of);

  void listen(unsigned device, device_listener& who) { listeners_.push_back({device, &who}); }
  void stop_listening(const device_listener& who) noexcept;
  /// Returns the first listener for which the condition holds, or null.
  template <typename Condition>
  device_listener* find_listener(Condition holds) const {
    for (const listener& each : listeners_)
      if (holds(*each.who)) return each.who;
    return nullptr;
  }
  void announce(unsigned device, const ibv_async_event& event);
  void announce_repair();

  softverbs::wire wire;
  region_table regions;
  device_memory_pool device_memory{device_memory_bytes};
  softverbs::xrc_domains xrc_domains;
  /// The tables that peers, and other threads, read without the machine's locks. Null until an
  /// `attach` has created them.
  published_tables* tables = nullptr;
  softverbs::engine engine{wire};
  /// Held while a new context is opened to replace one that was inherited from the parent process.
  /// Afterwards, calls that create objects in the inherited context are forwarded to the new one.
  /// Taken before all other locks.
  std::mutex inheriting;

 private:
  struct listener {
    unsigned device;
    device_listener* who;
  };
  static void before_fork() noexcept;
  static void after_fork_in_parent() noexcept;
  static void after_fork_in_child() noexcept;

  void publish() noexcept;
  /// True if the other process may really be using the objects that it announces. For this, the
  /// queue pair must be connected to that process, and be in the same domain as the region.
  bool may_use(const remote_process& other, const announcements::use& what);

  shared_memory table_memory_;
  std::uint64_t mark_ = 0;
  std::vector<listener> listeners_;
  unsigned attached_ = 0;
  machine* predecessor_ = nullptr;
};

}  // namespace softverbs
