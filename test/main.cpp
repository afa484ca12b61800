// SPDX-License-Identifier: Apache-2.0

#include "catch.hpp"

int main(int count, char** arguments) { return run_test_cases(count, arguments); }
