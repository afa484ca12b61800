// SPDX-License-Identifier: Apache-2.0

// case: unknown_line
// runner: failed: not a line that this program knows
// expect: a message
// expected: another message that would not be looked for
