// SPDX-License-Identifier: Apache-2.0
#include "machine/xrc_domains.hpp"

#include "wire/wire.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>

namespace softverbs {
namespace {

/// Returns a descriptor that keeps the file in existence, or -1 with errno. If possible, it is an
/// O_PATH descriptor, because closing an ordinary one would release all record locks that the
/// program has on the file.
int keep(int descriptor) noexcept {
  std::array<char, 32> name{};
  std::snprintf(name.data(), name.size(), "/proc/self/fd/%d", descriptor);
  const int kept = ::open(name.data(), O_PATH | O_CLOEXEC);
  // Without /proc, an ordinary duplicate is used.
  return kept >= 0 ? kept : ::fcntl(descriptor, F_DUPFD_CLOEXEC, 0);
}

}  // namespace

xrc_domain* xrc_domains::open(unsigned device, int descriptor, const struct stat& found, int flags,
                              int& error) {
  error = 0;
  if (descriptor != -1) {
    const auto known = std::ranges::find_if(domains_, [&](const xrc_domain& each) {
      return each.device == device && each.descriptor >= 0 && each.file_system == found.st_dev &&
             each.file == found.st_ino;
    });
    if (known != domains_.end()) {
      if ((flags & O_EXCL) != 0) {
        error = EINVAL;
        return nullptr;
      }
      ++known->opened;
      return &*known;
    }
  }
  // The kernel reports the same error for a file that has no domain yet.
  if (descriptor != -1 && (flags & O_CREAT) == 0) {
    error = EAGAIN;
    return nullptr;
  }
  const int kept = descriptor == -1 ? -1 : keep(descriptor);
  if (descriptor != -1 && kept < 0) {
    error = errno;
    return nullptr;
  }
  try {
    xrc_domain& created = domains_.emplace_back();
    created.device = device;
    created.descriptor = kept;
    created.file_system = found.st_dev;
    created.file = found.st_ino;
    created.opened = 1;
    return &created;
  } catch (...) {
    if (kept >= 0) ::close(kept);
    throw;
  }
}

void xrc_domains::close(xrc_domain& domain) noexcept {
  if (--domain.opened != 0) return;
  if (domain.descriptor >= 0) ::close(domain.descriptor);
  domains_.remove_if([&](const xrc_domain& each) { return &each == &domain; });
}

std::uint32_t xrc_domains::add(xrc_domain& domain, ibv_srq& queue, std::uint32_t prefix) {
  for (std::uint32_t tried = 0; tried <= wire::index_mask; ++tried) {
    const std::uint32_t number = prefix | (++last_ & wire::index_mask);
    if (!numbers_.try_emplace(number, &domain).second) continue;
    try {
      domain.shared_receive_queues.emplace(number, &queue);
    } catch (...) {
      numbers_.erase(number);
      throw;
    }
    return number;
  }
  return 0;
}

void xrc_domains::remove(xrc_domain& domain, std::uint32_t number) noexcept {
  numbers_.erase(number);
  domain.shared_receive_queues.erase(number);
}

}  // namespace softverbs
