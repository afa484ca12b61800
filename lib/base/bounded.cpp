// SPDX-License-Identifier: Apache-2.0
#include <verbspp/base/bounded.hpp>

#include <cstdio>
#include <cstdlib>

namespace verbspp::detail {

void value_is_out_of_range() {
  std::fputs("verbspp: a constant is outside the range that its parameter accepts\n", stderr);
  std::abort();
}

}  // namespace verbspp::detail
