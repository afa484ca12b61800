// SPDX-License-Identifier: Apache-2.0

// case: message_far_down
// runner: failed: the message is not shown
// expect: the second error
// within: 3
#ifdef MUST_FAIL
static_assert(sizeof(int) == 0, "the first error");
static_assert(sizeof(int) == 0, "the second error");
#endif
