// SPDX-License-Identifier: Apache-2.0

// case: unknown_line
// runner: failed: unknown directive
// expect: a message
// expected: the directive is misspelled
