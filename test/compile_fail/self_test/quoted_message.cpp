// SPDX-License-Identifier: Apache-2.0

// case: quoted_message
// runner: failed: the message is not shown
// expect: the message that was promised
BAD(static_assert(sizeof(int) == 0, "another");)  // the message that was promised
GOOD(static_assert(sizeof(int) != 0);)
