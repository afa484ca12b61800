// SPDX-License-Identifier: Apache-2.0
#include "machine/xrc_domains.hpp"

#include "wire/wire.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace softverbs {

xrc_domain* xrc_domains::open(unsigned device, int descriptor, int flags, int& error) {
  error = 0;
  struct stat found{};
  if (descriptor != -1) {
    if (::fstat(descriptor, &found) != 0) {
      error = EBADF;
      return nullptr;
    }
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
  // What the kernel says of a file that has no domain yet.
  if (descriptor != -1 && (flags & O_CREAT) == 0) {
    error = EAGAIN;
    return nullptr;
  }
  const int kept = descriptor == -1 ? -1 : ::fcntl(descriptor, F_DUPFD_CLOEXEC, 0);
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
