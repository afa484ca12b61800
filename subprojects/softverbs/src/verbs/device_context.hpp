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

/// An open device, with everything made from it.
class device_context final : private verbs_context, public open_device, private device_listener {
 public:
  /// Null with errno set.
  static device_context* open(const soft_device& device) noexcept;
  /// One more of a command descriptor's file, which the descriptor belongs to from here on. Null
  /// with errno set: EOPNOTSUPP if nobody in this process has it open.
  static device_context* import(int command_descriptor) noexcept;
  static device_context& of(ibv_context* verbs) noexcept {
    return *static_cast<device_context*>(verbs_get_ctx(verbs));
  }
  /// What to make something new on, and whose events to read: that open device; in a child of fork
  /// which inherited it, one of the child's own that stands behind it. Null with errno set.
  static ibv_context* in_this_process(ibv_context* verbs) noexcept;
  device_context(const device_context&) = delete;
  device_context& operator=(const device_context&) = delete;

  /// Destroys all that is left, as the kernel does when the file is closed. While others are of the
  /// same file, it keeps what that has.
  static void close(device_context* closing) noexcept;

  /// Has the domains of protection, the regions and the memory of the device.
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
  /// Has all that a context needs but its descriptor; 0, or an errno.
  int start();
  void join();
  /// Undoes both, for one that nothing has been made of.
  static void give_up(device_context* opened, bool started) noexcept;
  ~device_context();
  void fill_operations() noexcept;
  /// Whoever polls that number, which was its parent's, sees this one's asynchronous events, and
  /// takes none from the parent. False with errno set.
  bool shows_events_at(int number) const noexcept;
  /// Whom it had behind it, or null.
  device_context* part_from_behind() noexcept;
  void on_device_event(const ibv_async_event& event) override;
  void on_repair() override;

  /// Of the last process that inherited it and made something; null if none did.
  device_context* behind_ = nullptr;
  /// The inherited one that this stands behind, for as long as both are open; null if there is
  /// none.
  device_context* in_front_ = nullptr;
};

/// While one lives, this thread is shown the devices of others only: libibverbs lists them, too,
/// and takes all of them for its own.
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

/// Whether a verbs object belongs to a software device.
template <typename Object>
bool is_soft(const Object* object) noexcept {
  return soft_device_of(object->context) != nullptr;
}
inline bool is_soft(const ibv_context* object) noexcept {
  return soft_device_of(object) != nullptr;
}

}  // namespace softverbs
