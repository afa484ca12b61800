// SPDX-License-Identifier: Apache-2.0

// Used in builds that omit softverbs or its tests.
#include "../subprojects/softverbs/test/catch.cpp"
