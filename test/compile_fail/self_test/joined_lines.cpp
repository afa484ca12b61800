// SPDX-License-Identifier: Apache-2.0

// case: joined_lines
// runner: failed: not a line that this program knows
// expect: a message
// that goes on here within: 15
