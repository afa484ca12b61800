// SPDX-License-Identifier: Apache-2.0
/// \file
/// Determines which processes receive multicasts and Ethernet frames.
#include "wire/slot_socket.hpp"
#include "wire/wire.hpp"

#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

namespace softverbs {

int wire::hear_multicasts(bool wanted) noexcept {
  if (!wanted) {
    if (ear_ >= 0) ::close(ear_);
    ear_ = -1;
    return 0;
  }
  if (ear_ >= 0) return 0;
  ear_ = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  const slot_name here(slot_);
  if (ear_ >= 0 && ::bind(ear_, here.get(), here.length) == 0) return 0;
  const int error = errno;
  hear_multicasts(false);
  return error;
}

const std::vector<std::uint32_t>& wire::hearers() {
  if (hearers_known_) return hearers_;
  hearers_.clear();
  const int probe = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (probe < 0) return hearers_;
  // Connecting sends nothing, and fails unless a datagram socket has this name.
  for (std::uint32_t slot = 1; slot <= last_slot; ++slot) {
    const slot_name there(slot);
    if (::connect(probe, there.get(), there.length) == 0) hearers_.push_back(slot << index_bits);
  }
  ::close(probe);
  hearers_known_ = true;
  return hearers_;
}

}  // namespace softverbs
