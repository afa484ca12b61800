// SPDX-License-Identifier: Apache-2.0
// A verb that this library doesn't define is libibverbs' own: it calls the operation that it finds
// behind `verbs_context::priv`. The layout of that table is private, and changes with each release.
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

/// The function by which each driver has libibverbs make a context. It fills the table with
/// operations that only refuse, each with the return value of its kind; a driver then replaces
/// those that it has. The signature is the same since rdma-core 18 (2018).
using make_context = void* (*)(ibv_device* device, int command_descriptor, std::size_t size,
                               verbs_context* offset, std::uint32_t driver);

/// Operations of an unknown type return either a number or a pointer, and no value refuses as both.
/// This one is right for numbers, of which there are twice as many. It is used only if libibverbs
/// has no such function any more.
int refuse() noexcept {
  errno = EOPNOTSUPP;
  return EOPNOTSUPP;
}

verbs_ex_private* only_refusals() noexcept {
  // More than a table has: rdma-core 65 has 93 operations.
  static std::array<decltype(&refuse), 512> table = [] {
    std::array<decltype(&refuse), 512> filled;
    filled.fill(&refuse);
    return filled;
  }();
  return reinterpret_cast<verbs_ex_private*>(table.data());
}

verbs_ex_private* make_table() noexcept {
  auto* const make = reinterpret_cast<make_context>(next_symbol("_verbs_init_and_alloc_context"));
  if (make == nullptr) return only_refusals();
  // It counts the context as a user of the device, so that is none that programs see.
  static soft_device nobody{};
  const int error = errno;
  auto* const made =
      static_cast<verbs_context*>(make(&nobody.verbs, -1, sizeof(verbs_context), nullptr, 0));
  errno = error;
  if (made == nullptr || made->priv == nullptr) return only_refusals();
  // Only the table is needed. libibverbs' function that ends a context would end the device, too.
  verbs_ex_private* const table = made->priv;
  std::free(made);
  return table;
}

}  // namespace

verbs_ex_private* unsupported_operations() noexcept {
  static verbs_ex_private* const table = make_table();
  return table;
}

}  // namespace softverbs
