// SPDX-License-Identifier: Apache-2.0
#include "memory/guarded_pages.hpp"

#include <verbspp/base/detail/owned.hpp>
#include <verbspp/memory/detail/watched_memory.hpp>

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <new>
#include <utility>

namespace verbspp::detail {

namespace {

/// The calls that are in effect for a page.
struct page_use {
  std::uint32_t sources;  ///< the number of calls of `guard_source`
  std::uint32_t targets;  ///< the number of calls of `enter_target`
};

/// Pages that the library has allocated.
struct guarded_range {
  std::uint64_t start;
  std::uint64_t length;
  std::uint64_t page;  ///< the size of each page
  owned<page_use[]> uses;
  bool is_registered = false;
  bool is_exempt = false;  ///< the pages stay writable
  guarded_range* next = nullptr;

  [[nodiscard]] std::uint64_t end() const noexcept { return start + length; }
};

std::mutex ranges_mutex;
guarded_range* ranges = nullptr;
// False until pages are recorded for the first time, so that programs without such pages take no
// lock.
std::atomic<bool> some_are_known = false;

void protect(const guarded_range& range, std::uint64_t index, int protection) noexcept {
  // A failure is ignored: if a page could not be protected, writes to it merely remain undetected.
  // NOLINTNEXTLINE(performance-no-int-to-ptr)
  static_cast<void>(::mprotect(reinterpret_cast<void*>(range.start + index * range.page),
                               range.page, protection));
}

void make_writable(const guarded_range& range, std::uint64_t index) noexcept {
  protect(range, index, PROT_READ | PROT_WRITE);
}

/// Calls `visit(range, first, end)` for the library's pages. If `whole` is true, these are the
/// pages that lie entirely within the bytes; otherwise, all pages that overlap the bytes.
template <class Visit>
void for_pages(std::uint64_t address, std::uint64_t length, bool whole, Visit visit) noexcept {
  if (length == 0 || address + length < address || !some_are_known.load(std::memory_order_acquire))
    return;
  const std::scoped_lock lock(ranges_mutex);
  for (guarded_range* each = ranges; each != nullptr; each = each->next) {
    const std::uint64_t from = std::max(address, each->start);
    const std::uint64_t to = std::min(address + length, each->end());
    if (from >= to) continue;
    const std::uint64_t outside = each->page - 1;
    const std::uint64_t first = (from - each->start + (whole ? outside : 0)) / each->page;
    const std::uint64_t end = (to - each->start + (whole ? 0 : outside)) / each->page;
    if (first < end) visit(*each, first, end);
  }
}

}  // namespace

void pages_appear(void* first, std::size_t length, std::size_t page) noexcept {
  if (!device_memory_is_watched()) return;
  owned<page_use[]> uses(new (std::nothrow) page_use[length / page]{});
  auto* const made = new (std::nothrow) guarded_range{
      .start = reinterpret_cast<std::uintptr_t>(first),
      .length = length,
      .page = page,
      .uses = std::move(uses),
  };
  if (made == nullptr) return;
  made->is_exempt = !made->uses;
  const std::scoped_lock lock(ranges_mutex);
  made->next = ranges;
  ranges = made;
  some_are_known.store(true, std::memory_order_release);
}

void pages_go(void* first) noexcept {
  if (!some_are_known.load(std::memory_order_acquire)) return;
  const auto start = reinterpret_cast<std::uintptr_t>(first);
  const std::scoped_lock lock(ranges_mutex);
  for (guarded_range** place = &ranges; *place != nullptr; place = &(*place)->next)
    if (guarded_range* const found = *place; found->start == start) {
      *place = found->next;
      delete found;
      return;
    }
}

void pages_are_registered(const void* first, std::size_t length, access_flags rights) noexcept {
  constexpr access_flags of_peers =
      access::remote_write | access::remote_atomic | access::window_bind;
  for_pages(reinterpret_cast<std::uintptr_t>(first), length, false,
            [&](guarded_range& range, std::uint64_t, std::uint64_t) {
              const bool is_first = !std::exchange(range.is_registered, true);
              if (is_first && !rights.intersects(of_peers)) return;
              if (std::exchange(range.is_exempt, true) || !range.uses) return;
              for (std::uint64_t i = 0; i < range.length / range.page; ++i)
                if (range.uses.get()[i].sources != 0) make_writable(range, i);
            });
}

void enter_target(std::uint64_t address, std::uint64_t length) noexcept {
  for_pages(address, length, false,
            [](guarded_range& range, std::uint64_t first, std::uint64_t end) {
              if (range.is_exempt) return;
              for (std::uint64_t i = first; i < end; ++i) {
                page_use& use = range.uses.get()[i];
                if (use.targets++ == 0 && use.sources != 0) make_writable(range, i);
              }
            });
}

void leave_target(std::uint64_t address, std::uint64_t length) noexcept {
  for_pages(address, length, false,
            [](guarded_range& range, std::uint64_t first, std::uint64_t end) {
              if (range.is_exempt) return;
              for (std::uint64_t i = first; i < end; ++i)
                if (page_use& use = range.uses.get()[i]; use.targets != 0) --use.targets;
            });
}

void guard_source(std::uint64_t address, std::uint64_t length) noexcept {
  for_pages(address, length, true,
            [](guarded_range& range, std::uint64_t first, std::uint64_t end) {
              if (range.is_exempt) return;
              for (std::uint64_t i = first; i < end; ++i) {
                page_use& use = range.uses.get()[i];
                if (use.sources++ == 0 && use.targets == 0) protect(range, i, PROT_READ);
              }
            });
}

void unguard_source(std::uint64_t address, std::uint64_t length) noexcept {
  for_pages(address, length, true,
            [](guarded_range& range, std::uint64_t first, std::uint64_t end) {
              if (range.is_exempt) return;
              for (std::uint64_t i = first; i < end; ++i) {
                page_use& use = range.uses.get()[i];
                if (use.sources == 0) continue;
                --use.sources;
                if (use.sources == 0) make_writable(range, i);
              }
            });
}

}  // namespace verbspp::detail
