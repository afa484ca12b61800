// expect: immediate data has 32 bits: say that the rest is cut off, as
// immediate_data(static_cast<std::uint32_t>(value)) within: 15 SPDX-License-Identifier: Apache-2.0

#include <verbspp/work/immediate_data.hpp>

#ifdef MUST_FAIL
using number = std::uint64_t;
#else
using number = std::uint16_t;
#endif

auto data(number value) { return verbspp::immediate_data(value); }
