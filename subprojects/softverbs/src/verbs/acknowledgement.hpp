// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "machine/engine.hpp"
#include "memory/protection_domain.hpp"
#include "verbs/device_context.hpp"

#include <pthread.h>

#include <mutex>

namespace softverbs {

/// Waits until all events of the object are acknowledged, because the program may access the object
/// until then.
template <typename Object, typename Condition>
void wait_until_acknowledged(Object& object, Condition all) noexcept {
  ::pthread_mutex_lock(&object.mutex);
  while (!all()) ::pthread_cond_wait(&object.cond, &object.mutex);
  ::pthread_mutex_unlock(&object.mutex);
}
template <typename Object>
void wait_until_acknowledged(Object& object, unsigned events) noexcept {
  wait_until_acknowledged(object, [&] { return object.events_completed == events; });
}

/// Deletes a queue or queue pair that has been removed from the device, after its events are
/// acknowledged.
template <typename Object>
void delete_acknowledged(device_context& device, Object* object, unsigned events) {
  wait_until_acknowledged(*object, events);
  auto* const domain = static_cast<protection_domain*>(object->pd);
  delete object;
  // The domain is released last, because the object's memory may come from the domain's allocator.
  const std::lock_guard held(device.engine().lock());
  --domain->children;
}

}  // namespace softverbs
