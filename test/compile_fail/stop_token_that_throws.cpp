// expect: a stop token is copied and asked where nobody could catch an exception
// within: 15
// variants: 2
// SPDX-License-Identifier: Apache-2.0

#include <verbspp/base/wait_limit.hpp>

using namespace verbspp;

struct throws_when_asked {
  bool stop_requested() const;
};
struct throws_when_copied {
  throws_when_copied() = default;
  throws_when_copied(const throws_when_copied&);
  bool stop_requested() const noexcept;
};
struct never_throws {
  bool stop_requested() const noexcept;
};

wait_limit limit() {
#if MUST_FAIL == 1
  return throws_when_asked();
#elif MUST_FAIL == 2
  return throws_when_copied();
#else
  return never_throws();
#endif
}
