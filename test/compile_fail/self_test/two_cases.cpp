// SPDX-License-Identifier: Apache-2.0

// These lines apply to both cases. Neither case contains the code of the other.
// expect: an int

// case: first_of_two
// runner: failed: the message is not shown
// expect: an int of the second
#ifdef MUST_FAIL
static_assert(sizeof(int) == 0, "an int of the first");
#endif
[[maybe_unused]] constexpr int value = 1;

// case: second_of_two
// runner: passed:
// expect: an int of the second
#ifdef MUST_FAIL
static_assert(sizeof(int) == 0, "an int of the second");
#endif
[[maybe_unused]] constexpr char value = 2;
