// expect: a truth value or a character is no number: write the number
// within: 15
// variants: 6
// SPDX-License-Identifier: Apache-2.0

#include <verbspp/device/port.hpp>
#include <verbspp/qp/parameters.hpp>

using namespace verbspp;

auto setting() {
#if MUST_FAIL == 1
  return retry_count{true};
#elif MUST_FAIL == 2
  return retry_count{'a'};
#elif MUST_FAIL == 3
  return rnr_retry_count{true};
#elif MUST_FAIL == 4
  return min_rnr_timer{true};
#elif MUST_FAIL == 5
  return ack_timeout{true};
#elif MUST_FAIL == 6
  return path_mtu{true};
#else
  return retry_count{1};
#endif
}
