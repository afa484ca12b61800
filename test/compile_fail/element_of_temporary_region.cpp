// expect: temporary whose address is used as value of local variable
// only: clang
// variants: 2
// flags: -Werror=dangling
// SPDX-License-Identifier: Apache-2.0

// Only clang sees that an element is of a region that is gone, where that ends with the expression.

#include <verbspp/memory/memory_region.hpp>

using namespace verbspp;

memory_region<> make();

std::uint32_t use(const memory_region<>& kept) {
#if !defined(MUST_FAIL)
  const gather_element element = kept.gather_unchecked(0, 8);
  return element.length();
#elif MUST_FAIL == 1
  const gather_element element = make().gather_unchecked(0, 8);
  return element.length() + kept.gather_unchecked(0, 8).length();
#else
  const auto element = make().gather(0, 8);
  return element.has_value() && kept.gather(0, 8).has_value() ? 1 : 0;
#endif
}
