// SPDX-License-Identifier: Apache-2.0
#pragma once

// Disables a warning: the macros of Catch2 use __COUNTER__, which newer clangs report as an
// extension.
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

// Catch2 has SKIP since version 3.3. With older versions, this macro prints a warning, and then
// ends the test case by the exception that a failed REQUIRE throws.
#ifndef SKIP
/// The warning by which the macro below reports a skip begins with this text. Scripts that read the
/// reports recognize skips by it.
inline constexpr const char* catch_skips = "skipped: ";
#define SKIP(...)                        \
  do {                                   \
    WARN(catch_skips << __VA_ARGS__);    \
    throw Catch::TestFailureException(); \
  } while (false)
#endif

/// Runs the test cases as the `main` of Catch2 does. Afterwards prints the reasons for skips, and
/// the numbers of test cases that passed, failed and were skipped. scripts/results.py reads these
/// lines.
///
/// Returns 77, which means a skip to Meson, if all test cases were skipped, and a failure if none
/// ran.
int run_test_cases(int count, char** arguments);
