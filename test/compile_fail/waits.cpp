// SPDX-License-Identifier: Apache-2.0

// Stop tokens that a wait limit cannot store.
// within: 15

#include <verbspp/base/wait_limit.hpp>

#include <chrono>

using namespace verbspp;

// case: stop_token_that_throws
// expect: a stop token is copied and tested where no exception could be caught
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

// case: stop_token_too_large
// expect: a stop token is stored in the limit, so it can have at most the size of two pointers and
// expect: the alignment of one
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
