// SPDX-License-Identifier: Apache-2.0

// case: TYPE_of_the_table
// columns: TYPE | SIZE | VERDICT
// row: char | 1 | passed:
// row: short | 1 | failed: the bad variant compiles
// runner: VERDICT
// expect: TYPE has a size
BAD(static_assert(sizeof(TYPE) != SIZE, "TYPE has a size");)
