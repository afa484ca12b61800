// SPDX-License-Identifier: Apache-2.0

// Parsed once for all tests of a program: what nearly each of them includes. They include it
// themselves as well, so that they compile without precompiled headers, too.

#include "../catch.hpp"
#include <verbspp/verbspp.hpp>
