// SPDX-License-Identifier: Apache-2.0
// If this library doesn't define a verb, the program calls the function of libibverbs. That
// function calls the operation in the table behind `verbs_context::priv`. The layout of this table
// is private, and may change with each release.
#include "verbs/libibverbs_operations.hpp"

#include "device/device.hpp"
#include "verbs/next_library.hpp"

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>

namespace softverbs {
namespace {

/// The function by which every driver creates a context. It fills the table with default
/// operations, nearly all of which only fail, each with the appropriate return value. A driver then
/// replaces the ones that it supports. The signature has not changed since rdma-core 18 (2018).
using make_context = void* (*)(ibv_device* device, int command_descriptor, std::size_t size,
                               verbs_context* offset, std::uint32_t driver);

/// Nearly all operations return an int or a pointer, and no single value means failure for both
/// types. More of them return ints, so this function returns an errno value. It is only used if the
/// table of libibverbs is not available.
int refuse() noexcept {
  errno = EOPNOTSUPP;
  return EOPNOTSUPP;
}

verbs_ex_private* only_refusals() noexcept {
  // This is more than enough: the table of rdma-core 65 has 93 operations.
  static std::array<decltype(&refuse), 512> table = [] {
    std::array<decltype(&refuse), 512> filled;
    filled.fill(&refuse);
    return filled;
  }();
  return reinterpret_cast<verbs_ex_private*>(table.data());
}

/// The number of bytes that are reserved for a context. This is more than enough: a context of
/// rdma-core 65 has 696 bytes. libibverbs fills all members that it knows, whatever size is given,
/// and newer releases have more of them than the headers that softverbs was built with.
constexpr std::size_t context_room = std::size_t{16} << 10;

/// Finds the context in this memory. Returns the address of the members that the headers declare,
/// or null if there is no context. Members of newer releases precede the declared ones, which
/// therefore start after an unknown number of bytes.
verbs_context* known_part(void* memory, const ibv_device& device) noexcept {
  auto* const start = static_cast<std::byte*>(memory);
  for (std::size_t at = 0; at + sizeof(verbs_context) <= context_room;
       at += alignof(verbs_context)) {
    auto* const part = reinterpret_cast<verbs_context*>(start + at);
    if (part->context.device == &device && part->context.abi_compat == __VERBS_ABI_IS_EXTENDED)
      return part;
  }
  return nullptr;
}

verbs_ex_private* make_table() noexcept {
  auto* const make = reinterpret_cast<make_context>(next_symbol("_verbs_init_and_alloc_context"));
  if (make == nullptr) return only_refusals();
  // The context counts as a user of its device, so the device must not be one that programs see.
  static soft_device nobody{};
  const int error = errno;
  void* const made = make(&nobody.verbs, -1, context_room, nullptr, 0);
  errno = error;
  if (made == nullptr) return only_refusals();
  const verbs_context* const part = known_part(made, nobody.verbs);
  // Only the table is needed. libibverbs' function that destroys a context would destroy the
  // device, too.
  verbs_ex_private* const table = part != nullptr ? part->priv : nullptr;
  std::free(made);
  return table != nullptr ? table : only_refusals();
}

}  // namespace

verbs_ex_private* unsupported_operations() noexcept {
  static verbs_ex_private* const table = make_table();
  return table;
}

}  // namespace softverbs
