// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "device/device.hpp"
#include "machine/machine.hpp"

#include <infiniband/verbs.h>

namespace softverbs {

/// The data that all objects of an open device share.
class open_device {
 public:
  open_device(const soft_device& device, ibv_context& verbs, softverbs::machine& machine) noexcept
      : device_(device), verbs_(verbs), machine_(machine) {}
  open_device(const open_device&) = delete;
  open_device& operator=(const open_device&) = delete;

  const soft_device& device() const noexcept { return device_; }
  ibv_context& verbs() const noexcept { return verbs_; }
  softverbs::machine& machine() const noexcept { return machine_; }
  softverbs::engine& engine() const noexcept { return machine_.engine; }
  /// False in a child of the process that opened the device, because processes can't share an open
  /// device, as with hardware. The device's locks may be held by threads that don't exist in the
  /// child.
  bool usable() const noexcept { return machine_.is_current(); }
  async_event_queue& async_events() noexcept { return async_events_; }

 private:
  const soft_device& device_;
  ibv_context& verbs_;
  softverbs::machine& machine_;
  async_event_queue async_events_;
};

}  // namespace softverbs
