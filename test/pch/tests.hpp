// SPDX-License-Identifier: Apache-2.0

// Headers that nearly every test in a program includes. They are precompiled once for all of them.
// The tests also include these headers themselves, so that they compile without a precompiled
// header.

#include "../catch.hpp"
#include <verbspp/verbspp.hpp>
