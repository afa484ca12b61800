// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace verbspp::test {

/// Injects a fault into the software device, in the format of `softverbs_inject`, until the end of
/// the scope. Skips the test on other devices.
class failing_device {
 public:
  explicit failing_device(const char* fault);
  ~failing_device();
  failing_device(const failing_device&) = delete;
  failing_device& operator=(const failing_device&) = delete;
};

}  // namespace verbspp::test
