// SPDX-License-Identifier: Apache-2.0
/// \file
/// Durations and clocks. libstdc++ has them apart from the calendar, whose text streams would cost
/// whoever includes this library a tenth of a second.
#pragma once

#include <version>

#if defined(__GLIBCXX__) && __has_include(<bits/chrono.h>)
#include <bits/chrono.h>
#else
#include <chrono>
#endif
