// SPDX-License-Identifier: Apache-2.0

// case: good_variant_fails
// runner: failed: the good variant does not compile
// expect: a number is not a pointer
static_assert(sizeof(int) == 0, "a number is not a pointer");
