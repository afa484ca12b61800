// runner: passed:
// expect: an int
// expect: /has (a|some) size/
// SPDX-License-Identifier: Apache-2.0

template <typename Anything>
constexpr void check() {
#ifdef MUST_FAIL
  static_assert(sizeof(Anything) == 0, "an int has a size");
#else
  static_assert(sizeof(Anything) != 0);
#endif
}

void instantiate() { check<int>(); }
