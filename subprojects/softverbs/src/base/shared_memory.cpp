// SPDX-License-Identifier: Apache-2.0
#include "base/shared_memory.hpp"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>

// Available since Linux 5.1; older headers lack it.
#if !defined(F_SEAL_FUTURE_WRITE)
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

namespace softverbs {
namespace {

constexpr int fixed_size = F_SEAL_SHRINK | F_SEAL_GROW;

std::span<std::byte> map_all(int descriptor, std::size_t size, int protection) noexcept {
  void* memory = ::mmap(nullptr, size, protection, MAP_SHARED, descriptor, 0);
  if (memory == MAP_FAILED) return {};
  return {static_cast<std::byte*>(memory), size};
}

}  // namespace

int shared_memory::create(std::size_t size, others may) noexcept {
  reset();
  descriptor_ = ::memfd_create("softverbs", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (descriptor_ < 0) return errno;
  if (::ftruncate(descriptor_, static_cast<off_t>(size)) == 0)
    bytes_ = map_all(descriptor_, size, PROT_READ | PROT_WRITE);
  // A read-only descriptor could be reopened for writing. With F_SEAL_FUTURE_WRITE, no further
  // writable mapping can be created.
  const int seals = fixed_size | F_SEAL_SEAL | (may == others::write ? 0 : F_SEAL_FUTURE_WRITE);
  if (!bytes_.empty() && ::fcntl(descriptor_, F_ADD_SEALS, seals) == 0) return 0;
  const int error = errno;
  reset();
  return error;
}

int shared_memory::map(int descriptor, std::size_t size, bool to_write) noexcept {
  reset();
  // Only tmpfs is accepted. Memory of huge pages can be sealed, too, but accesses to it may fail.
  struct stat file{};
  struct statfs system{};
  const int seals = ::fcntl(descriptor, F_GET_SEALS);
  if (seals < 0 || ::fstat(descriptor, &file) != 0 || ::fstatfs(descriptor, &system) != 0)
    return errno;
  const auto has = static_cast<std::size_t>(file.st_size);
  if ((seals & fixed_size) != fixed_size || system.f_type != TMPFS_MAGIC || has == 0 ||
      (size != 0 && size != has))
    return EINVAL;
  bytes_ = map_all(descriptor, has, to_write ? PROT_READ | PROT_WRITE : PROT_READ);
  return bytes_.empty() ? errno : 0;
}

void shared_memory::close_descriptor() noexcept {
  if (descriptor_ >= 0) ::close(descriptor_);
  descriptor_ = -1;
}

void shared_memory::reset() noexcept {
  close_descriptor();
  if (!bytes_.empty()) ::munmap(bytes_.data(), bytes_.size());
  bytes_ = {};
}

}  // namespace softverbs
