// SPDX-License-Identifier: Apache-2.0

#pragma once

// Catch2's macros count by __COUNTER__, which newer clangs call an extension.
#if defined(__clang__)
#if __has_warning("-Wc2y-extensions")
#pragma clang diagnostic ignored "-Wc2y-extensions"
#endif
#endif

#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
#else
#include <catch2/catch.hpp>
#endif

// Catch2 gained SKIP in 3.3. Before, a test case that skips counts as passed, but a program
// whose test cases all skip says so to Meson by its exit code, as with the newer ones.
#ifndef SKIP
namespace verbspp::test {
inline int skipped_cases = 0;
}
#define SKIP(...)                        \
  do {                                   \
    WARN("skipped: " << __VA_ARGS__);    \
    ++::verbspp::test::skipped_cases;    \
    throw Catch::TestFailureException(); \
  } while (false)
#endif
