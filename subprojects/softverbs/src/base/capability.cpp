// SPDX-License-Identifier: Apache-2.0
#include "base/capability.hpp"

#include <linux/capability.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>

namespace softverbs {

bool may_send_raw() noexcept {
  __user_cap_header_struct process{_LINUX_CAPABILITY_VERSION_3, 0};
  std::array<__user_cap_data_struct, _LINUX_CAPABILITY_U32S_3> capabilities{};
  return ::syscall(SYS_capget, &process, capabilities.data()) == 0 &&
         (capabilities[0].effective & (1U << CAP_NET_RAW)) != 0;
}

}  // namespace softverbs
