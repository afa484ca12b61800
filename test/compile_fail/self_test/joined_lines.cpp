// SPDX-License-Identifier: Apache-2.0

// case: joined_lines
// runner: failed: unknown directive
// expect: a message
// that goes on here within: 15
