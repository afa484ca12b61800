// SPDX-License-Identifier: Apache-2.0

// This is not a test case. Test cases are compiled with the compiler command and the precompiled
// header that the build uses for this file.

#include <verbspp/verbspp.hpp>
