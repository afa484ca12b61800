// SPDX-License-Identifier: Apache-2.0

// For builds without softverbs, or without its tests.
#include "../subprojects/softverbs/test/catch.cpp"
