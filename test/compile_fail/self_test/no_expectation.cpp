// runner: failed: the file expects no message
// SPDX-License-Identifier: Apache-2.0

#ifdef MUST_FAIL
static_assert(sizeof(int) == 0);
#endif
