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
