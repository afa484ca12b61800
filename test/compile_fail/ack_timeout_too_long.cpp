// expect: value_is_out_of_range
// expect: ack_timeout
// SPDX-License-Identifier: Apache-2.0

#include <verbspp/qp/parameters.hpp>

#ifdef MUST_FAIL
inline constexpr verbspp::ack_timeout timeout = std::chrono::hours(3);
#else
inline constexpr verbspp::ack_timeout timeout = std::chrono::hours(2);
#endif
