// SPDX-License-Identifier: Apache-2.0
#include "base/wake_signal.hpp"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>

namespace verbspp::detail {

int make_event_descriptor() noexcept { return ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK); }

// A failure is harmless, because the write fails only if the eventfd is already readable, and the
// read fails only if the eventfd is not readable.
void raise(int event_descriptor) noexcept {
  static_cast<void>(::eventfd_write(event_descriptor, 1));
}
void lower(int event_descriptor) noexcept {
  eventfd_t count = 0;
  static_cast<void>(::eventfd_read(event_descriptor, &count));
}

wake_signal::~wake_signal() {
  if (descriptor_ != -1) ::close(descriptor_);
}

result<std::uint64_t> wake_signal::enter() noexcept {
  if (descriptor_ == -1) {
    descriptor_ = make_event_descriptor();
    if (descriptor_ == -1) return error::from_errno(errno, "eventfd");
  }
  ++sleepers_;
  return signals_;
}

void wake_signal::leave(std::uint64_t entered) noexcept {
  --sleepers_;
  if (entered != signals_ && --behind_ == 0) lower(descriptor_);
}

void wake_signal::wake_all() noexcept {
  if (sleepers_ == 0) return;
  ++signals_;
  if (behind_ == 0) raise(descriptor_);
  behind_ = sleepers_;
}

}  // namespace verbspp::detail
