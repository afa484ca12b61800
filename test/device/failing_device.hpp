// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace verbspp::test {

/// Injects a fault into the software device. The destructor resets all faults. Skips the test on
/// other devices. `fault` is passed to `softverbs_inject`.
class failing_device {
 public:
  explicit failing_device(const char* fault);
  ~failing_device();
  failing_device(const failing_device&) = delete;
  failing_device& operator=(const failing_device&) = delete;
};

}  // namespace verbspp::test
