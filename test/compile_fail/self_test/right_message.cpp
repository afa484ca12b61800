// SPDX-License-Identifier: Apache-2.0

// case: right_message
// runner: passed:
// expect: an int
// expect: /has (a|some) size/
template <typename Anything>
constexpr void check() {
#ifdef MUST_FAIL
  static_assert(sizeof(Anything) == 0, "an int has a size");
#else
  static_assert(sizeof(Anything) != 0);
#endif
}

void instantiate() { check<int>(); }
