// SPDX-License-Identifier: Apache-2.0

// Not a test case. The test cases are compiled with the compiler command and the precompiled header
// of this file.

#include <verbspp/verbspp.hpp>
