// expect: value_is_out_of_range
// expect: port_number
// SPDX-License-Identifier: Apache-2.0

#include <verbspp/qp/parameters.hpp>

#ifdef MUST_FAIL
inline constexpr verbspp::port_number value = 0;
#else
inline constexpr verbspp::port_number value = 1;
#endif
