// SPDX-License-Identifier: Apache-2.0
#include "queue_pair/remote_atomic.hpp"

#include "base/newer_verbs.hpp"
#include "base/user_memory.hpp"

#include <sys/mman.h>
#include <unistd.h>

namespace softverbs {
namespace {

/// Waits until the memory has been written to the file that it maps. Returns false if this fails.
/// Memory that maps no file is considered persistent.
bool is_stored(std::span<std::byte> memory) noexcept {
  const auto page_size = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto start = reinterpret_cast<std::uintptr_t>(memory.data());
  const std::uintptr_t page = start & ~(page_size - 1);
  return ::msync(reinterpret_cast<void*>(page), start - page + memory.size(), MS_SYNC) == 0;
}

/// True if the actual address of the word is aligned; the address in requests may differ from it.
bool is_word(std::span<const std::byte> memory) noexcept {
  return reinterpret_cast<std::uintptr_t>(memory.data()) % atomic_bytes == 0;
}

}  // namespace

std::optional<std::uint64_t> carry_out(packet_kind kind, const atomic_operands& operands,
                                       std::span<std::byte> memory) noexcept {
  if (kind == packet_kind::flush) {
    // Earlier writes are visible already. Only a persistent flush has something to do.
    const bool persistent = (operands.compare_or_add & newer::flush_persistent) != 0;
    return persistent && !is_stored(memory) ? std::nullopt : std::optional<std::uint64_t>{0};
  }
  if (!is_word(memory)) return std::nullopt;
  switch (kind) {
    case packet_kind::fetch_add:
      return user_memory::fetch_add(memory.data(), operands.compare_or_add);
    case packet_kind::compare_swap:
      return user_memory::compare_and_swap(memory.data(), operands.compare_or_add, operands.swap);
    default:
      return user_memory::exchange(memory.data(), operands.compare_or_add);
  }
}

}  // namespace softverbs
