// SPDX-License-Identifier: Apache-2.0
// Parsed once for all tests.
#include "../catch.hpp"
