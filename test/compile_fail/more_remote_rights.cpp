// expect: a remote memory handle cannot gain a right: only its owner grants rights
// SPDX-License-Identifier: Apache-2.0

#include <verbspp/memory/remote_memory.hpp>

namespace rights = verbspp::access;

auto widen(const verbspp::remote_memory<rights::remote_read | rights::remote_write>& memory) {
#ifdef MUST_FAIL
  return verbspp::remote_memory<rights::all_remote>(memory);
#else
  return verbspp::remote_memory<rights::remote_read>(memory);
#endif
}
