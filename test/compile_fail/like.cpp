// SPDX-License-Identifier: Apache-2.0

// This is not a test case. Test cases are compiled with the command that the build uses for this
// file, and with that command's precompiled header unless the options of a test case differ in more
// than warnings and macros.

#include <verbspp/verbspp.hpp>
