// runner: failed: the message is not shown
// expect: the message that was promised
// SPDX-License-Identifier: Apache-2.0

#ifdef MUST_FAIL
static_assert(sizeof(int) == 0, "another message");  // the message that was promised
#endif
