// SPDX-License-Identifier: Apache-2.0

// Where softverbs is not built, or not its tests.
#include "../subprojects/softverbs/test/catch.cpp"
