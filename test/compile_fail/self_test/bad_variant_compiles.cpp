// runner: failed: the bad variant compiles
// expect: a message that nothing shows
// SPDX-License-Identifier: Apache-2.0

int main() {}
