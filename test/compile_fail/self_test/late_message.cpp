// SPDX-License-Identifier: Apache-2.0

// case: late_message
// runner: failed: the message is not shown
// expect: the fourth error
#ifdef MUST_FAIL
static_assert(sizeof(int) == 0, "the first error");
static_assert(sizeof(int) == 0, "the second error");
static_assert(sizeof(int) == 0, "the third error");
static_assert(sizeof(int) == 0, "the fourth error");
#endif
