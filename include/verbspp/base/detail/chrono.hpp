// SPDX-License-Identifier: Apache-2.0
/// \file
/// Durations and clocks. With libstdc++ 12 or newer, this file includes the internal header that
/// declares only these. The public header <chrono> also declares the calendar, which needs the
/// stream headers, and so takes noticeably longer to compile.
#pragma once

#include <version>

#if defined(__GLIBCXX__) && __has_include(<bits/chrono.h>)
#include <bits/chrono.h>
#else
#include <chrono>
#endif
