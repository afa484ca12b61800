// SPDX-License-Identifier: Apache-2.0
#include "failing_device.hpp"

#include "device.hpp"

#include <dlfcn.h>

namespace verbspp::test {

failing_device::failing_device(const char* fault) {
  auto* const inject_fault =
      reinterpret_cast<int (*)(const char*)>(::dlsym(RTLD_DEFAULT, "softverbs_inject"));
  if (inject_fault == nullptr || !device_name().starts_with("soft"))
    SKIP("only the software device fails on demand");
  REQUIRE(inject_fault(fault) == 0);
}

failing_device::~failing_device() {
  reinterpret_cast<void (*)()>(::dlsym(RTLD_DEFAULT, "softverbs_reset_faults"))();
}

}  // namespace verbspp::test
