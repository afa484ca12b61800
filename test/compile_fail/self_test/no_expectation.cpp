// SPDX-License-Identifier: Apache-2.0

// case: no_expectation
// runner: failed: the file expects no message
#ifdef MUST_FAIL
static_assert(sizeof(int) == 0);
#endif
