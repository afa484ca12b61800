// expect: a result holds no reference: return a pointer, or the value itself
// SPDX-License-Identifier: Apache-2.0

#include <verbspp/base/result.hpp>

#ifdef MUST_FAIL
using value = int&;
#else
using value = int*;
#endif

int number = 1;

bool holds() {
#ifdef MUST_FAIL
  const verbspp::result<value> held(std::in_place, number);
#else
  const verbspp::result<value> held(std::in_place, &number);
#endif
  return held.has_value();
}
