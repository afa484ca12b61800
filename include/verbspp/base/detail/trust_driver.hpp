// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/config.hpp>

namespace verbspp::detail {

/// Makes a call that libibverbs forwards to the driver through a function pointer. The compiler
/// cannot check that the driver does not block, so only this function disables the compiler's
/// warning. The driver may spin on a lock.
template <class Call>
VERBSPP_DATA_PATH auto trust_driver(Call call) noexcept VERBSPP_NONBLOCKING {
#if defined(__clang__)
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wunknown-warning-option"  // for older versions of clang
#pragma clang diagnostic ignored "-Wfunction-effects"
#endif
  return call();
#if defined(__clang__)
#pragma clang diagnostic pop
#endif
}

}  // namespace verbspp::detail
