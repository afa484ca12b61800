// expect: value_is_out_of_range
// expect: rnr_retry_count
// SPDX-License-Identifier: Apache-2.0

#include <verbspp/qp/parameters.hpp>

#ifdef MUST_FAIL
inline constexpr verbspp::rnr_retry_count value = 7;
#else
inline constexpr verbspp::rnr_retry_count value = 6;
#endif
