// expect: value_is_out_of_range
// expect: packet_sequence_number
// SPDX-License-Identifier: Apache-2.0

#include <verbspp/qp/parameters.hpp>

#ifdef MUST_FAIL
inline constexpr verbspp::packet_sequence_number value = 1 << 24;
#else
inline constexpr verbspp::packet_sequence_number value = (1 << 24) - 1;
#endif
