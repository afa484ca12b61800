// SPDX-License-Identifier: Apache-2.0
#pragma once

// Catch2's macros use __COUNTER__, which newer clangs report as an extension.
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

// Catch2 has SKIP since 3.3. With older versions, it prints a warning, and leaves the test case
// with the exception of a failed REQUIRE.
#ifndef SKIP
/// The start of the warning, which reports recognize.
inline constexpr const char* catch_skips = "skipped: ";
#define SKIP(...)                        \
  do {                                   \
    WARN(catch_skips << __VA_ARGS__);    \
    throw Catch::TestFailureException(); \
  } while (false)
#endif

/// Runs the test cases like Catch2's own `main`. After them, it prints why test cases were skipped,
/// and the numbers of those that passed, failed and were skipped, each on its own line, for
/// scripts/results.py.
///
/// Returns 77, which Meson reports as a skip, if all of them were skipped, and a failure if none
/// ran.
int run_test_cases(int count, char** arguments);
