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

// Catch2 gained SKIP in 3.3. Before, it warns, and leaves the test case by what a failed REQUIRE
// throws.
#ifndef SKIP
/// The start of the warning, by which reports know it.
inline constexpr const char* catch_skips = "skipped: ";
#define SKIP(...)                        \
  do {                                   \
    WARN(catch_skips << __VA_ARGS__);    \
    throw Catch::TestFailureException(); \
  } while (false)
#endif

/// Runs the test cases as Catch2's own `main` does. After them it prints why test cases were
/// skipped, and how many passed, failed and were skipped, each in a line of its own, for
/// scripts/results.py.
///
/// Returns 77, which Meson takes for a skip, where all of them were skipped; a failure where none
/// ran.
int run_test_cases(int count, char** arguments);
