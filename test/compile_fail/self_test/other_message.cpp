// SPDX-License-Identifier: Apache-2.0

// case: other_message
// runner: failed: the message is not shown
// expect: the message that was promised
#ifdef MUST_FAIL
static_assert(sizeof(int) == 0, "another message");  // the message that was promised
#endif
