// SPDX-License-Identifier: Apache-2.0
#include "queue_pair/remote_atomic.hpp"

#include "base/as_a_device.hpp"
#include "base/newer_verbs.hpp"

#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace softverbs {
namespace {

/// The program may have unmapped it. The only thing that the kernel does to memory in place is
/// what this asks for: to add nothing to the word there, and to wake nobody.
bool is_writable(std::byte* memory) noexcept {
  std::uint32_t nobody = 0;
  constexpr auto add_nothing = static_cast<std::uint32_t>(FUTEX_OP(FUTEX_OP_ADD, 0, 0, 0));
  return ::syscall(SYS_futex, &nobody, FUTEX_WAKE_OP | FUTEX_PRIVATE_FLAG, 0, 0, memory,
                   add_nothing) >= 0;
}

SOFTVERBS_AS_A_DEVICE std::uint64_t add(std::uint64_t* value, std::uint64_t amount) noexcept {
  return __atomic_fetch_add(value, amount, __ATOMIC_SEQ_CST);
}

SOFTVERBS_AS_A_DEVICE std::uint64_t compare_and_swap(std::uint64_t* value, std::uint64_t compare,
                                                     std::uint64_t swap) noexcept {
  __atomic_compare_exchange_n(value, &compare, swap, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
  return compare;
}

SOFTVERBS_AS_A_DEVICE std::uint64_t exchange(std::uint64_t* value, std::uint64_t next) noexcept {
  return __atomic_exchange_n(value, next, __ATOMIC_SEQ_CST);
}

/// After waiting for that. Memory that no file is behind is taken for storage itself.
bool is_stored(std::span<std::byte> memory) noexcept {
  const auto page_size = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto start = reinterpret_cast<std::uintptr_t>(memory.data());
  const std::uintptr_t page = start & ~(page_size - 1);
  return ::msync(reinterpret_cast<void*>(page), start - page + memory.size(), MS_SYNC) == 0;
}

}  // namespace

std::optional<std::uint64_t> carry_out(packet_kind kind, const atomic_operands& operands,
                                       std::span<std::byte> memory) noexcept {
  if (kind == packet_kind::flush) {
    // What was written is visible to all by now: only storage may be behind.
    const bool persistent = (operands.compare_or_add & newer::flush_persistent) != 0;
    return persistent && !is_stored(memory) ? std::nullopt : std::optional<std::uint64_t>{0};
  }
  const unwatched device;
  if (!is_writable(memory.data())) return std::nullopt;
  auto* value = reinterpret_cast<std::uint64_t*>(memory.data());
  switch (kind) {
    case packet_kind::fetch_add:
      return add(value, operands.compare_or_add);
    case packet_kind::compare_swap:
      return compare_and_swap(value, operands.compare_or_add, operands.swap);
    default:
      return exchange(value, operands.compare_or_add);
  }
}

}  // namespace softverbs
