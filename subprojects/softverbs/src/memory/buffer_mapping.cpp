// SPDX-License-Identifier: Apache-2.0
#include "memory/buffer_mapping.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace softverbs {
namespace {

/// DMA_BUF_MAGIC, which older headers lack.
constexpr decltype(statfs::f_type) system_of_buffers = 0x444d4142;

/// The properties of a file that have to be known before it is mapped.
struct extent {
  std::uint64_t size;
  /// The granularity of mappings, a power of two: the size of a page, or of a huge page.
  std::uint64_t unit;
};

/// Determines the size and the granularity of a file. Returns 0 or an errno value.
int measure(int descriptor, extent& of) noexcept {
  struct statfs system{};
  struct stat file{};
  if (::fstatfs(descriptor, &system) != 0 || ::fstat(descriptor, &file) != 0) return errno;
  // On a dma-buf, seeking to the end returns the size without changing the file position.
  const bool is_buffer = system.f_type == system_of_buffers;
  const off_t size = is_buffer ? ::lseek(descriptor, 0, SEEK_END) : file.st_size;
  // Only files in memory support seals, so this refuses all other files.
  if (size < 0 || (!is_buffer && ::fcntl(descriptor, F_GET_SEALS) < 0)) return errno;
  const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  of = {static_cast<std::uint64_t>(size),
        std::max(page, static_cast<std::uint64_t>(file.st_blksize))};
  return 0;
}

}  // namespace

buffer_mapping::~buffer_mapping() {
  if (!pages_.empty()) ::munmap(pages_.data(), pages_.size());
}

int buffer_mapping::map(int descriptor, std::uint64_t offset, std::size_t length,
                        bool to_write) noexcept {
  extent file{};
  if (const int error = measure(descriptor, file)) return error;
  if (offset > file.size || length > file.size - offset) return EINVAL;
  const std::uint64_t first = offset & ~(file.unit - 1);
  const std::size_t size = (offset - first + length + file.unit - 1) & ~(file.unit - 1);
  const int protection = to_write ? PROT_READ | PROT_WRITE : PROT_READ;
  void* const pages =
      ::mmap(nullptr, size, protection, MAP_SHARED, descriptor, static_cast<off_t>(first));
  if (pages == MAP_FAILED) return errno;
  pages_ = {static_cast<std::byte*>(pages), size};
  start_ = pages_.data() + (offset - first);
  return 0;
}

}  // namespace softverbs
