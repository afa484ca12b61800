// SPDX-License-Identifier: Apache-2.0
#include <verbspp/base/object_trace.hpp>

#include <atomic>

namespace verbspp {

namespace {

std::atomic<object_trace_handler> current_object_trace_handler{nullptr};

}  // namespace

object_trace_handler set_object_trace_handler(object_trace_handler handler) noexcept {
  return current_object_trace_handler.exchange(handler, std::memory_order_acq_rel);
}

void detail::trace(const char* call, const void* object, std::uint32_t number) noexcept {
  const object_trace_handler handler = current_object_trace_handler.load(std::memory_order_acquire);
  if (handler != nullptr) handler(call, object, number);
}

}  // namespace verbspp
