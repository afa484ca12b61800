// expect: a stop token is kept in the limit, which has room for two pointers
// within: 15
// variants: 2
// SPDX-License-Identifier: Apache-2.0

#include <verbspp/base/wait_limit.hpp>

#include <chrono>

using namespace verbspp;

struct small_token {
  bool stop_requested() const noexcept;
  void* shared[2];
};
struct large_token : small_token {
  char more;
};

wait_limit limit() {
#if MUST_FAIL == 1
  return large_token();
#elif MUST_FAIL == 2
  return {std::chrono::seconds(1), large_token()};
#else
  return {std::chrono::seconds(1), small_token()};
#endif
}
