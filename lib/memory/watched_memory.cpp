// SPDX-License-Identifier: Apache-2.0
#include "memory/guarded_pages.hpp"
#include "memory/own_addresses.hpp"
#include <verbspp/memory/detail/watched_memory.hpp>

#if defined(VERBSPP_HAS_VALGRIND)
#include <valgrind/memcheck.h>
#endif

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <new>

// The sanitizer's own names, which are defined if the program is linked with it.
// NOLINTBEGIN(bugprone-reserved-identifier)
extern "C" {
[[gnu::weak]] void __asan_poison_memory_region(const volatile void* address, std::size_t size);
[[gnu::weak]] void __asan_unpoison_memory_region(const volatile void* address, std::size_t size);
[[gnu::weak]] void __asan_get_shadow_mapping(std::size_t* scale, std::size_t* offset);
[[gnu::weak]] void __asan_report_error(void* pc, void* bp, void* sp, void* address, int is_write,
                                       std::size_t size);
}
// NOLINTEND(bugprone-reserved-identifier)

namespace verbspp::detail {

namespace {

bool is_sanitized() noexcept {
  return __asan_poison_memory_region != nullptr && __asan_unpoison_memory_region != nullptr &&
         __asan_get_shadow_mapping != nullptr && __asan_report_error != nullptr;
}

#if defined(VERBSPP_HAS_VALGRIND)

// Valgrind's client requests are instructions that return 0 if nothing handles them: on a real
// processor, or under tools of Valgrind that do not check memory, such as callgrind.
bool asks_valgrind() noexcept {
  const char known = 0;
  char bits = 0;
  return VALGRIND_GET_VBITS(&known, &bits, 1) != 0;
}

void tell_valgrind(std::uint64_t address, std::uint64_t length, bool accessible) noexcept {
  if (accessible)
    VALGRIND_MAKE_MEM_DEFINED(address, length);
  else
    VALGRIND_MAKE_MEM_NOACCESS(address, length);
}

#else

bool asks_valgrind() noexcept { return false; }
void tell_valgrind(std::uint64_t /*address*/, std::uint64_t /*length*/,
                   bool /*accessible*/) noexcept {}

#endif

/// The tools that watch memory.
struct watchers {
  bool sanitizer = is_sanitized();
  bool valgrind = asks_valgrind();
  // The bounds of the sanitizer's shadow memory. Passing an address in it to the sanitizer would be
  // fatal.
  std::uint64_t books_begin = 0;
  std::uint64_t books_end = 0;
  std::uint64_t end_of_addresses = 0;
  std::size_t scale = 0;

  watchers() noexcept {
    if (!sanitizer) return;
    std::size_t offset = 0;
    __asan_get_shadow_mapping(&scale, &offset);
    // The stack is at the upper end of the program's addresses.
    end_of_addresses = std::bit_ceil(reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0)));
    books_begin = offset;
    books_end = offset + (end_of_addresses >> scale);
  }

  [[nodiscard]] bool are_there() const noexcept { return sanitizer || valgrind; }
  /// True if the sanitizer tracks all of these bytes.
  [[nodiscard]] bool knows(std::uint64_t address, std::uint64_t length) const noexcept {
    return sanitizer && address + length <= end_of_addresses &&
           (address + length <= books_begin || address >= books_end);
  }
  /// True if the sanitizer's shadow memory says that the memory at this address has been freed, or
  /// belonged to a variable whose block or function has ended.
  [[nodiscard]] __attribute__((no_sanitize("address"))) bool is_gone(
      std::uint64_t address) const noexcept {
    // NOLINTNEXTLINE(performance-no-int-to-ptr): the sanitizer computes the same address
    const auto entry = *reinterpret_cast<const unsigned char*>((address >> scale) + books_begin);
    return entry == 0xfd || entry == 0xf8 || entry == 0xf5;
  }
};

const watchers& who_watches() noexcept {
  static const watchers those;
  return those;
}

/// A range of addresses that do not refer to the program's memory.
struct other_range {
  std::uint64_t start;
  std::uint64_t length;
  other_range* next;
};

std::mutex other_ranges_mutex;
other_range* other_ranges = nullptr;
// False until a range is recorded for the first time, so that most programs take no lock.
std::atomic<bool> some_are_otherwise = false;

bool is_of_the_program(std::uint64_t address, std::uint64_t length) noexcept {
  if (!some_are_otherwise.load(std::memory_order_acquire)) return true;
  const std::scoped_lock lock(other_ranges_mutex);
  for (const other_range* each = other_ranges; each != nullptr; each = each->next)
    if (address - each->start < each->length || each->start - address < length) return false;
  return true;
}

/// Tells the sanitizer whether the bytes may be accessed. If the memory has been freed, lets the
/// sanitizer report that instead.
void tell_sanitizer(const watchers& those, std::uint64_t address, std::uint64_t length,
                    bool accessible) noexcept {
  // Checking the first and the last byte is enough, because memory is freed as a whole.
  for (const std::uint64_t place : {address, address + length - 1})
    if (those.is_gone(place)) {
      void* const frame = __builtin_frame_address(0);
      // NOLINTNEXTLINE(performance-no-int-to-ptr): elements have integer addresses
      __asan_report_error(__builtin_return_address(0), frame, frame, reinterpret_cast<void*>(place),
                          1, 1);
      return;
    }
  // NOLINTNEXTLINE(performance-no-int-to-ptr)
  const auto* const start = reinterpret_cast<const void*>(address);
  if (accessible)
    __asan_unpoison_memory_region(start, length);
  else
    __asan_poison_memory_region(start, length);
}

/// True if a tool watches memory, and the bytes are the program's memory.
bool is_watched(const watchers& those, std::uint64_t address, std::uint64_t length) noexcept {
  return those.are_there() && address != 0 && length != 0 && address + length >= address &&
         is_of_the_program(address, length);
}

/// Tells the tools whether the bytes that they watch may be accessed.
void tell(std::uint64_t address, std::uint64_t length, bool accessible) noexcept {
  const watchers& those = who_watches();
  if (!is_watched(those, address, length)) return;
  if (accessible)
    leave_target(address, length);
  else
    enter_target(address, length);
  if (those.knows(address, length)) tell_sanitizer(those, address, length, accessible);
  if (those.valgrind) tell_valgrind(address, length, accessible);
}

}  // namespace

bool device_memory_is_watched() noexcept { return who_watches().are_there(); }

void device_takes(std::uint64_t address, std::uint64_t length) noexcept {
  tell(address, length, false);
}

void device_returns(std::uint64_t address, std::uint64_t length) noexcept {
  tell(address, length, true);
}

void device_reads(std::uint64_t address, std::uint64_t length) noexcept {
  if (is_watched(who_watches(), address, length)) guard_source(address, length);
}

void device_has_read(std::uint64_t address, std::uint64_t length) noexcept {
  if (is_watched(who_watches(), address, length)) unguard_source(address, length);
}

void name_otherwise(std::uint64_t start, std::uint64_t length) noexcept {
  if (!device_memory_is_watched()) return;
  const std::scoped_lock lock(other_ranges_mutex);
  auto* const added = new (std::nothrow) other_range{start, length, other_ranges};
  if (added == nullptr) return;
  other_ranges = added;
  some_are_otherwise.store(true, std::memory_order_release);
}

void name_no_more(std::uint64_t start, std::uint64_t length) noexcept {
  if (!some_are_otherwise.load(std::memory_order_acquire)) return;
  const std::scoped_lock lock(other_ranges_mutex);
  for (other_range** place = &other_ranges; *place != nullptr; place = &(*place)->next)
    if (other_range* const found = *place; found->start == start && found->length == length) {
      *place = found->next;
      delete found;
      return;
    }
}

}  // namespace verbspp::detail
