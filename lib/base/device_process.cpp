// SPDX-License-Identifier: Apache-2.0
#include "base/device_process.hpp"

#include <unistd.h>

#include <atomic>

namespace verbspp::detail {

namespace {
/// The id of the process that last opened or adopted a device, which is this process or an
/// ancestor; 0 if none has. A forked child inherits this value.
constinit std::atomic<pid_t> opened_by{0};
}  // namespace

void note_device_process() noexcept { opened_by.store(::getpid(), std::memory_order_relaxed); }

bool is_child_of_device_process() noexcept {
  const pid_t process = opened_by.load(std::memory_order_relaxed);
  return process != 0 && process != ::getpid();
}

}  // namespace verbspp::detail
