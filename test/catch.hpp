// SPDX-License-Identifier: Apache-2.0
#pragma once

// Includes Catch2 like the tests of softverbs.
#include "../subprojects/softverbs/test/catch.hpp"
