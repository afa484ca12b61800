// SPDX-License-Identifier: Apache-2.0
#include "memory/guarded_pages.hpp"
#include <verbspp/base/destroy_failure.hpp>
#include <verbspp/memory/registered_buffer.hpp>

#include <linux/mman.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdint>
#include <limits>

namespace verbspp {

const char* to_string(page_kind kind) noexcept {
  switch (kind) {
    case page_kind::normal:
      return "normal";
    case page_kind::transparent_huge:
      return "transparent huge";
    case page_kind::huge:
      return "huge";
  }
  return "unknown";
}

namespace detail {

namespace {

constexpr const char* operation = "allocate registered buffer";
constexpr std::size_t huge_page = std::size_t{1} << 21;

std::size_t rounded_up(std::size_t length, std::size_t multiple) noexcept {
  return (length + multiple - 1) & ~(multiple - 1);
}

void* map(std::size_t length, int more_flags = 0) noexcept {
  void* const memory = ::mmap(nullptr, length, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | more_flags, -1, 0);
  return memory == MAP_FAILED ? nullptr : memory;
}

/// Maps more than needed if the alignment requires it, and unmaps the excess.
void* map_aligned(std::size_t length, std::size_t alignment, std::size_t page) noexcept {
  if (alignment <= page) return map(length);
  void* const all = map(length + alignment - page);
  if (all == nullptr) return nullptr;
  const auto begin = reinterpret_cast<std::uintptr_t>(all);
  const std::uintptr_t first = (begin + alignment - 1) & ~(alignment - 1);
  const std::size_t before = first - begin;
  const std::size_t behind = alignment - page - before;
  if (before != 0) ::munmap(all, before);
  auto* const memory = static_cast<std::byte*>(all) + before;
  if (behind != 0) ::munmap(memory + length, behind);
  return memory;
}

}  // namespace

result<page_range> page_range::allocate(std::size_t count, std::size_t size,
                                        const buffer_options& options) noexcept {
  if (count == 0)
    return error(error_kind::invalid_input, operation, "memory of 0 bytes cannot be registered");
  if (!std::has_single_bit(options.alignment))
    return error::out_of_range(operation, "alignment (a power of two)", options.alignment);
  // A limit that is far above the memory of any machine, so that no sum below overflows.
  constexpr std::size_t most = std::numeric_limits<std::size_t>::max() / 8;
  if (count > most / size) return error::above_limit(operation, "elements", count, most / size);
  if (options.alignment > most)
    return error::above_limit(operation, "alignment in bytes", options.alignment, most);

  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const std::size_t length = count * size;
  if (options.huge_pages) {
    const std::size_t rounded = rounded_up(length, huge_page);
    if (options.alignment <= huge_page)
      if (void* const memory = map(rounded, MAP_HUGETLB | MAP_HUGE_2MB)) {
        pages_appear(memory, rounded, huge_page);
        return page_range(memory, rounded, page_kind::huge);
      }
    // No reserved huge pages could be mapped with this alignment. But the kernel may turn normal
    // pages into huge ones if they are suitably aligned.
    if (void* const memory = map_aligned(rounded, std::max(options.alignment, huge_page), page)) {
      const bool asked = ::madvise(memory, rounded, MADV_HUGEPAGE) == 0;
      pages_appear(memory, rounded, page);
      return page_range(memory, rounded, asked ? page_kind::transparent_huge : page_kind::normal);
    }
  }
  const std::size_t rounded = rounded_up(length, page);
  void* const memory = map_aligned(rounded, options.alignment, page);
  if (memory == nullptr)
    return error::from_errno(errno, "mmap",
                             errno == EAGAIN
                                 ? "the process locks all of its new memory (mlockall), and is at "
                                   "its limit of locked memory (`ulimit -l`)"
                                 : "usually there is not enough memory, or the process is at the "
                                   "limit of its address space (`ulimit -v`)");
  pages_appear(memory, rounded, page);
  return page_range(memory, rounded, page_kind::normal);
}

page_range::~page_range() {
  if (first_ == nullptr) return;
  pages_go(first_);
  if (::munmap(first_, size_) != 0) report_release(errno, "munmap");
}

void free_pages(page_range& pages, const result<void>& deregistered) noexcept {
  if (deregistered.has_value()) return;
  pages.abandon();
  report_release(deregistered.assume_error().native_errno(), "ibv_dereg_mr",
                 "the memory may still be registered, so it is never freed");
}

}  // namespace detail

}  // namespace verbspp
