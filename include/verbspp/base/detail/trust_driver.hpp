// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/config.hpp>

namespace verbspp::detail {

/// Makes a call that libibverbs forwards through a function pointer of the driver. Only here does
/// the library rely on the driver not to block; it may spin on a lock of its own, though.
template <class Call>
VERBSPP_DATA_PATH auto trust_driver(Call call) noexcept VERBSPP_NONBLOCKING {
#if defined(__clang__)
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wunknown-warning-option"  // for older versions
#pragma clang diagnostic ignored "-Wfunction-effects"
#endif
  return call();
#if defined(__clang__)
#pragma clang diagnostic pop
#endif
}

}  // namespace verbspp::detail
