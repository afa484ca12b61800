// SPDX-License-Identifier: Apache-2.0

#include <verbspp/base/config.hpp>

// case: language_standard
// expect: verbspp needs C++20
// flags-must-fail: -std=c++17
