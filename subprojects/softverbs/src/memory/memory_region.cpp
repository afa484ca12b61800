// SPDX-License-Identifier: Apache-2.0
#include "memory/memory_region.hpp"

#include "base/newer_verbs.hpp"
#include "device/device.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>

namespace softverbs {
namespace {

/// These values of madvise were added in Linux 5.14; older headers lack their names.
constexpr int populate_read = 22;
constexpr int populate_write = 23;

/// True if all pages of the range are mapped; mincore fails otherwise. Its output, which marks the
/// pages that are in memory, is ignored.
bool is_mapped(std::uintptr_t start, std::size_t length, std::size_t page_size) noexcept {
  std::array<unsigned char, 4096> resident{};
  const std::size_t step = resident.size() * page_size;
  for (std::size_t at = 0; at < length; at += step)
    if (::mincore(reinterpret_cast<void*>(start + at), std::min(step, length - at),
                  resident.data()) != 0)
      return false;
  return true;
}

std::uintptr_t page_bytes() noexcept {
  return static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
}

/// True if a region covers the whole address space, including memory that is mapped later.
bool is_implicit(const void* address, std::size_t length, unsigned access) noexcept {
  return (access & IBV_ACCESS_ON_DEMAND) != 0 && address == nullptr && length == SIZE_MAX;
}

}  // namespace

int bring_in(std::uintptr_t start, std::size_t length, bool writes) noexcept {
  const std::uintptr_t first = start & ~(page_bytes() - 1);
  void* memory = reinterpret_cast<void*>(first);
  const int advice = writes ? populate_write : populate_read;
  if (::madvise(memory, start - first + length, advice) == 0) return 0;
  // EINVAL means either that the kernel doesn't know the advice, or that the memory doesn't allow
  // the access. With a length of zero, madvise fails only if the kernel doesn't know the advice.
  const bool known = ::madvise(memory, 0, advice) == 0;
  return known ? EFAULT : 0;
}

int check_rights(unsigned access, unsigned known, unsigned supported) noexcept {
  constexpr unsigned needs_local_write = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
  // A device may ignore optional access rights.
  access &= ~static_cast<unsigned>(IBV_ACCESS_OPTIONAL_RANGE);
  if ((access & ~known) != 0) return EINVAL;
  if ((access & needs_local_write) != 0 && (access & IBV_ACCESS_LOCAL_WRITE) == 0) return EINVAL;
  return (access & ~supported) != 0 ? EOPNOTSUPP : 0;
}

int check_range(std::uint64_t start, std::size_t length, std::uint64_t iova) noexcept {
  if (length == 0 || length > limits::region_bytes) return EINVAL;
  if (start + length < start || iova + length < iova) return EINVAL;
  // Devices translate addresses in whole pages.
  return ((start ^ iova) & (page_bytes() - 1)) != 0 ? EINVAL : 0;
}

int check_registration(const void* address, std::size_t length, std::uint64_t iova,
                       unsigned access) noexcept {
  constexpr unsigned supported =
      IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
      IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND | IBV_ACCESS_HUGETLB | IBV_ACCESS_ON_DEMAND |
      newer::access_to_flush(newer::flush_global | newer::flush_persistent);
  constexpr unsigned known = supported | IBV_ACCESS_ZERO_BASED;
  if (const int error = check_rights(access, known, supported)) return error;

  if (is_implicit(address, length, access))
    return iova != 0 || (access & IBV_ACCESS_MW_BIND) != 0 ? EINVAL : 0;

  const std::uintptr_t page_size = page_bytes();
  const auto start = reinterpret_cast<std::uintptr_t>(address);
  if (const int error = check_range(start, length, iova)) return error;

  // With on-demand paging, mappings and permissions are checked on access.
  if ((access & IBV_ACCESS_ON_DEMAND) != 0) return 0;
  const std::uintptr_t first = start & ~(page_size - 1);
  const std::uintptr_t last = (start + length - 1) & ~(page_size - 1);
  if (!is_mapped(first, last - first + page_size, page_size)) return EFAULT;
  const bool writes = (access & IBV_ACCESS_LOCAL_WRITE) != 0;
  // Only the first and the last page are populated, because populating all pages of a huge region
  // would take too much time and memory.
  if (const int error = bring_in(first, page_size, writes)) return error;
  return first == last ? 0 : bring_in(last, page_size, writes);
}

}  // namespace softverbs
