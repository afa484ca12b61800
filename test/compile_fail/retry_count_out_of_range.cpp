// expect: value_is_out_of_range
// expect: retry_count
// SPDX-License-Identifier: Apache-2.0

#include <verbspp/qp/parameters.hpp>

#ifdef MUST_FAIL
inline constexpr verbspp::retry_count value = 8;
#else
inline constexpr verbspp::retry_count value = 7;
#endif
