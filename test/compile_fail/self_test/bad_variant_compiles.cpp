// SPDX-License-Identifier: Apache-2.0

// case: bad_variant_compiles
// runner: failed: the bad variant compiles
// expect: a message that nothing shows
void compiles() {}
