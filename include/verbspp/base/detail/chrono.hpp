// SPDX-License-Identifier: Apache-2.0
/// \file
/// Durations and clocks. libstdc++ declares them separately from the calendar, whose text streams
/// would add a tenth of a second to the compilation of every file that includes this library.
#pragma once

#include <version>

#if defined(__GLIBCXX__) && __has_include(<bits/chrono.h>)
#include <bits/chrono.h>
#else
#include <chrono>
#endif
