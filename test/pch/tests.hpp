// SPDX-License-Identifier: Apache-2.0

// Headers that nearly every test of a program includes, precompiled once for all of them. The tests
// include them as well, so that they also compile without a precompiled header.

#include "../catch.hpp"
#include <verbspp/verbspp.hpp>
