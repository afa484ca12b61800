// SPDX-License-Identifier: Apache-2.0
// Precompiled once for all tests.
#include "../catch.hpp"
