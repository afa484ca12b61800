// SPDX-License-Identifier: Apache-2.0

// Headers that nearly every test of a program includes, parsed once for all of them. The tests
// include them as well, so that they also compile without precompiled headers.

#include "../catch.hpp"
#include <verbspp/verbspp.hpp>
