// SPDX-License-Identifier: Apache-2.0
#pragma once

// Catch2, as the tests of softverbs have it.
#include "../subprojects/softverbs/test/catch.hpp"
