// SPDX-License-Identifier: Apache-2.0

// case: variant_compiles
// runner: failed: the bad variant compiles: -DMUST_FAIL=2
// expect: the message
#if defined(MUST_FAIL) && MUST_FAIL != 2
static_assert(sizeof(int) == 0, "the message");
#endif
