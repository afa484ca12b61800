// expect: a temporary frees its entries: name the table first
// expect-gcc: use of deleted function
// expect-clang: deleted
// SPDX-License-Identifier: Apache-2.0

#include <verbspp/device/context.hpp>

verbspp::gid_table queried();

auto first() {
#ifdef MUST_FAIL
  return queried().begin()->index;
#else
  const auto table = queried();
  return table.begin()->index;
#endif
}
