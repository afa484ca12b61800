// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <functional>
#include <string_view>

namespace verbspp::test {

/// Lets every call of one verb fail, by that verb's convention, without asking the device; what no
/// device can be asked to do. The program's own definitions of the verbs come before all others.
class failing_verb {
 public:
  /// \param errnum what the verb sets errno to, or returns
  failing_verb(std::string_view verb, int errnum);
  ~failing_verb();
  failing_verb(const failing_verb&) = delete;
  failing_verb& operator=(const failing_verb&) = delete;

  /// The calls so far.
  [[nodiscard]] int calls() const;

 private:
  std::size_t index_;
};

/// Gives the software device a fault, as `softverbs_inject` describes it, until the end of the
/// scope; where the tests don't run on it, the test is skipped.
class failing_device {
 public:
  explicit failing_device(const char* fault);
  ~failing_device();
  failing_device(const failing_device&) = delete;
  failing_device& operator=(const failing_device&) = delete;
};

/// Calls a function when the next completion queue is about to be destroyed.
void before_next_destroy_cq(std::function<void()> call);

/// Lets `ibv_get_async_event` give this event next: one that needs no acknowledgement.
void inject(const ibv_async_event& event);

}  // namespace verbspp::test
