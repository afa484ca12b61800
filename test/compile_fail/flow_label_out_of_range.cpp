// expect: value_is_out_of_range
// expect: flow_label
// SPDX-License-Identifier: Apache-2.0

#include <verbspp/device/path.hpp>

using namespace verbspp;

#ifdef MUST_FAIL
inline constexpr flow_label label = 0x100000;
#else
inline constexpr flow_label label = 0xfffff;
#endif
