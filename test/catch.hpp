// SPDX-License-Identifier: Apache-2.0
#pragma once

// Includes Catch2 in the same way as the tests of softverbs do.
#include "../subprojects/softverbs/test/catch.hpp"
