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

/// Whoever has a device open.
class device_listener {
 public:
  /// Of the device or a port, not of a single object. Under the engine's lock, as what follows.
  virtual void on_device_event(const ibv_async_event& event) = 0;
  /// A device that was broken works again.
  virtual void on_repair() = 0;

 protected:
  ~device_listener() = default;
};

/// The hardware, so to say: one for the process, for all of its devices. The engine's lock protects
/// the other parts.
class machine {
 public:
  /// The process' own; a child of fork gets a new one.
  static machine& current();
  /// False in a child of the process whose machine it is.
  bool is_current() const noexcept;

  /// Says what peers must still hear; nothing moves from here on.
  static void at_exit() noexcept;

  machine() = default;
  machine(const machine&) = delete;
  machine& operator=(const machine&) = delete;

  /// Counts open devices: the first one starts it all, 0 or an errno; the last one
  /// stops it. Not under the lock.
  int attach();
  void detach() noexcept;

  /// What was hidden in the tables is used by nobody any more: not by a thread of this process, nor
  /// by another process. False if one of those was stopped in the middle of a request and that has
  /// lasted too long. Not under any lock.
  bool wait_for_users(const announcements::use& of);

  void listen(unsigned device, device_listener& who) { listeners_.push_back({device, &who}); }
  void stop_listening(const device_listener& who) noexcept;
  /// The first one for which the condition holds, or null.
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
  /// What peers, and other threads, know of it without its locks. Null before it is attached to.
  published_tables* tables = nullptr;
  softverbs::engine engine{wire};
  /// Held while an inherited device gets one of this process behind it; before any other lock.
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
  /// Whether that process may be using what it says: its peers' memory alone, and nothing else of
  /// this process.
  bool may_use(const remote_process& other, const announcements::use& what);

  shared_memory table_memory_;
  std::uint64_t mark_ = 0;
  std::vector<listener> listeners_;
  unsigned attached_ = 0;
  machine* predecessor_ = nullptr;
};

}  // namespace softverbs
