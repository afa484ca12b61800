// SPDX-License-Identifier: Apache-2.0

// For builds that do not build softverbs, or not its tests.
#include "../subprojects/softverbs/test/catch.cpp"
