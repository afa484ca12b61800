// expect: value_is_out_of_range
// expect: path_mtu
// SPDX-License-Identifier: Apache-2.0

#include <verbspp/qp/parameters.hpp>

#ifdef MUST_FAIL
inline constexpr verbspp::path_mtu value = 1000;
#else
inline constexpr verbspp::path_mtu value = 1024;
#endif
