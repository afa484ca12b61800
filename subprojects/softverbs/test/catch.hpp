// SPDX-License-Identifier: Apache-2.0
#pragma once

// Disables a warning about the macros of Catch2. They use __COUNTER__, which newer versions of
// clang report as an extension.
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

// Catch2 has had SKIP since version 3.3. For older versions, this macro prints a warning and then
// ends the test case with the exception that a failed REQUIRE throws.
#ifndef SKIP
/// The macro below reports a skip with a warning that begins with this text, by which
/// `run_test_cases` recognizes it.
inline constexpr const char* catch_skips = "skipped: ";
#define SKIP(...)                        \
  do {                                   \
    WARN(catch_skips << __VA_ARGS__);    \
    throw Catch::TestFailureException(); \
  } while (false)
#endif

/// Runs the test cases in the same way as the `main` of Catch2. Then, unless this would corrupt a
/// report on standard output, prints why test cases were skipped, and how many passed, failed and
/// were skipped. scripts/results.py reads these lines.
///
/// Returns 77, which Meson treats as a skip, if all test cases were skipped. Returns a failure if
/// none ran, unless the arguments only ask for a list or for help.
int run_test_cases(int count, char** arguments);
