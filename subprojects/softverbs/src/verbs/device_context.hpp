// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "completion/completion_queue.hpp"
#include "device/device.hpp"
#include "machine/open_device.hpp"
#include "memory/device_memory.hpp"
#include "memory/memory_region.hpp"
#include "memory/protection_domain.hpp"
#include "verbs/command_file.hpp"
#include "wire/address.hpp"

#include <infiniband/verbs.h>

#include <memory>
#include <unordered_set>

namespace softverbs {

class queue_pair;
class receive_work_queue;
class shared_receive_queue;
struct completion_counter;
struct indirection_table;
struct steering_flow;
struct xrc_opening;
struct xrc_target;

/// An open device, with all objects created from it.
class device_context final : private verbs_context, public open_device, private device_listener {
 public:
  /// Opens a device. Returns null with errno set on failure.
  static device_context* open(const soft_device& device) noexcept;
  /// Opens another context of a command descriptor's file, and takes ownership of the descriptor if
  /// this succeeds. Returns null with errno set on failure: EOPNOTSUPP if no context of this
  /// process has the file.
  static device_context* import(int command_descriptor) noexcept;
  static device_context& of(ibv_context* verbs) noexcept {
    return *static_cast<device_context*>(verbs_get_ctx(verbs));
  }
  /// Returns the context on which to create objects and read events: `verbs` itself or, in a forked
  /// child that inherited `verbs`, the child's own context behind it. Returns null with errno set
  /// on failure.
  static ibv_context* in_this_process(ibv_context* verbs) noexcept;
  device_context(const device_context&) = delete;
  device_context& operator=(const device_context&) = delete;

  /// Destroys the context and all remaining objects, as the kernel does when the file is closed. If
  /// other contexts have the same file, the objects of the file are kept.
  static void close(device_context* closing) noexcept;

  /// Contains the protection domains, the regions and the device memory.
  const std::shared_ptr<command_file> file;
  std::unordered_set<thread_domain*> thread_domains;
  std::unordered_set<memory_window*> windows;
  std::unordered_set<completion_channel*> channels;
  std::unordered_set<completion_queue*> completion_queues;
  std::unordered_set<shared_receive_queue*> shared_receive_queues;
  std::unordered_set<receive_work_queue*> receive_work_queues;
  std::unordered_set<indirection_table*> indirection_tables;
  std::unordered_set<queue_pair*> queue_pairs;
  std::unordered_set<xrc_opening*> xrc_openings;
  std::unordered_set<xrc_target*> xrc_targets;
  std::unordered_set<address_handle*> address_handles;
  std::unordered_set<steering_flow*> flows;
  std::unordered_set<completion_counter*> completion_counters;

 private:
  device_context(const soft_device& device, softverbs::machine& machine,
                 std::shared_ptr<command_file> of) noexcept;
  /// Opens the asynchronous events, and starts to use the machine. Returns 0 or an errno value,
  /// such as EIO if the device is broken.
  int start();
  void join();
  /// Deletes a context without objects. Undoes `start` and `join` if `started` is true.
  static void give_up(device_context* opened, bool started) noexcept;
  ~device_context();
  void fill_operations() noexcept;
  /// Makes the descriptor `number`, which the parent had opened, refer to this context's
  /// asynchronous events. A program that polls the descriptor then doesn't wait for the parent's
  /// events. Does nothing if the program has closed the descriptor. Returns false with errno set on
  /// failure.
  bool shows_events_at(int number) const noexcept;
  /// Separates this context from the context behind it. Returns the context that was behind it, or
  /// null if there was none.
  device_context* part_from_behind() noexcept;
  void on_device_event(const ibv_async_event& event) override;
  void on_repair() override;

  /// If a forked child inherited this context: the child's own context, which does the work of
  /// this one. It is opened when the child first needs it, and null until then.
  device_context* behind_ = nullptr;
  /// The inverse of `behind_`: the inherited context for which this one does the work, while both
  /// are open; null if there is none.
  device_context* in_front_ = nullptr;
};

/// While this object exists, the current thread's list of devices contains no soft devices. This is
/// needed during calls of libibverbs that list devices, because libibverbs would treat soft devices
/// as its own.
class without_soft_devices {
 public:
  without_soft_devices() noexcept { ++depth_; }
  without_soft_devices(const without_soft_devices&) = delete;
  without_soft_devices& operator=(const without_soft_devices&) = delete;
  ~without_soft_devices() { --depth_; }

  static bool is_so() noexcept { return depth_ != 0; }

 private:
  static thread_local unsigned depth_;
};

/// True if a verbs object belongs to a software device.
template <typename Object>
bool is_soft(const Object* object) noexcept {
  return soft_device_of(object->context) != nullptr;
}
inline bool is_soft(const ibv_context* object) noexcept {
  return soft_device_of(object) != nullptr;
}

}  // namespace softverbs
