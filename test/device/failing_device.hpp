// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace verbspp::test {

/// Gives the software device a fault, as `softverbs_inject` describes it, until the end of the
/// scope; where the tests don't run on it, the test is skipped.
class failing_device {
 public:
  explicit failing_device(const char* fault);
  ~failing_device();
  failing_device(const failing_device&) = delete;
  failing_device& operator=(const failing_device&) = delete;
};

}  // namespace verbspp::test
