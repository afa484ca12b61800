// expect: value_is_out_of_range
// expect: min_rnr_timer
// SPDX-License-Identifier: Apache-2.0

#include <verbspp/qp/parameters.hpp>

#ifdef MUST_FAIL
inline constexpr verbspp::min_rnr_timer value = 32;
#else
inline constexpr verbspp::min_rnr_timer value = 31;
#endif
