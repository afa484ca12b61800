// SPDX-License-Identifier: Apache-2.0

// This file is used in builds that omit softverbs or its tests.
#include "../subprojects/softverbs/test/catch.cpp"
