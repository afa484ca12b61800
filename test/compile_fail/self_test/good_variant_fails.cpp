// runner: failed: the good variant does not compile
// expect: a number is not a pointer
// SPDX-License-Identifier: Apache-2.0

static_assert(sizeof(int) == 0, "a number is not a pointer");
