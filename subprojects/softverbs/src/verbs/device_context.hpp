// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "completion/completion_queue.hpp"
#include "device/device.hpp"
#include "machine/open_device.hpp"
#include "memory/device_memory.hpp"
#include "memory/memory_region.hpp"
#include "memory/protection_domain.hpp"
#include "wire/address.hpp"

#include <infiniband/verbs.h>

#include <unordered_set>

namespace softverbs {

class queue_pair;
class shared_receive_queue;
struct xrc_opening;
struct xrc_target;

/// An open device, with everything made from it.
class device_context final : private verbs_context, public open_device, private device_listener {
 public:
  /// Null with errno set.
  static device_context* open(const soft_device& device);
  static device_context& of(ibv_context* verbs) noexcept {
    return *static_cast<device_context*>(verbs_get_ctx(verbs));
  }
  device_context(const device_context&) = delete;
  device_context& operator=(const device_context&) = delete;

  /// Destroys all that is left, as the kernel does when the file is closed.
  static void close(device_context* closing) noexcept;

  std::unordered_set<protection_domain*> domains;
  std::unordered_set<thread_domain*> thread_domains;
  std::unordered_set<memory_region*> regions;
  std::unordered_set<memory_window*> windows;
  std::unordered_set<device_memory*> memories;
  std::unordered_set<completion_channel*> channels;
  std::unordered_set<completion_queue*> completion_queues;
  std::unordered_set<shared_receive_queue*> shared_receive_queues;
  std::unordered_set<queue_pair*> queue_pairs;
  std::unordered_set<xrc_opening*> xrc_openings;
  std::unordered_set<xrc_target*> xrc_targets;
  std::unordered_set<address_handle*> address_handles;

 private:
  device_context(const soft_device& device, softverbs::machine& machine) noexcept;
  ~device_context();
  void fill_operations() noexcept;
  void on_device_event(const ibv_async_event& event) override;
  void on_repair() override;
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
